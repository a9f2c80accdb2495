"""The layer of ``@hedge``: parallel attempts of one call, of which the first success wins (rule H4).

It is between the retries and an attempt, so that each hedge passes all policies of an attempt itself. This module only
waits; ``_extensions/hedge/strategy.py`` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from sys import modules
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from ... import _policy as policies
from ..._call.budget import charge
from ..._deadline.clock import clock
from ..._deadline.interruption import remaining
from ..._event import HedgeSent, sinks
from ..._execution.caller_thread import Arguments, GuardedCall
from ..._execution.environment import Environment, StoppedIteration
from ..._execution.race import RaceAttempt, current_attempt
from ..._metrics.catalogue import series_of_facts
from ..._metrics.counters import FOLD, Counters
from ..._platform.event_loop import refuse_trio
from ..._signature.kind import is_coroutine_function
from ..._strategy.adaptive_timeout import LEAST
from ..._strategy.circuit_breaker import CircuitBreaker
from ..._strategy.gate import OnRefusal
from ...exceptions import RefusedException, TimeoutException
from . import policy
from .strategy import Hedge, Race, Result

if TYPE_CHECKING:
    from ..._call.row import Binding
    from ..._execution.environment import Run
    from ...typing import Timer


class Payment(NamedTuple):
    """The budget that pays for hedges: a budget of the method, or the built-in budget."""

    take: Callable[[], bool | None]
    """Takes the price of a hedge, and returns whether it was left; ``None`` if the hedge starts without payment."""
    give_back: Callable[[], object]
    """Returns the price of a hedge that did not start."""
    earn: Callable[[], object] = lambda: None
    """Called after a race with a winner; the budget of a method counts the call itself."""


class Hedging(NamedTuple):
    """Starts hedges beside the first attempt of one guarded function.

    Args:
        name: The function, as in messages.
        hedge: The state of the function.
        may_send: Returns whether gate and bulkhead would admit a hedge (rule H2).
        payment: The budget that pays for hedges.
        limit: The seconds after which an attempt may time out; 0.0 for no limit.
        counters: The counters of its races; ``None`` without metrics.
        tell: Called for each hedge of an observed policy, which does not start; ``None`` if hedges start.
        inside: Builds the call path of a hedge.
        batches: The lists whose entries count races, by their results.
    """

    name: str
    hedge: Hedge
    may_send: Callable[[float], bool]
    payment: Payment
    limit: float
    counters: Counters | None
    tell: OnRefusal | None
    inside: Callable[..., GuardedCall]
    batches: Mapping[str, list[None]] = {}  # never changed

    def __call__(self, call: GuardedCall, environment: Environment | None) -> GuardedCall:
        """Return *call*, the path of the first attempt, wrapped by this layer."""
        assert environment is not None
        return self._raced(call, environment) if self.tell is None else self._watched(call, environment, self.tell)

    def _begin(self) -> Race:
        if "trio" in modules:
            refuse_trio(self.name)
        now, left = clock.monotonic(), remaining()
        return self.hedge.begin(now, inf if left is None else now + left)

    def _raced(self, call: GuardedCall, environment: Environment) -> GuardedCall:
        # The path of a hedge has the same function, and the same policies.
        begin, other = environment.start_child, self.inside(may_wait=False)

        async def raced(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            race = self._begin()
            runs: dict[int, Run] = {}
            try:
                entry, begun = partial(current_attempt.set, RaceAttempt(race, 0)), partial(runs.__setitem__, 0)
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
                        if self.may_send(now) and (is_paid := self.payment.take()) is not False:
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
                        continue  # it ended before it could wake the race
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
                    _leave(race, runs, environment)  # a signal handler raised: no other code ends them
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
                    race.succeed(number, now)
                    self.payment.earn()
                return run
            if number in race.paid and number not in race.sent and isinstance(failure, RefusedException):
                self.payment.give_back()
            race.fail(number, failure, now, timed_out=self._is_own_timeout(failure, now - race.began))
        return None

    def _is_own_timeout(self, failure: BaseException, elapsed: float) -> bool:
        return isinstance(failure, TimeoutException) and 0.0 < self.limit <= elapsed

    def _watched(self, call: GuardedCall, environment: Environment, tell: OnRefusal) -> GuardedCall:
        """Return the path of a call whose hedges are only counted (rule X7)."""

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
                    if self.may_send(now) and self.payment.take() is not False:
                        tell()
                timer = environment.call_later(race.due - now, look) if race.due < inf else None

            try:
                look()
                result = await call(args, kwargs)
                race.succeed(0, clock.monotonic())
                self.payment.earn()
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
        if self.counters is not None:
            batch = self.batches[race.result]
            batch.append(None)
            if len(batch) >= FOLD:
                self.counters.fold()


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
        if sinks.wanted[HedgeSent](None):
            sinks.send(HedgeSent(name, entry.number, clock.monotonic() - entry.race.began))


def _leave(race: Race, runs: dict[int, Run], environment: Environment) -> None:
    race.end()
    environment.cancel_children(list(runs.values()))


def racing(binding: Binding) -> Hedging:
    """Return the layer of asynchronous calls."""
    hedges: Hedge = binding.strategies.get(policy.Hedge)
    counters = binding.counters_of(policy.Hedge)
    return Hedging(
        binding.name,
        hedges,
        _room_for_hedges(binding),
        _payment(hedges, binding),
        _shortest_timeout(binding.policies.get(policies.Timeout)),
        counters,
        binding.on_refusal_of(policy.Hedge),
        binding.build_inner,
        {one: counters.batch(series_of_facts((("Hedge", one),))) for one in get_args(Result)}
        if counters is not None
        else {},
    )


def _shortest_timeout(policy: Any) -> float:
    """Return the seconds after which an attempt may time out; 0.0 for no limit."""
    if policy is None:
        return 0.0
    seconds = policies.seconds(policy.value, policy.unit)
    return min(seconds, LEAST) if policy.adaptive else seconds


def _payment(hedges: Hedge, binding: Binding) -> Payment:
    """Return the budget that pays for hedges: that of the method, to which calls add, or their own."""
    if policies.RetryBudget not in binding.policies:
        own = hedges.budget
        return Payment(own.take, own.give_back, own.succeed)
    budget, tell = binding.strategies.get(policies.RetryBudget), binding.on_refusal_of(policies.RetryBudget)
    # An observed policy starts no hedge, and counts none.
    counters = binding.counters_of(policies.RetryBudget) if binding.on_refusal_of(policy.Hedge) is None else None
    return Payment(lambda: charge(budget, tell, counters, "hedge"), budget.give_back)


def _room_for_hedges(binding: Binding) -> Callable[[float], bool]:
    """Return the check whether every gate and bulkhead would admit a hedge, if they are enforced (rule H2)."""
    obeyed = [binding.strategies.get(kind) for kind in binding.policies if binding.is_enforced(kind)]
    limiting = [strategy.has_room_to_spare for strategy in obeyed if hasattr(strategy, "has_room_to_spare")]
    circuits = [strategy for strategy in obeyed if isinstance(strategy, CircuitBreaker)]
    return lambda now: all(circuit.state.is_closed for circuit in circuits) and all(room(now) for room in limiting)
