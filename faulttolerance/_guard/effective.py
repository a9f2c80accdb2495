"""The policies in force for one guard and one concrete class: what is declared, with the configuration applied."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .._call.order import RANK
from .._config import Declared, Effective, Switches
from .._policy import Policy

__all__ = ["EffectivePolicies", "in_order"]


class EffectivePolicies(NamedTuple):
    """What holds for one guard and one concrete class; found anew for whoever asks.

    Args:
        name: The method as metrics and messages name it: ``module.Class.method`` with the concrete class.
        function: What runs; where nothing guards it, that is all.
        declared: What the annotations say; empty where the method runs unguarded.
        values: The same with configuration applied, in the same order.
        interceptors: Those that stand around the method, the outermost first.
        declared_by: The class that declares each policy; empty for a function.
        switches: Those for the whole application.
        line: What metrics name it, if that is something else: the line that several guards have in common.
    """

    name: str
    function: Callable[..., Any]
    declared: Sequence[Declared] = ()
    values: Sequence[Effective] = ()
    interceptors: tuple[Any, ...] = ()
    declared_by: Mapping[type[Policy], type] = {}
    switches: Switches = Switches()
    line: str = ""

    @property
    def policies(self) -> dict[type[Policy], Policy]:
        """The policies that are in force, outermost first."""
        return {type(one.policy): one.policy for one in self.values if one.enabled}


def in_order(declared: list[Declared]) -> list[Declared]:
    """Sort *declared* as policies nest, outermost first."""
    return sorted(declared, key=lambda one: RANK[type(one.policy)])
