"""The layer of ``@hedge``: attempts of one call that run side by side, of which the first success wins (rule H4).

It stands between the retries and an attempt, so that each hedge passes by itself whatever guards an attempt. Here is
the waiting alone; ``_extensions/hedge/strategy.py`` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from sys import modules
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import _policy as policies
from ..._call.budget import take
from ..._deadline.clock import clock
from ..._deadline.interruption import remaining
from ..._event import HedgeSent, sinks
from ..._execution.caller_thread import Arguments, GuardedCall
from ..._execution.environment import Environment, StoppedIteration
from ..._execution.race import RaceAttempt, current_attempt
from ..._metrics.catalogue import advanced
from ..._metrics.counters import FOLD, Counters
from ..._platform.event_loop import refuse_trio
from ..._signature.kind import is_coroutine_function
from ..._strategy.adaptive_timeout import LEAST
from ..._strategy.gate import Tell
from ...exceptions import RefusedException, TimeoutException
from .strategy import RESULTS, Hedge, Race

if TYPE_CHECKING:
    from ..._call.row import Binding
    from ..._execution.environment import Run
    from ...typing import Timer

__all__ = ["Hedging", "announced", "racing"]


class Payment(NamedTuple):
    """What hedges are paid from: a budget of the method, or the built-in one."""

    take: Callable[[], bool | None]
    """Takes what a hedge costs, if that is left; ``None``: nothing was taken, and it is sent all the same."""
    give_back: Callable[[], object]
    """Gives that back for a hedge that was never there."""
    earn: Callable[[], object] = lambda: None
    """Told of a race that was won; the budget of a method hears of the call."""


class Hedging:
    """Sends hedges beside the first attempt of one guarded function.

    Args:
        name: The function, as in messages.
        hedge: What is remembered of it.
        may_send: Tells whether gate and bulkhead would let a hedge in (rule H2).
        payment: What a hedge is paid from.
        limit: The seconds after which an attempt may time out; 0.0: it never does.
        counters: What counts its races; ``None``: nothing does.
        tell: Called for each hedge that would have been sent, where none is; ``None``: they are.
        inside: Builds the call path of a hedge.
    """

    __slots__ = ("_batches", "_counters", "_hedge", "_inside", "_limit", "_may_send", "_name", "_payment", "_tell")

    def __init__(
        self,
        name: str,
        hedge: Hedge,
        may_send: Callable[[float], bool],
        payment: Payment,
        limit: float,
        counters: Counters | None,
        tell: Tell | None,
        inside: Callable[..., GuardedCall],
    ) -> None:
        self._name = name
        self._hedge = hedge
        self._may_send = may_send
        self._payment = payment
        self._limit = limit
        self._counters = counters
        self._tell = tell
        self._inside = inside
        self._batches = {
            result: [] if counters is None else counters.batch(advanced((("Hedge", result),))) for result in RESULTS
        }

    def __call__(self, call: GuardedCall, environment: Environment | None) -> GuardedCall:
        """Put this around *call*, the way of the first attempt."""
        assert environment is not None
        return self._raced(call, environment) if self._tell is None else self._watched(call, environment, self._tell)

    def _begin(self) -> Race:
        if "trio" in modules:
            refuse_trio(self._name)
        now, left = clock.monotonic(), remaining()
        return self._hedge.begin(now, inf if left is None else now + left)

    def _raced(self, call: GuardedCall, environment: Environment) -> GuardedCall:
        # The path of a hedge leads to the same function, through the same policies.
        begin, other = environment.start_child, self._inside(may_wait=False)

        async def raced(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            race = self._begin()
            runs: dict[int, Run] = {}
            try:
                entry, begun = partial(current_attempt.set, RaceAttempt(race, 0)), partial(runs.__setitem__, 0)
                await begin(partial(call, args, kwargs), entry, begun, race.ring)
                while True:
                    if (winner := self._look(race, runs)) is not None:
                        result = winner.result()  # a handler that raises behind the call does so inside the ``try``
                        return result  # noqa: RET504
                    if not runs:
                        raise StoppedIteration.of(race.failure())
                    now = clock.monotonic()
                    if race.due <= now:
                        number = race.take_turn()
                        if self._may_send(now) and (is_paid := self._payment.take()) is not False:
                            if is_paid:
                                race.paid.add(number)
                            entry, begun = (
                                partial(current_attempt.set, RaceAttempt(race, number)),
                                partial(runs.__setitem__, number),
                            )
                            await begin(partial(other, args, kwargs), entry, begun, race.ring)
                        continue
                    turn = environment.new_wait()
                    race.wake = turn.wake
                    if any(run.done() for run in runs.values()):
                        continue  # it ended before it could wake anybody
                    timer: Timer | None = None
                    try:
                        if race.due < inf:
                            timer = environment.call_later(race.due - now, race.ring)
                        await turn.awaitable
                    except GeneratorExit:
                        raise
                    except BaseException:
                        race.end()
                        await environment.end_children(runs.values())
                        raise
                    finally:
                        if timer is not None:
                            timer.cancel()
            finally:
                try:
                    _leave(race, runs, environment)
                except BaseException:
                    _leave(race, runs, environment)  # a signal's handler raised: nobody else ends them
                    raise
                finally:
                    self._count(race)

        return raced

    def _look(self, race: Race, runs: dict[int, Run]) -> Run | None:
        """Take those off *runs* that have ended; give the one that has won, if one has.

        Raises:
            BaseException: One ended by control flow, which ends the call (rule R0).
        """
        for number in [number for number, run in runs.items() if run.done()]:
            run, now = runs.pop(number), clock.monotonic()
            failure = None if run.cancelled() else run.exception()
            if failure is None or not isinstance(failure, Exception):
                if failure is None and not run.cancelled():
                    race.succeed(number, now)
                    self._payment.earn()
                return run
            if number in race.paid and number not in race.sent and isinstance(failure, RefusedException):
                self._payment.give_back()
            race.fail(number, failure, now, timed_out=self._is_own_timeout(failure, now - race.began))
        return None

    def _is_own_timeout(self, failure: BaseException, elapsed: float) -> bool:
        return isinstance(failure, TimeoutException) and 0.0 < self._limit <= elapsed

    def _watched(self, call: GuardedCall, environment: Environment, tell: Tell) -> GuardedCall:
        """Give the way of a call beside which hedges are only counted (rule X7)."""

        async def watched(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            race = self._begin()
            timer: Timer | None = None

            def look() -> None:
                nonlocal timer
                if race.is_over:
                    return
                now = clock.monotonic()
                if race.due <= now:
                    race.take_turn()
                    if self._may_send(now) and self._payment.take() is not False:
                        tell()
                timer = environment.call_later(race.due - now, look) if race.due < inf else None

            try:
                look()
                result = await call(args, kwargs)
                race.succeed(0, clock.monotonic())
                self._payment.earn()
                return result
            except TimeoutException as failure:
                now = clock.monotonic()
                race.fail(0, failure, now, timed_out=self._is_own_timeout(failure, now - race.began))
                raise
            finally:
                race.end()
                if timer is not None:
                    timer.cancel()
                self._count(race)

        return watched

    def _count(self, race: Race) -> None:
        if self._counters is not None:
            batch = self._batches[race.result]
            batch.append(None)
            if len(batch) >= FOLD:
                self._counters.fold()


def announced(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return *function* as hedges of the guard *name* call it: the start is recorded, and an event is sent."""
    if is_coroutine_function(function):

        async def announced_later(*args: Any, **kwargs: Any) -> Any:
            _announce(name)
            return await function(*args, **kwargs)

        return announced_later

    def announced(*args: Any, **kwargs: Any) -> Any:
        _announce(name)
        return function(*args, **kwargs)

    return announced


def _announce(name: str) -> None:
    entry: Any = current_attempt.get()
    if entry is not None:
        entry.race.sent[entry.number] = None
        if sinks.wanted[HedgeSent]() and sinks.is_heard(HedgeSent):
            sinks.tell(HedgeSent(name, entry.number, clock.monotonic() - entry.race.began))


def _leave(race: Race, runs: dict[int, Run], environment: Environment) -> None:
    race.end()
    environment.cancel_children(list(runs.values()))


def racing(binding: Binding) -> Hedging:
    """Return the layer of asynchronous calls."""
    hedges: Hedge = binding.strategies.get(policies.Hedge)
    return Hedging(
        binding.name,
        hedges,
        _room_for_hedges(binding),
        _payment(hedges, binding),
        _shortest_timeout(binding.policies.get(policies.Timeout)),
        binding.counters_of(policies.Hedge),
        binding.tell_of(policies.Hedge),
        binding.inside,
    )


def _shortest_timeout(policy: Any) -> float:
    """Give the seconds after which an attempt may time out; 0.0: it never does."""
    if policy is None:
        return 0.0
    seconds = policies.seconds(policy.value, policy.unit)
    return min(seconds, LEAST) if policy.adaptive else seconds


def _payment(hedges: Hedge, binding: Binding) -> Payment:
    """Let hedges be paid for from the budget of the method, which calls pay into; else from one of their own."""
    if policies.RetryBudget not in binding.policies:
        own = hedges.budget
        return Payment(own.take, own.give_back, own.succeed)
    budget, tell = binding.strategies.get(policies.RetryBudget), binding.tell_of(policies.RetryBudget)
    # What is only observed sends none, and none is counted.
    counters = binding.counters_of(policies.RetryBudget) if binding.tell_of(policies.Hedge) is None else None
    return Payment(lambda: take(budget, tell, counters, "hedge"), budget.give_back)


def _room_for_hedges(binding: Binding) -> Callable[[float], bool]:
    """Return what tells whether gate and bulkhead let in a hedge, as far as they are obeyed (rule H2)."""

    def obeyed(kind: type[policies.Policy]) -> Any:
        return binding.strategies.get(kind) if kind in binding.policies and binding.tell_of(kind) is None else None

    breaker, throttle, permits = map(obeyed, (policies.CircuitBreaker, policies.AdaptiveThrottle, policies.Bulkhead))

    def is_there(now: float) -> bool:
        return (
            (breaker is None or breaker.state.is_closed)
            and (throttle is None or not throttle.probability(now))
            and (permits is None or permits.has_room_to_spare(now))
        )

    return is_there
