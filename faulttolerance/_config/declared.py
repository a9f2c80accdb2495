"""One policy of one guard: as it is declared, and what it became by the configuration."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from .._policy import Policy, parameters
from ..exceptions import Fault


class Declared(NamedTuple):
    """One policy as it is declared for one guarded method.

    Args:
        policy: The declared value.
        level: Where the annotation stands: on the method (or plain function) or on the class (or ``Guard``).
        owner: The ``<class>`` of its keys: module, dot and ``__qualname__`` of the class that declares the annotation;
            the module alone for a plain function; the name of a ``Guard``, empty if it has none.
        method: The ``<method>``: the method's name; ``__qualname__`` of a plain function; empty for a ``Guard``.
        enabled_owners: The ``<class>`` of its ``enabled`` keys, the nearest first: the concrete class, the class that
            declares the method, the class that declares the annotation. Empty stands for *owner* alone.
    """

    policy: Policy
    level: Literal["method", "class"]
    owner: str
    method: str
    enabled_owners: tuple[str, ...] = ()


class Effective:
    """A policy with the configured values in place of the declared ones.

    Args:
        policy: The declared object itself where nothing is configured.
        enabled: Whether it takes part in calls at all.
        configured: For each configured parameter (and ``enabled``) its key and its source, as in
            ``Retry/maxRetries in environment variable FAULTTOLERANCE_RETRY_MAXRETRIES``.
    """

    __slots__ = ("configured", "enabled", "policy")

    def __init__(
        self, policy: Policy, enabled: bool = True, configured: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.policy = policy
        self.enabled = enabled
        self.configured = configured

    @property
    def sources(self) -> Mapping[str, str]:
        """The origin of each parameter: ``default``, ``decorator``, or the words of *configured*."""
        declared = {
            name: "default"
            if getattr(self.policy, name) == parameter.kind.normalised(parameter.default)
            else "decorator"
            for name, parameter in parameters(self.policy).items()
        }
        return {**declared, **self.configured}

    def traced(self, fault: Fault) -> Fault:
        """Add to *fault* where the value of its parameter was configured, if it was."""
        name = fault.where.rpartition("(")[2].removesuffix(")")
        return fault._replace(source=self.configured[name]) if name in self.configured else fault
