"""The layer of ``@hedge``: parallel attempts of one call, of which the first success wins (rule H4).

It is between the retries and an attempt, so that each hedge passes all policies of an attempt itself. This module only
waits; ``_extensions/hedge/strategy.py`` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from sys import modules
from typing import TYPE_CHECKING, Any

from ... import _policy as policies
from ..._call.budget import charge
from ..._deadline.clock import clock
from ..._deadline.interruption import remaining
from ..._event import HedgeSent, sinks
from ..._execution.caller_thread import Arguments, GuardedCall
from ..._execution.environment import Environment, StoppedIteration
from ..._execution.race import RaceAttempt, current_attempt
from ..._metrics.catalogue import series_of_facts
from ..._platform.event_loop import refuse_trio
from ..._strategy.adaptive_timeout import LEAST
from ..._strategy.circuit_breaker import CircuitBreaker
from ..._strategy.gate import OnRefusal
from . import policy
from .strategy import BURST, RATIO, Hedge, Race

if TYPE_CHECKING:
    from ..._call.row import Binding
    from ..._execution.environment import Run
    from ..._strategy.retry_budget import RetryBudget
    from ...typing import Timer


class Hedging:
    """Starts hedges beside the first attempt of one guarded function, whose calls are asynchronous."""

    def __init__(self, binding: Binding) -> None:
        self._name = binding.name
        self._hedge: Hedge = binding.strategies.get(policy.Hedge)
        self._may_send = _room_for_hedges(binding)
        self._limit = _shortest_timeout(binding.policies.get(policies.Timeout))
        self._tell = binding.on_refusal_of(policy.Hedge)
        """Called for each hedge of an observed policy, which does not start; ``None`` if hedges start."""
        self._inside = binding.build_inner
        """Builds the call path of a hedge."""
        self._counters = binding.counters_of(policy.Hedge)
        self._budget: RetryBudget = self._hedge.budget
        """Pays for hedges: the budget of the method, or one of its own, from which observed hedges take, too."""
        self._take: Callable[[], bool | None] = self._budget.take
        """Takes the price of a hedge, and returns whether it was left; ``None`` if the hedge starts without payment."""
        declared: Any = binding.policies.get(policies.RetryBudget)
        own = (RATIO, BURST) if declared is None or self._tell is None else (declared.ratio, declared.burst)
        self._budget.renew(*own)
        if declared is not None and self._tell is None:
            self._budget = binding.strategies.get(policies.RetryBudget)
            tell = binding.on_refusal_of(policies.RetryBudget)
            self._take = partial(charge, self._budget, tell, binding.counters_of(policies.RetryBudget), "hedge")

    def __call__(self, call: GuardedCall, environment: Environment | None) -> GuardedCall:
        """Return *call*, the path of the first attempt, wrapped by this layer."""
        assert environment is not None
        return self._raced(call, environment) if self._tell is None else self._watched(call, environment, self._tell)

    def _begin(self) -> Race:
        if "trio" in modules:
            refuse_trio(self._name)
        now, left = clock.monotonic(), remaining()
        return self._hedge.begin(now, inf if left is None else now + left)

    def _raced(self, call: GuardedCall, environment: Environment) -> GuardedCall:
        # The path of a hedge has the same function, and the same policies.
        begin, other = environment.start_child, self._inside(may_wait=False)

        async def raced(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            race = self._begin()
            runs: dict[int, Run] = {}
            try:
                entry = partial(current_attempt.set, RaceAttempt(race, 0, self._name))
                begun = partial(runs.__setitem__, 0)
                await begin(partial(call, args, kwargs), entry, begun, race.ring)
                while True:
                    if (winner := self._look(race, runs)) is not None:
                        result = winner.result()  # a handler that raises after the call raises inside the ``try``
                        return result  # noqa: RET504
                    if not runs:
                        raise StoppedIteration.of(race.failure())
                    now = clock.monotonic()
                    if race.due <= now:
                        number = race.take_turn()
                        if self._may_send(now) and (is_paid := self._take()) is not False:
                            if is_paid:
                                race.paid.add(number)
                            entry = partial(current_attempt.set, RaceAttempt(race, number, self._name))
                            begun = partial(runs.__setitem__, number)
                            await begin(partial(other, args, kwargs), entry, begun, race.ring)
                        continue
                    turn = environment.new_wait()
                    race.wake = turn.wake
                    if any(run.done() for run in runs.values()):
                        continue  # it ended before it could wake the race
                    timer: Timer | None = None
                    try:
                        if race.due < inf:
                            timer = environment.call_later(race.due - now, race.ring)
                        await turn.awaitable
                    except GeneratorExit:
                        raise
                    except BaseException:
                        self._leave(race, runs)
                        await environment.await_children(runs.values())
                        raise
                    finally:
                        if timer is not None:
                            timer.cancel()
            finally:
                try:
                    self._leave(race, runs)
                except BaseException:
                    self._leave(race, runs)  # a signal handler raised: no other code ends them
                    raise
                finally:
                    self._count(race)

        return raced

    def _look(self, race: Race, runs: dict[int, Run]) -> Run | None:
        """Remove the ended attempts from *runs*, and return the winner, if any.

        Raises:
            BaseException: If control flow ended an attempt, which ends the call (rule R0).
        """
        for number in [number for number, run in runs.items() if run.done()]:
            run, now = runs.pop(number), clock.monotonic()
            failure = None if run.cancelled() else run.exception()
            if failure is None or not isinstance(failure, Exception):
                if failure is None and not run.cancelled():
                    self._succeed(race, number, now)
                return run
            race.fail(number, failure, now, self._limit)
            self._refund(race, {number})
        return None

    def _succeed(self, race: Race, number: int, now: float) -> None:
        race.succeed(number, now)
        if self._budget is self._hedge.budget:  # the budget of a method counts the call itself
            self._budget.succeed()

    def _leave(self, race: Race, runs: dict[int, Run]) -> None:
        race.end()
        for run in list(runs.values()):
            with suppress(RuntimeError):  # its loop was closed, and will not run it
                run.cancel()
        self._refund(race, race.paid)

    def _refund(self, race: Race, numbers: set[int]) -> None:
        """Return the price of those hedges that were never sent."""
        for number in (race.paid & numbers).difference(race.sent):
            race.paid.remove(number)
            self._budget.give_back()

    def _watched(self, call: GuardedCall, environment: Environment, tell: OnRefusal) -> GuardedCall:
        """Return the path of a call whose hedges are only counted, at its end (rule X7)."""

        async def watched(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            race = self._begin()
            try:
                result = await call(args, kwargs)
                self._succeed(race, 0, clock.monotonic())
                return result
            except Exception as failure:
                race.fail(0, failure, clock.monotonic(), self._limit)
                raise
            finally:
                race.end()
                now = clock.monotonic()
                while race.due <= now:
                    race.take_turn()
                    if self._may_send(now) and self._take() is not False:
                        tell()
                self._count(race)

        return watched

    def _count(self, race: Race) -> None:
        if self._counters is not None:
            self._counters.add(series_of_facts((("Hedge", race.result),)))


def announced(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return *function* as hedges of the guard *name* call it: the start is recorded, and an event is sent."""

    def announced(*args: Any, **kwargs: Any) -> Any:
        entry: Any = current_attempt.get()
        entry.race.sent[entry.number] = None
        if sinks.wanted[HedgeSent](None):
            sinks.send(HedgeSent(name, entry.number, clock.monotonic() - entry.race.began))
        return function(*args, **kwargs)

    return announced


def _shortest_timeout(policy: Any) -> float:
    """Return the seconds after which an attempt may time out; 0.0 for no limit."""
    if policy is None:
        return 0.0
    seconds = policies.seconds(policy.value, policy.unit)
    return min(seconds, LEAST) if policy.adaptive else seconds


def _room_for_hedges(binding: Binding) -> Callable[[float], bool]:
    """Return the check whether every gate and bulkhead would admit a hedge, if they are enforced (rule H2).

    A hedge that is only observed is checked when its call has ended, and released the permit that it needs itself.
    """
    obeyed = [binding.strategies.get(kind) for kind in binding.policies if binding.is_enforced(kind)]
    limiting = [strategy.has_room_to_spare for strategy in obeyed if hasattr(strategy, "has_room_to_spare")]
    circuits = [strategy for strategy in obeyed if isinstance(strategy, CircuitBreaker)]
    permits = 1 if binding.is_enforced(policy.Hedge) else 2
    return lambda now: all(one.state.is_closed for one in circuits) and all(room(now, permits) for room in limiting)
