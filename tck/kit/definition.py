"""Definition errors, on every version of Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from faulttolerance import FaultToleranceDefinitionException


class Refused:
    """The definition error that ended a block."""

    error: FaultToleranceDefinitionException

    @property
    def faults(self) -> tuple[object, ...]:
        return self.error.faults

    def __str__(self) -> str:
        return str(self.error)


@contextmanager
def refused(*words: str) -> Iterator[Refused]:
    """Expect a definition error whose message has all *words*.

    Before Python 3.12 what `__set_name__` raises arrives as the cause of a `RuntimeError`.
    """
    refusal = Refused()
    with pytest.raises(RuntimeError) as raised:
        yield refusal
    error: BaseException | None = raised.value
    if not isinstance(error, FaultToleranceDefinitionException):
        error = raised.value.__cause__
    assert isinstance(error, FaultToleranceDefinitionException), raised.value
    refusal.error = error
    missing = [word for word in words if word not in str(error)]
    assert not missing, f"{missing} not in: {error}"
