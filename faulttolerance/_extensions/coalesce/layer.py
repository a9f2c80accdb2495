"""The layer of ``@coalesce``: overlapping calls wait for the leading call, and share its outcome (rule CO1)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextvars import ContextVar
from math import inf
from sys import exception
from typing import TYPE_CHECKING, Any

from ..._call.specialize import specializable, specialized
from ..._cause import Links, links_of
from ..._deadline.clock import Alarm, clock
from ..._deadline.interruption import is_outer
from ..._execution.caller_thread import Arguments, GuardedCall
from ..._execution.environment import Environment
from ..._metrics.catalogue import series_of_facts
from ..._metrics.counters import FOLD, Counters
from ..._platform.event_loop import loop_here
from ..._platform.greenlets import hub_here
from ..._platform.unpatched import get_ident
from ..._signature.call_key import refuse_unhashable
from .strategy import Flight, Flights, Outcome, Seat

if TYPE_CHECKING:
    ASYNC = False  # a flag of ``specialized``

_LED, _FOLLOWED = series_of_facts((("Coalesce", "leader"),)), series_of_facts((("Coalesce", "follower"),))
_own: ContextVar[tuple[Flight, ...]] = ContextVar("the flights in which a call is made", default=())


class Coalescing:
    """The sharing of one execution among overlapping calls of a guarded function.

    Args:
        name: The function, as in messages.
        flights: The flights of the function.
        key_of: Returns the key of a call from its arguments.
        counters: The counters of the calls; ``None`` without metrics.
    """

    __slots__ = ("_counters", "_followed", "_led", "flights", "key_of", "name")

    def __init__(self, name: str, flights: Flights, key_of: Callable[..., Hashable], counters: Counters | None) -> None:
        self.name = name
        self.flights = flights
        self.key_of = key_of
        self._counters = counters
        self._led, self._followed = map(counters.batch, (_LED, _FOLLOWED)) if counters is not None else ([], [])

    def __call__(self, call: GuardedCall, environment: Environment | None) -> GuardedCall:
        """Return *call* with this layer around it."""
        flags = {"ASYNC": environment is not None}
        return specialized(coalescing, flags)(self, call, environment)  # type: ignore[no-any-return]

    def count(self, seat: Seat) -> None:
        """Count a call by its final role; a call made within its own flight has none."""
        if self._counters is not None and seat.flight is not None:
            batch = self._led if seat.leads else self._followed
            batch.append(None)
            if len(batch) >= FOLD:
                self._counters.fold()


@specializable
def coalescing(layer: Coalescing, call: GuardedCall, environment: Any) -> Any:
    """Return *call* with *layer* around it, for calls that are awaited in *environment*, or run on their threads."""
    key_of, ident_of = layer.key_of, environment.ident if ASYNC else get_ident
    lead, join, leave = layer.flights.lead, layer.flights.join, layer.flights.leave

    async def coalesced(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
        if own := _own.get():
            own = tuple([flight for flight in own if flight.leader is not None])  # a task may outlive them
        seat = Seat(ident_of())
        flight = Flight(key_of(*args, **kwargs), seat)
        outcome: Outcome | None = None
        handled = exception()
        try:
            # Set before a flight exists until it is gone: a signal handler may make the same call on this thread, and
            # would wait for the call below it.
            _own.set((*own, flight))
            try:
                met = lead(flight, seat)
            except TypeError:
                refuse_unhashable(layer.name, flight.key)
                raise
            if met is not None:
                turn: Any = environment.new_wait() if ASYNC else Alarm()
                seat.wake = turn.wake if ASYNC else turn.ring
                _own.set((*own, flight, met))  # either may be led here next
                if (not ASYNC and _is_led_here(met, seat)) or not join(flight, seat, own):
                    _own.set(own)  # tasks that the call starts must not keep a flight that never ends
                    return await call(args, kwargs) if ASYNC else call(args, kwargs)
                _own.set((*own, seat.flight))  # type: ignore[arg-type]  # it has joined one
                while not (seat.leads or seat.is_over):
                    await turn.awaitable if ASYNC else clock.sleep(inf, turn)
                if not seat.leads:
                    return _shared(seat)
            try:
                result = await call(args, kwargs) if ASYNC else call(args, kwargs)
                outcome = result, None, None, ()
                return result
            except Exception as failure:
                if not is_outer(failure, handled):
                    outcome = None, failure, failure.__traceback__, links_of(failure, handled)
                raise
        finally:
            try:
                leave(seat, outcome)
                layer.count(seat)
            except BaseException:
                leave(seat, outcome)  # a signal handler may have raised before its first instruction
                raise
            finally:
                _own.set(own)
                del outcome, handled, flight, seat  # the traceback of a failure keeps this frame

    return coalesced


def _is_led_here(flight: Flight, seat: Seat) -> bool:
    """Return whether *seat* would wait for its own thread: for a task of its loop, or a call below a signal handler.

    A follower may lead next. An offloaded call may need the loop that runs here. Greenlets of gevent can wait for each
    other.
    """
    idents = {seat.ident} if loop_here() is None else {seat.ident, 0}
    seats = *list(flight.followers), flight.leader  # in this order: a follower becomes the leader before it leaves
    return hub_here() is None and any(one is not None and one.ident in idents for one in seats)


def _restore(links: Links) -> None:
    for link, context in links:
        BaseException.__setattr__(link, "__context__", context)  # a frozen exception rejects an assignment


def _shared(seat: Seat) -> Any:
    """Return or raise the leader's outcome; traceback and chain stay the same, however many calls raise the failure."""
    outcome: Any = seat.outcome
    result, failure, trace, links = outcome
    if failure is None:
        return result
    try:
        raise failure.with_traceback(trace)
    finally:
        _restore(links)  # else it would link to an exception that a caller handles
        del seat, outcome, failure, trace, links  # the traceback keeps this frame
