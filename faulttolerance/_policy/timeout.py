"""The policy of ``@timeout``."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ..typing import Duration
from .kind import duration, flag, unit
from .parameter import Policy, parameter
from .unit import ChronoUnit, Unit

if TYPE_CHECKING:
    from dataclasses import KW_ONLY


@final
class Timeout(Policy, is_observable=True):
    """End an attempt that takes too long (specification, chapter Timeout).

    Args:
        value: How long an attempt may take, in *unit*; 0 for no limit.
        unit: What *value* counts.
        interrupt: Whether a synchronous body is interrupted at the deadline; if not, its result is discarded when it
            ends late.
        adaptive: Whether the limit is three times the 99th percentile of the method's attempts: at most *value*, which
            holds alone at first, and at least 10 ms.
    """

    value: Duration = parameter(duration(note=" (0: no limit)", unit="unit"), 1000)
    unit: Unit = parameter(unit(), ChronoUnit.MILLIS)
    _: KW_ONLY
    interrupt: bool = parameter(flag(), True)
    adaptive: bool = parameter(flag(), False)
