"""What holds for one guard and one concrete class: the outcome of declaring and configuring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._call.order import RANK
from .._config import Declared, Effective, Switches
from .._policy import Policy

__all__ = ["Plan", "in_order"]

_NO_HOMES: Mapping[type[Policy], type] = {}
_ALL_ON = Switches()


class Plan:
    """What holds for one guard and one concrete class; found anew for whoever asks.

    Args:
        name: The method as metrics and messages name it: ``module.Class.method`` with the concrete class.
        function: What runs; where nothing guards it, that is all.
        declared: What the annotations say; empty where the method runs plainly.
        effective: The same with configuration applied, in the same order.
        interceptors: Those that stand around it, the outermost first.
        homes: The class that declares each policy; empty for a function.
        switches: Those for the whole application.
        counted_as: What metrics name it, if that is something else: what several guards have in common.
    """

    __slots__ = (
        "counted_as",
        "declared",
        "effective",
        "function",
        "homes",
        "interceptors",
        "name",
        "policies",
        "switches",
    )

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        declared: Sequence[Declared] = (),
        effective: Sequence[Effective] = (),
        interceptors: tuple[Any, ...] = (),
        homes: Mapping[type[Policy], type] = _NO_HOMES,
        switches: Switches = _ALL_ON,
        counted_as: str = "",
    ) -> None:
        self.name = name
        self.function = function
        self.declared = declared
        self.effective = effective
        self.interceptors = interceptors
        self.homes = homes
        self.switches = switches
        self.counted_as = counted_as or name
        self.policies = {type(one.policy): one.policy for one in effective if one.enabled}
        """The policies that are in force."""


def in_order(declared: list[Declared]) -> list[Declared]:
    """*declared* as policies nest, outermost first."""
    return sorted(declared, key=lambda one: RANK[type(one.policy)])
