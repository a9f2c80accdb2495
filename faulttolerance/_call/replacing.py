"""What replaces the failure of a call: one fallback after the other, each asked with the failure of the one before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .._event import Degradation, FallbackApplied, collecting, sinks
from .._runtime.blocking import Arguments, Aside
from .._runtime.environment import StoppedIteration
from .._strategy.verdict import matches

if TYPE_CHECKING:
    from .bound import BoundPolicies
    from .retrying import CallRecord


class InItsContext:
    """Keeps the context of an error that is raised in the block, instead of what the caller handles."""

    __slots__ = ("_context",)

    def __init__(self, error: BaseException) -> None:
        self._context = error.__context__

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            BaseException.__setattr__(error, "__context__", self._context)  # what is frozen refuses an assignment


def replaced(
    policies: BoundPolicies, call: CallRecord, failure: BaseException, args: Arguments, kwargs: Mapping[str, Any]
) -> tuple[BaseException | None, Any]:
    """Return what replaces *failure* of a synchronous call, behind the failure that nothing does (rule FB1)."""
    fallbacks = iter(policies.fallbacks)
    try:
        while fallback := _next_fallback(policies, call, failure, fallbacks):
            try:
                result = fallback[1](args, kwargs, failure, call.attempts)
            except BaseException as error:  # noqa: BLE001  # raised where no further one is for it
                failure = error
            else:
                _collect(policies.name, failure, fallback[0])
                return None, result
        return _to_raise(policies, failure), None
    finally:
        del failure  # its traceback holds this frame


async def replaced_async(
    policies: BoundPolicies, call: CallRecord, failure: BaseException, args: Arguments, kwargs: Mapping[str, Any]
) -> tuple[BaseException | None, Any]:
    """Return what replaces *failure* of an asynchronous call, behind the failure that nothing does (rule FB1)."""
    assert policies.environment is not None
    fallbacks = iter(policies.fallbacks)
    try:
        while fallback := _next_fallback(policies, call, failure, fallbacks):
            try:
                result = await policies.environment.call(fallback[1], args, kwargs, failure, call.attempts)
            except BaseException as error:  # noqa: BLE001  # as above
                failure = StoppedIteration.meant(error)
            else:
                _collect(policies.name, failure, fallback[0])
                return None, result
        return _to_raise(policies, failure), None
    finally:
        del failure  # its traceback holds this frame


def _to_raise(policies: BoundPolicies, failure: BaseException) -> BaseException:
    return StoppedIteration.of(failure) if policies.detached or policies.is_block else failure


def _next_fallback(
    policies: BoundPolicies, call: CallRecord, failure: BaseException, fallbacks: Iterator[tuple[str, Aside]]
) -> tuple[str, Aside] | None:
    """Return what is asked next to replace *failure*, behind its name; ``None`` where nothing is."""
    applies = policies.fallback_on is not None and matches(failure, policies.fallback_on, policies.no_fallback_on)
    fallback = next(fallbacks, None) if applies else None
    if fallback is not None:
        if sinks.wanted[FallbackApplied]() and sinks.is_heard(FallbackApplied, call):
            sinks.tell(FallbackApplied(policies.name, failure), call)
        if call.replaced is None:
            call.replaced = failure
    return fallback


def _collect(name: str, failure: BaseException, by: str) -> None:
    """Tell who collects degradations that a fallback has answered (rule Y2)."""
    for found in collecting.get():
        found.append(Degradation(name, failure, by))
