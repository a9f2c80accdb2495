"""Class-level decorators leave no trace that typing takes for a part of the class."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from faulttolerance import retry


def test_a_guarded_protocol_is_still_met_by_what_has_its_methods() -> None:
    """What the decorator remembers on a protocol is no member that implementations lack."""

    @retry(max_retries=1)
    @runtime_checkable
    class Payments(Protocol):
        def charge(self) -> int: ...

    class Bank:
        def charge(self) -> int:
            return 5

    assert isinstance(Bank(), Payments)
    assert not isinstance(object(), Payments)
