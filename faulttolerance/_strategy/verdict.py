"""The meaning of a settled attempt for the circuit breaker, or for the gate in its place."""

from __future__ import annotations

from enum import Enum
from typing import Final

from .exception_set import Classes, contains

__all__ = ["FAILURE", "NEUTRAL", "SUCCESS", "Verdict", "verdict_on"]


class Verdict(Enum):
    """The verdict on an attempt."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"
    """Not at all: the attempt ended by control flow and says nothing about the callee."""


# Module constants, because an attribute of the enumeration costs a look-up more on a path that runs for every failure.
SUCCESS: Final = Verdict.SUCCESS
FAILURE: Final = Verdict.FAILURE
NEUTRAL: Final = Verdict.NEUTRAL


def verdict_on(error: BaseException, fail_on: Classes, skip_on: Classes) -> Verdict:
    """Judge an attempt that raised *error* (specification: *skip_on* goes before *fail_on*, the rest is success).

    An error that is no ``Exception`` is neutral unless one of the sets names it.
    """
    if contains(skip_on, error):
        return SUCCESS
    if contains(fail_on, error):
        return FAILURE
    return SUCCESS if isinstance(error, Exception) else NEUTRAL
