"""The connection to one fleet while it is configured: its questions, and the use of its answers (rules F1, F3, F5)."""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from ..._deadline.clock import chance, clock
from ..._deadline.gevent import hub_here, make_hub_here
from ..._deadline.interruption import remaining
from ..._deadline.threads.watchdog import watchdog
from ..._event import FleetLost, FleetRegained, sinks
from ..._log import ERROR, log
from ..._platform.background import aside
from ..._platform.daemon import Daemon
from ..._platform.loop_callback import take, together
from ..._platform.unpatched import native
from ...typing import Timer
from .contact import BATCH, Contact
from .followers import Enrolled, SharedCircuit
from .lent_session import LentSession, Sent, close
from .protocol import ABSENT, FOREIGN, CircuitRecord, Fleet, Poll, Question, Session, TakeTurn, Tell, trial_of

Asked: TypeAlias = tuple[Question | Sent, Tell]

_CONNECTING_SECONDS = 1.0
_START_SECONDS = 1.0
"""The time for which ``configure`` waits if greenlets take the place of threads."""
_POLLS = 3
"""The number of polls after which a process without a read no longer counts."""
_STOP_SECONDS = 1.0
"""The time for which a fork waits for an exchange to end; after it, the thread is abandoned."""


class Line:
    """The common part of fleets that are asked on a thread, and of fleets that are asked at once.

    Args:
        fleet: The fleet.
        circuits: The circuits that follow the fleet.
        now: Returns the current moment.
        process: The name of this process in the fleet.
    """

    def __init__(self, fleet: Fleet, circuits: Enrolled, now: Callable[[], float], process: str) -> None:
        self.fleet = fleet
        self.namespace = fleet.namespace
        self.patience = fleet.patience
        self.processes = 1
        """The number of processes at the last read."""
        self.now = now
        self.contact = Contact(fleet.poll, now())
        self._circuits = circuits
        self._poll = Poll(process, max(1, round(_POLLS * fleet.poll * 1e6)))
        self._known: dict[str, CircuitRecord] = {}
        self._read_at = 0.0
        self._session: Session | None = None
        self._untold: list[None] = [None]
        """Empty while the sinks know that the fleet is lost."""
        self._is_over = False

    @property
    def is_prompt(self) -> bool:
        """Whether the fleet answers within the patience, as far as is known."""
        return self.contact.is_up

    @property
    def is_asking(self) -> bool:
        """Whether a caller waits for an answer."""
        return False

    def ask_here(self, question: TakeTurn, tell: Tell) -> bool:
        """Return whether *question* was asked on the running thread; if not, *tell* is not called."""
        return False

    def leave(self) -> None:
        """Stop, in the child of a fork, without touching what belongs to the parent."""
        self._is_over = True
        self._session = None

    def end(self) -> None:
        """Stop answering: another fleet follows, or none."""
        self._is_over = True
        self.contact.lose("no longer configured", self.now(), chance())
        follow(self._circuits, lambda _: None)

    def welcome(self, circuit: SharedCircuit) -> None:
        """Pass the known record to the new *circuit*; without one, the next read passes it."""
        if self.contact.is_up and self._read_at:
            record = self._known.get(circuit.key, ABSENT)
            passed = round((clock.monotonic() - self._read_at) * 1e6)
            self._follow([circuit], lambda _: record._replace(wait=max(0, record.wait - passed)))

    def strangers(self) -> list[str]:
        """Return the keys of circuits that are open in the fleet and not present in this process."""
        opened = [key for key, record in list(self._known.items()) if self.contact.is_up and record.state == "open"]
        known = {circuit.key for circuit in self._circuits} if opened else ()
        return [key for key in opened if key not in known]

    def _exchange(self, questions: list[Question]) -> list[Any]:
        """Send all *questions* and return the answers; raise the errors of the session."""
        if self._session is None:
            self._session = self._connect()
        answers = list(self._session.exchange(questions))
        if len(answers) != len(questions):
            raise ValueError(f"{len(answers)} answers to {len(questions)} questions")
        return answers

    def _connect(self) -> Session:
        return self.fleet.connect()

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            close(session)

    def _read(self, answer: Any) -> None:
        """Pass the records in *answer* to the circuits."""
        self.processes, self._known, self._read_at = answer.processes, dict(answer.circuits), clock.monotonic()
        self._follow(self._circuits, lambda key: self._known.get(key, ABSENT))

    def _follow(self, circuits: Iterable[SharedCircuit], record_of: Callable[[str], CircuitRecord | None]) -> None:
        if not self._is_over:  # else the circuits already belong to another line
            follow(circuits, record_of)

    def _lose(self, reason: str) -> None:
        """Record the loss of the fleet, on any thread."""
        self.contact.lose(reason, self.now(), chance())
        self._tell_of_loss()

    def _tell_of_loss(self) -> None:
        if not self.contact.is_up and not self._is_over and take(self._untold):
            self.aside(partial(sinks.tell, FleetLost(self.namespace, self.contact.reason)))

    def _regain(self) -> None:
        seconds = self.contact.regain(self.now())
        if not self._untold:
            self.aside(partial(sinks.tell, FleetRegained(self.namespace, seconds)))
            self._untold.append(None)

    def aside(self, function: Callable[[], object]) -> None:
        """Call *function*, which may take its time, and must not raise."""
        aside(function)


def follow(circuits: Iterable[SharedCircuit], record_of: Callable[[str], CircuitRecord | None]) -> None:
    """Pass the fleet's records to *circuits*; ``None`` means that the fleet is lost."""
    now = clock.monotonic()
    for circuit in circuits:
        try:
            circuit.follow(record_of(circuit.key), now)
        except Exception as error:  # the other circuits must get their records
            log(ERROR, "a circuit of the fleet was not notified", error=error)


def reason_of(error: BaseException) -> str:
    """Return the reason for the loss of the fleet, for people."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _answer(tell: Tell, answer: Any) -> None:
    try:
        tell(answer)
    except Exception as error:  # such as a closed loop; the others wait for their answers
        log(ERROR, "an answer of the fleet was not delivered", error=error)


def _drop(asked: list[Asked]) -> None:
    """Notify all callers in *asked* that there is no answer."""
    for question, tell in asked:
        if isinstance(question, Sent):
            close(question.session)
        _answer(tell, None)


def _ignore(_: object) -> None:
    """Do nothing: no caller waits for this answer."""


class ThreadLine(Line):
    """A fleet that one thread asks, with many questions at once."""

    def __init__(self, fleet: Fleet, circuits: Enrolled) -> None:
        super().__init__(fleet, circuits, native.monotonic, uuid4().hex)
        # Reentrant: a signal handler or a finalizer may ask while its thread is in here.
        self._asked: SimpleQueue[Asked | None] = SimpleQueue()
        self._outstanding: dict[int, Tell] = {}
        """The callbacks for the answers under way; a thread that removes a callback calls it."""
        self._trials: dict[str, Question] = {}
        """Additional questions to a lost fleet, by kind: such questions had failed."""
        self._asked_at = 0.0
        """The time when the unanswered questions were sent; 0 without such questions."""
        self._stopping = False
        self._knows_loss = False
        self._daemon = Daemon(self._run, lambda: not self._stopping)
        self._lent = LentSession()
        self._foreign: set[str] = set()
        """Limits whose keys have another type in the server."""

    def begin(self) -> None:
        """Start to ask, at once and beside the caller."""
        self._stopping = False
        self._began = began = native.allocate_lock()
        began.acquire()
        has_hub = make_hub_here()
        self._lent.allow(not has_hub)
        if not self._daemon.start():
            self._lose("no thread can be started here")
        elif has_hub:
            began.acquire(timeout=_START_SECONDS)

    def ask(self, question: Question | Sent, tell: Tell) -> bool:
        """Send *question* with the next batch."""
        if not self.contact.is_up and not isinstance(question, Sent):
            return False
        self._asked.put((question, tell))
        if not self.contact.is_up:
            self._answer_all()  # the thread that noticed the loss may have answered all before
        return True

    def ask_here(self, question: TakeTurn, tell: Tell) -> bool:
        """Send *question* on the running thread, in the session that is lent to calls; return false if there is none.

        A failure decides nothing: the question goes with the next batch, which meets the same trouble.
        """
        session = self._lent.take()
        if session is None:
            return False
        left, at = remaining(), native.monotonic()
        try:
            session.send(question)
            answer = session.receive(self.patience if left is None else min(self.patience, left))
        except BaseException as error:
            self._lent.drop(session)
            if isinstance(error, Exception):
                return False
            raise
        if answer is None:
            return self.ask(Sent(question, session, at), tell)
        self._lent.put_back(session)
        _answer(tell, self._understood(question, answer))
        return True

    @property
    def is_prompt(self) -> bool:
        """Whether the fleet answers within the patience, as far as is known."""
        asked_at = self._asked_at
        return self.contact.is_up and not (asked_at and native.monotonic() - asked_at > self.patience)

    @property
    def is_asking(self) -> bool:
        """Whether a caller waits for an answer."""
        return bool(self._outstanding) or not self._asked.empty() or self._lent.is_out

    def stop(self) -> bool:
        """End the thread and its session; return whether they have ended."""
        self._stopping = True
        self._asked.put(None)
        return self._daemon.is_here or self._daemon.join(_STOP_SECONDS)

    def end(self) -> None:
        """Stop answering. An exchange under way ends by itself."""
        self._stopping = True
        super().end()
        self._answer_all()

    def _answer_all(self) -> None:
        """Notify all waiting callers that the fleet is lost."""
        with together():
            with suppress(KeyError):
                while True:
                    _answer(self._outstanding.popitem()[1], None)
            _drop(self._gathered(0.0, self._asked.qsize()))
        self._asked.put(None)  # the previous wake-up of the thread may just have been removed

    # The thread of the line

    def _run(self) -> None:
        try:
            make_hub_here()
            if self._began.locked():
                self._began.release()
            while not self._stopping:
                try:
                    self._turn(self._gathered(max(0.0, self.contact.due - native.monotonic()), BATCH - 1))
                    if self._lent.is_due() and self.contact.is_up and not self._stopping:
                        self._lend()
                except BaseException as error:  # for example a malformed answer; no other code here handles it
                    log(ERROR, "an answer of the fleet was not understood", error=error)
                    self._fail(error, self.contact.is_up)
        finally:
            self._close()
            hub = hub_here()
            if hub is not None:
                hub.destroy(destroy_loop=True)  # gevent's patched sockets created it

    def _gathered(self, seconds: float, most: int) -> list[Asked]:
        """Return the questions, at most *most*; wait at most *seconds* for the first."""
        gathered: list[Asked | None] = []
        with suppress(Empty):
            gathered.append(self._asked.get(timeout=seconds))
            while len(gathered) < most:
                gathered.append(self._asked.get_nowait())
        return [asked for asked in gathered if asked is not None]

    def _turn(self, asked: list[Asked]) -> None:
        contact = self.contact
        was_up = contact.is_up
        if not was_up:
            _drop(asked)
            asked = []
        reads = contact.due <= native.monotonic()
        if reads:
            asked += [(question, _ignore) for question in (self._poll, *self._trials.values())]
        if asked:
            self._ask_all(asked, was_up, reads)
        if not contact.is_up:
            self._tell_of_loss()
            if not self._knows_loss:
                self._knows_loss = True
                self._follow(self._circuits, lambda _: None)

    def _ask_all(self, asked: list[Asked], was_up: bool, reads: bool) -> None:
        contact = self.contact
        outstanding = self._outstanding = {place: tell for place, (_, tell) in enumerate(asked)}
        if was_up and not contact.is_up:
            self._answer_all()  # a thread that gave up just now may not have seen these
            return
        sent = [question.at for question, _ in asked if isinstance(question, Sent)]
        questions = [question.question if isinstance(question, Sent) else question for question, _ in asked]
        timer = self._hurry() if was_up and self._session is None else None
        self._asked_at = min(sent, default=native.monotonic())
        try:
            answers = self._answers(asked)
        except BaseException as error:  # any error means that there is no answer
            self._trials |= {getattr(question, "kind", ""): trial_of(question) for question in questions}
            self._fail(error, was_up)
            return
        finally:
            self._asked_at = 0.0
            if timer is not None:
                timer.cancel()
        if self._is_over or contact.is_up != was_up:
            return  # a thread gave up in between: all callers were notified
        if not was_up:
            self._regain()
            self._knows_loss = False
            self._trials = {}
        if reads:
            contact.read(native.monotonic(), chance())
            self._lent.end_unused()
        with together():
            for place, answer in enumerate(answers):
                if questions[place] is self._poll:
                    self._read(answer)
                tell = outstanding.pop(place, None)
                if tell is not None:
                    _answer(tell, self._understood(questions[place], answer))

    def _understood(self, question: Question, answer: Any) -> Any:
        """Return *answer*; ``None`` for a foreign key although the fleet is well, which is logged once per limit."""
        if answer != FOREIGN or not isinstance(question, TakeTurn):
            return answer
        if question.key not in self._foreign:
            self._foreign.add(question.key)
            words = "the limit %r is not shared: its key in the fleet %r has another type; delete or rename that key"
            log(ERROR, words, question.key, self.namespace)
        return None

    def _answers(self, asked: list[Asked]) -> list[Any]:
        """Return the answers to *asked*, including the questions that calls have sent before."""
        questions = [question for question, _ in asked if not isinstance(question, Sent)]
        answers = iter(self._exchange(questions) if questions else ())
        return [self._received(one) if isinstance(one, Sent) else next(answers) for one, _ in asked]

    def _received(self, sent: Sent) -> int | None:
        answer = sent.session.receive(None)
        self._lent.put_back(sent.session)
        return answer

    def _lend(self) -> None:
        """Create a session for calls. It may take as long as any other session."""
        timer, self._asked_at = self._hurry(), native.monotonic()
        try:
            self._lent.make(self._connect, self._poll)
        finally:
            self._asked_at = 0.0
            timer.cancel()

    def _close(self) -> None:
        self._lent.end()  # even while a call uses it
        super()._close()

    def _fail(self, error: BaseException, was_up: bool) -> None:
        self._close()
        if was_up:
            self._lose(reason_of(error))
        else:
            self.contact.miss(reason_of(error), native.monotonic(), chance())
        self._answer_all()

    def _hurry(self) -> Timer:
        """Return a timer that abandons the fleet if connecting takes too long, as in a failing look-up of names."""
        return watchdog.call_at(native.monotonic() + max(self.patience, _CONNECTING_SECONDS), self._give_up)

    def _give_up(self) -> None:
        self._lose("no connection in time")
        self._answer_all()  # on this thread: the line's own thread hangs
