"""Deadlines of whole calls: their policies, the layer inside them, and the check for a passed deadline.

A passed deadline ends the code under it, but a call of that code may start before. So guards check the deadline, at no
cost for processes that use no ``deadline`` (rules D2, D4).
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import modules
from typing import Any

from ..._call.bound_policies import BY_NONE, BoundPolicies
from ..._call.continuation import CallRecord
from ..._deadline.attempt_record import AttemptRecord
from ..._deadline.interruption import is_past
from ..._deadline.task import current
from ..._deadline.threads.chain import binding_mark, deadlines_here, effective_entry, this_thread
from ..._execution.caller_thread import Arguments, GuardedCall
from ..._execution.environment import Environment
from ..._guard.resolve.assembly import entrances
from ..._guard.resolve.resolver import renew_at_next_calls
from ..._metrics.catalogue import Interned
from ...exceptions import TimeoutException


class WholeCallPolicies(BoundPolicies):
    """The policies around a call that are bound together with its deadline."""

    __slots__ = ()

    def __init__(self, name: str, **values: Any) -> None:
        super().__init__(name, **values)
        self._counting = _COUNTED

    def message(self, record: AttemptRecord) -> str:
        """Return the message for a caller whose call did not end in time."""
        return f"{self.name}: deadline of {self.seconds:g} s passed"

    def end_attempt(
        self,
        record: AttemptRecord,
        failure: BaseException | None,
        call: CallRecord,
        args: Arguments,
        kwargs: Mapping[str, Any],
    ) -> BaseException | None:
        """End the deadline and count the call; return its failure, with regard to a passed deadline."""
        failure = self.release(record, failure)
        if self.counters is not None:
            self._count_attempt(self.counters, record)
        return failure


_COUNTED = Interned(((BY_NONE, "Deadline"),))


def under_deadline(name: str, call: GuardedCall, environment: Environment | None) -> GuardedCall:
    """Return *call*, of the guarded function *name*, wrapped by the layer inside a deadline that has just started."""
    ask_the_time()

    def blocking(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
        refuse_late(name)
        deadlines = deadlines_here()
        own = deadlines.innermost
        try:
            deadlines.innermost = binding_mark(own)
            return call(args, kwargs)
        finally:
            deadlines.innermost = own

    async def awaited(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
        assert environment is not None
        refuse_late(name)
        timer = await environment.bind_detached_calls()
        try:
            return await call(args, kwargs)
        finally:
            if timer is not None:
                timer.cancel()

    return blocking if environment is None else awaited


def ask_the_time() -> None:
    """Ask the remaining time before calls from now on; guards in use do so from their next call on."""
    if _asking_the_time not in entrances:
        entrances[_asking_the_time] = None  # first: a guard that is resolved afterwards asks
        renew_at_next_calls()


def _asking_the_time(call: GuardedCall, name: str, asynchronous: bool) -> GuardedCall:
    """Wrap *call*, so that it starts nothing under a ``deadline`` that has passed."""

    def asking(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
        deadlines = this_thread.deadlines if "greenlet" not in modules else deadlines_here()
        if deadlines.innermost is not None or current.get().effective is not None:
            deadlines.innermost = effective_entry(deadlines.innermost)  # a block left on another thread stood there
            if is_past(deadlines, binds_thread=True, binds_task=True):
                return _refuse_awaited(name) if asynchronous else _refuse(name)
        return call(args, kwargs)

    return asking


async def _refuse_awaited(name: str) -> None:
    _refuse(name)


def _refuse(name: str) -> None:
    raise TimeoutException(f"{name}: no time is left, an enclosing deadline has passed")


def refuse_late(name: str) -> None:
    """Raise an error if no time is left, before any circuit breaker, rate limit or bulkhead decides (rule D2).

    Raises:
        TimeoutException: If a deadline has passed that includes the call, or the block, with the name *name*.
    """
    if is_past(deadlines_here()):
        _refuse(name)
