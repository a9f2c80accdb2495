"""The policy of ``@timeout``."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ..typing import Duration
from .kind import SHORT, duration, kinds
from .parameter import Policy
from .unit import ChronoUnit, Unit

if TYPE_CHECKING:
    from dataclasses import KW_ONLY


@final
class Timeout(Policy, is_observable=True):
    """End an attempt that takes too long (specification, chapter Timeout).

    Args:
        value: The longest duration of an attempt, in *unit*; 0 for no limit.
        unit: The unit of *value*.
        interrupt: Whether a synchronous body is interrupted at the deadline; if not, its result is discarded when it
            ends late.
        adaptive: Whether the limit is three times the 99th percentile of the method's attempts: at most *value*, which
            is the only limit at first, and at least 10 ms.
    """

    _kinds = kinds(
        value=duration(note=" (0: no limit)", unit="unit", plausible=SHORT),
    )

    value: Duration = 1000
    unit: Unit = ChronoUnit.MILLIS
    _: KW_ONLY
    interrupt: bool = True
    adaptive: bool = False
