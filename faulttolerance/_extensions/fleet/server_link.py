"""The connection to one fleet while it is configured: its requests, and the use of its answers (rules F1, F3, F5)."""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from ..._deadline.clock import chance, clock
from ..._deadline.gevent import make_hub_here
from ..._deadline.interruption import remaining
from ..._deadline.threads.watchdog import watchdog
from ..._event import FleetLost, FleetRegained, sinks
from ..._log import ERROR, log
from ..._platform.background import aside
from ..._platform.daemon import Daemon
from ..._platform.greenlets import hub_here
from ..._platform.loop_callback import together
from ..._platform.unpatched import native
from ..._shown import error_text
from ...typing import Timer
from .health import MAX_BATCH, FleetHealth
from .protocol import (
    ABSENT,
    CircuitFollower,
    CircuitRecord,
    Fleet,
    Link,
    OnResponse,
    PollRequest,
    Request,
    Session,
    TurnRequest,
    trial_of,
)
from .session_pool import SessionPool, close

PendingRequest: TypeAlias = tuple[Request, OnResponse]
Circuits: TypeAlias = Callable[[], list[CircuitFollower]]

_CONNECTING_SECONDS = 1.0
_START_SECONDS = 1.0
"""The time for which ``configure`` waits if greenlets take the place of threads."""
_POLLS = 3
"""The number of polls after which a process without a read no longer counts."""
_STOP_SECONDS = 1.0
"""The time for which a fork waits for an exchange to end; after it, the thread is abandoned."""


class ServerLink(Link):
    """The common part of fleets that are asked on a thread, and of fleets that are asked at once.

    Args:
        fleet: The fleet.
        circuits: Returns the circuits that follow the fleet.
        now: Returns the current moment.
        process: The name of this process in the fleet.
    """

    def __init__(self, fleet: Fleet, circuits: Circuits, now: Callable[[], float], process: str) -> None:
        self.fleet = fleet
        self._namespace = fleet.namespace
        self._connect: Callable[[], Session] = fleet.connect
        self.patience = fleet.patience
        self.processes = 1
        self._now = now
        self.health = FleetHealth(fleet.poll, now())
        self._circuits = circuits
        self._poll = PollRequest(process, max(1, round(_POLLS * fleet.poll * 1e6)))
        self._records: dict[str, CircuitRecord] = {}
        self._read_at = 0.0
        self._sent_at = 0.0
        """The time when the unanswered requests were sent; 0 without such requests."""
        self._session: Session | None = None
        self._is_closed = False

    @property
    def is_prompt(self) -> bool:
        """Whether the fleet answers within the patience, as far as is known."""
        sent_at = self._sent_at
        return self.health.is_up and not (sent_at and self._now() - sent_at > self.patience)

    def send_for(self, circuit: CircuitFollower, request: Request, on_response: OnResponse) -> bool:
        """Send *request* soon; its answer is passed to *circuit*, then to *on_response*; false: decide alone."""

        def answered(record: CircuitRecord | None) -> None:
            if record is not None:
                circuit.follow(record, clock.monotonic())
            on_response(record)

        return self.send(request, answered)

    def abandon(self) -> None:
        """Stop, in the child of a fork, without touching what belongs to the parent."""
        self._is_closed = True
        self._session = None

    def shut_down(self) -> None:
        """Stop answering: another fleet follows, or none."""
        self._is_closed = True
        self.health.record_loss("no longer configured", self._now(), chance())
        _apply_records(self._circuits(), lambda _: None)

    def initialize(self, circuit: CircuitFollower) -> None:
        """Pass the known record to the new *circuit*; without one, the next read passes it."""
        if self.health.is_up and self._read_at:
            record = self._records.get(circuit.key, ABSENT)
            passed = round((clock.monotonic() - self._read_at) * 1e6)
            _apply_records([circuit], lambda _: record._replace(wait=max(0, record.wait - passed)))

    @property
    def description(self) -> str:
        """The condition of fleet-wide state, in words."""
        return f"local: {problem}" if (problem := self.problem) else f"shared in {self._namespace!r}"

    @property
    def problem(self) -> str:
        """The trouble with the fleet; empty without trouble."""
        if self.health.is_up:
            return ""
        seconds = max(0.0, self._now() - self.health.since)
        kind = self.health.reason.partition(":")[0]  # without its message: anybody may read a readiness probe
        return f"the fleet {self._namespace!r} has been lost for {seconds:.1f} s, because of {kind}"

    def read(self) -> Iterable[tuple[tuple[str, ...], float]]:
        """Return the values of the gauge ``ft.fleet.up``."""
        return [((self._namespace,), float(self.health.is_up))]

    def open_elsewhere(self) -> list[str]:
        """Return the keys of circuits that are open in the fleet and do not exist in this process."""
        opened = [key for key, record in list(self._records.items()) if self.health.is_up and record.state == "open"]
        known = {circuit.key for circuit in self._circuits()} if opened else ()
        return [key for key in opened if key not in known]

    def _exchange(self, requests: list[Request]) -> list[Any]:
        """Send all *requests* and return the answers; raise the errors of the session."""
        if self._session is None:
            self._session = self._connect()
        responses = list(self._session.exchange(requests))
        if len(responses) != len(requests):
            raise ValueError(f"{len(responses)} answers to {len(requests)} questions")
        return responses

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            close(session)

    def _read(self, response: Any) -> None:
        """Pass the records in *response* to the circuits."""
        self.processes, self._records, self._read_at = response.processes, dict(response.circuits), clock.monotonic()
        if not self._is_closed:  # else the circuits already belong to another link
            _apply_records(self._circuits(), lambda key: self._records.get(key, ABSENT))

    def _lose(self, reason: str) -> None:
        """Record that the fleet does not answer, on any thread; report its loss unless that is known."""
        if self.health.record_loss(reason, self._now(), chance()):
            _apply_records(self._circuits(), lambda _: None)
            react(self.fleet, partial(sinks.send, FleetLost(self._namespace, reason)))

    def _regain(self) -> None:
        seconds = self.health.record_recovery(self._now())
        react(self.fleet, partial(sinks.send, FleetRegained(self._namespace, seconds)))


def react(fleet: Fleet | None, function: Callable[[], object]) -> None:
    """Call *function*, which may take its time and must not raise, where no answer of *fleet* has to wait for it."""
    if fleet is not None and fleet.is_immediate:
        function()  # no other call waits for this thread
    else:
        aside(function)


def _apply_records(circuits: list[CircuitFollower], record_of: Callable[[str], CircuitRecord | None]) -> None:
    """Pass the fleet's records to *circuits*; ``None`` means that the fleet is lost."""
    now = clock.monotonic()
    for circuit in circuits:
        try:
            circuit.follow(record_of(circuit.key), now)
        except Exception as error:  # the other circuits must get their records
            log(ERROR, "a circuit of the fleet was not notified", error=error)


def _notify(on_response: OnResponse, response: Any) -> None:
    try:
        on_response(response)
    except Exception as error:  # such as a closed loop; the others wait for their answers
        log(ERROR, "an answer of the fleet was not delivered", error=error)


class ThreadedLink(ServerLink):
    """A fleet that one thread asks, with many requests at once."""

    def __init__(self, fleet: Fleet, circuits: Circuits) -> None:
        super().__init__(fleet, circuits, native.monotonic, uuid4().hex)
        # Reentrant: a signal handler or a finalizer may ask while its thread is in here.
        self._queue: SimpleQueue[PendingRequest | None] = SimpleQueue()
        self._outstanding: dict[int, OnResponse] = {}
        """The callbacks for the answers under way; a thread that removes a callback calls it."""
        self._trial_requests: dict[str, Request] = {}
        """Additional requests to a lost fleet, by kind: such requests had failed."""
        self._stopping = False
        self._daemon = Daemon(self._run, self._is_wanted)
        self._session_pool = SessionPool()

    def start(self) -> None:
        """Start to ask, at once and beside the caller."""
        self._stopping = False
        self._started = started = native.allocate_lock()
        started.acquire()
        has_hub = make_hub_here()
        self._session_pool.allow(not has_hub)
        if not self._daemon.start():
            self._lose("no thread can be started here")
        elif has_hub:
            started.acquire(timeout=_START_SECONDS)

    def send(self, request: Request, on_response: OnResponse) -> bool:
        """Send *request* with the next batch."""
        was_up = self.health.is_up
        if was_up:
            self._queue.put((request, on_response))
            if not self.health.is_up:
                self._fail_outstanding()  # the thread that noticed the loss may have answered all before
        return was_up

    def send_here(self, request: TurnRequest, on_response: OnResponse) -> bool:
        """Send *request* on the running thread, in the session that is lent to calls; return false if there is none.

        A failure decides nothing: the request goes with the next batch, which meets the same trouble. So does a request
        whose answer is late, because another request must not get that answer.
        """
        session = self._session_pool.acquire()
        if session is None:
            return False
        left, at = remaining(), native.monotonic()
        try:
            response = session.ask(request, self.patience if left is None else min(self.patience, left))
        except BaseException as error:
            self._session_pool.discard(session)
            if isinstance(error, Exception):
                return False
            raise
        if response is None:
            self._session_pool.discard(session)
            self._sent_at = self._sent_at or at
            return self.send(request, on_response)
        self._session_pool.release(session)
        _notify(on_response, response)
        return True

    @property
    def has_pending_requests(self) -> bool:
        """Whether a caller waits for an answer."""
        return bool(self._outstanding) or not self._queue.empty() or self._session_pool.is_in_use

    def stop(self) -> None:
        """End the thread and its session before a fork, so that the two processes never share a session."""
        self._stopping = True
        self._queue.put(None)
        if not self._daemon.is_here:
            self._daemon.join(_STOP_SECONDS)

    def shut_down(self) -> None:
        """Stop answering. An exchange under way ends by itself."""
        super().shut_down()
        self._fail_outstanding()

    def _fail_outstanding(self) -> None:
        """Notify all waiting callers that the fleet is lost."""
        with together():
            with suppress(KeyError):
                while True:
                    _notify(self._outstanding.popitem()[1], None)
            for _, on_response in self._collect(0.0, self._queue.qsize()):
                _notify(on_response, None)
        self._queue.put(None)  # the previous wake-up of the thread may just have been removed

    # The thread of the link

    def _is_wanted(self) -> bool:
        # Another thread may shut down the link before it is started, which sets ``_stopping`` to false.
        return not (self._stopping or self._is_closed)

    def _run(self) -> None:
        try:
            make_hub_here()
            if self._started.locked():
                self._started.release()
            while self._is_wanted():
                try:
                    seconds = max(0.0, self.health.next_read_at - native.monotonic())
                    self._run_once(self._collect(seconds, MAX_BATCH - 1))
                    if self._session_pool.needs_session() and self.health.is_up and self._is_wanted():
                        self._fill_pool()
                except BaseException as error:  # for example a malformed answer; no other code here handles it
                    log(ERROR, "an answer of the fleet was not understood", error=error)
                    self._fail(error)
        finally:
            self._close()
            hub = hub_here()
            if hub is not None:
                hub.destroy(destroy_loop=True)  # gevent's patched sockets created it

    def _collect(self, seconds: float, at_most: int) -> list[PendingRequest]:
        """Return the requests, at most *at_most*; wait at most *seconds* for the first."""
        collected: list[PendingRequest | None] = []
        with suppress(Empty):
            collected.append(self._queue.get(timeout=seconds))
            while len(collected) < at_most:
                collected.append(self._queue.get_nowait())
        return [pending for pending in collected if pending is not None]

    def _run_once(self, pending: list[PendingRequest]) -> None:
        requests = [request for request, _ in pending]
        self._outstanding = {index: on_response for index, (_, on_response) in enumerate(pending)}
        was_up = self.health.is_up  # only now: a thread that gives up later sees the outstanding requests
        if pending and not was_up:
            self._fail_outstanding()
            requests = []
        reads = self.health.next_read_at <= native.monotonic()
        if reads:
            requests += [self._poll, *self._trial_requests.values()]
        if requests:
            self._send_all(requests, was_up, reads)

    def _send_all(self, requests: list[Request], was_up: bool, reads: bool) -> None:
        health, outstanding = self.health, self._outstanding
        timer = self._start_connect_timer() if was_up and self._session is None else None
        self._sent_at = self._sent_at or native.monotonic()
        try:
            responses = self._exchange(requests)
        except BaseException as error:  # any error means that there is no answer
            self._trial_requests |= {getattr(request, "kind", ""): trial_of(request) for request in requests}
            self._fail(error)
            return
        finally:
            self._sent_at = 0.0
            if timer is not None:
                timer.cancel()
        if self._is_closed or health.is_up != was_up:
            self._fail_outstanding()  # the thread that gave up may not have notified all callers yet
            return
        if not was_up:
            self._regain()
            self._trial_requests = {}
        if reads:
            health.record_read(native.monotonic(), chance())
            self._session_pool.close_unused()
        with together():
            for index, response in enumerate(responses):
                if requests[index] is self._poll:
                    self._read(response)
                on_response = outstanding.pop(index, None)
                if on_response is not None:
                    _notify(on_response, response)

    def _fill_pool(self) -> None:
        """Create a session for calls. It may take as long as any other session."""
        timer, self._sent_at = self._start_connect_timer(), native.monotonic()
        try:
            self._session_pool.create(self._connect, self._poll)
        finally:
            self._sent_at = 0.0
            timer.cancel()

    def _close(self) -> None:
        self._session_pool.close_session()  # even while a call uses it
        super()._close()

    def _fail(self, error: BaseException) -> None:
        self._close()
        self._lose(error_text(error))
        self._fail_outstanding()

    def _start_connect_timer(self) -> Timer:
        """Return a timer that abandons the fleet if connecting takes too long, as in a failing look-up of names."""
        return watchdog.call_at(native.monotonic() + max(self.patience, _CONNECTING_SECONDS), self._give_up)  # pyright: ignore[reportReturnType]

    def _give_up(self) -> None:
        self._lose("no connection in time")
        self._fail_outstanding()  # on this thread: the link's own thread hangs
