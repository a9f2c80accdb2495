"""Exceptions of applications come out as they are, whatever operations they allow."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf
from typing import Any, NoReturn

import pytest

from faulttolerance import custom_backoff, fallback, retry


@dataclass(frozen=True)
class Declined(Exception):
    """An exception as a frozen dataclass: nothing can be stored on it."""

    reason: str = "no funds"


class NotesOfItsOwn(Exception):
    """An exception whose author uses the name of PEP 678 for something else."""

    __notes__: Any = 5


class UnreadableNotes(Exception):
    @property
    def __notes__(self) -> NoReturn:
        raise RuntimeError("no notes here")


@pytest.mark.parametrize("kind", [Declined, NotesOfItsOwn, UnreadableNotes])
def test_a_failure_that_takes_no_note_comes_out_as_it_is(kind: type[Exception]) -> None:
    """The note on the last failure is a courtesy: it never replaces the failure (rule R1)."""
    failure = kind()

    @retry(max_retries=1, jitter=0)
    def charge() -> NoReturn:
        raise failure

    with pytest.raises(kind) as raised:
        charge()

    assert raised.value is failure


def test_a_failure_that_takes_no_note_is_replaced_by_the_fallback() -> None:
    """The fallback follows the last failure, whether or not a note could be put on it."""

    @fallback(lambda context: "later")
    @retry(max_retries=1, jitter=0)
    async def charge() -> str:
        raise NotesOfItsOwn

    assert asyncio.run(charge()) == "later"


def test_a_frozen_failure_gets_its_note() -> None:
    """An immutable exception has the number of its attempts in a note, like any other (rule R1)."""

    @retry(max_retries=1, jitter=0)
    def charge() -> NoReturn:
        raise Declined

    with pytest.raises(Declined) as raised:
        charge()

    assert "2 attempts" in raised.value.__notes__[0]


@pytest.mark.parametrize("delay", [None, "1", object(), 1j])
def test_a_back_off_that_gives_no_number_is_named_in_the_log(delay: object, caplog: pytest.LogCaptureFixture) -> None:
    """A value that is no delay does not replace the call's own failure: the delay of ``@retry`` counts (rule R10)."""
    attempts: list[int] = []

    @custom_backoff(lambda: lambda failure: delay)  # type: ignore[arg-type, return-value]
    @retry(max_retries=2, jitter=0)
    def charge() -> NoReturn:
        attempts.append(1)
        raise ConnectionError("down")

    with pytest.raises(ConnectionError):
        charge()

    (told,) = [record for record in caplog.records if record.exc_info]
    assert len(attempts) == 3
    assert "allowed: seconds or a timedelta" in str(told.exc_info and told.exc_info[1])


def test_a_back_off_beyond_every_clock_ends_the_retrying() -> None:
    """A delay that no clock can count never ends, so the failure comes out at once."""

    @custom_backoff(lambda: lambda failure: inf)
    @retry(max_retries=1, jitter=0)
    def charge() -> NoReturn:
        raise ConnectionError("down")

    with pytest.raises(ConnectionError):
        charge()
