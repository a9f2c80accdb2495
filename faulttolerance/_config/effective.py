"""What a declared policy became."""

from __future__ import annotations

from collections.abc import Mapping

from .._policy import Policy, parameters
from ..exceptions import Fault

__all__ = ["Effective"]


_NOTHING: Mapping[str, str] = {}


class Effective:
    """A policy with the configured values in place of the declared ones.

    Args:
        policy: The declared object itself where nothing is configured.
        enabled: Whether it takes part in calls at all.
        configured: For each configured parameter (and ``enabled``) its key and its source, as in
            ``Retry/maxRetries in environment variable FAULTTOLERANCE_RETRY_MAXRETRIES``.
    """

    __slots__ = ("configured", "enabled", "policy")

    def __init__(self, policy: Policy, enabled: bool = True, configured: Mapping[str, str] = _NOTHING) -> None:
        self.policy = policy
        self.enabled = enabled
        self.configured = configured

    @property
    def sources(self) -> Mapping[str, str]:
        """Where each parameter comes from: ``default``, ``decorator``, or the words of *configured*."""
        found = {
            name: "default" if getattr(self.policy, name) == one.kind.normalised(one.default) else "decorator"
            for name, one in parameters(type(self.policy)).items()
        }
        return {**found, **self.configured}

    def traced(self, fault: Fault) -> Fault:
        """*fault*, with where the value of its parameter was configured if it was."""
        name = fault.where.rpartition("(")[2].removesuffix(")")
        return fault._replace(source=self.configured[name]) if name in self.configured else fault
