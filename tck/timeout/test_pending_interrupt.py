"""Which of several reasons why a call was not interrupted its note gives (rule R2)."""

from __future__ import annotations

import pytest

from faulttolerance._runtime.interrupting.pending_interrupt import OTHER_GREENLETS, OURS, PendingInterrupt
from faulttolerance._runtime.interrupting.thread_deadlines import Entry

ENTRY: Entry = (1.0, None)
IN_C = "it was in C code"


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([OURS], OURS),
        ([IN_C, OURS], IN_C),
        ([OURS, IN_C], IN_C),
        ([IN_C, None], IN_C),
        ([OURS, None], OURS),
        ([OTHER_GREENLETS, OURS], OTHER_GREENLETS),
        ([OTHER_GREENLETS, None, OURS], OTHER_GREENLETS),
        ([OTHER_GREENLETS, IN_C], IN_C),
    ],
)
def test_reason_that_says_most_of_the_body_is_given(seen: list[str | None], said: str | None) -> None:
    """R2: that a call was about to end, or could have been interrupted by then, hides no cause."""
    pending = PendingInterrupt(ENTRY)

    for why in seen:
        pending.refuse(why)

    assert pending.why == said
