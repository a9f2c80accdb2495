"""One fleet for as long as it is configured: who asks it, and what is done with what it says (rules F1, F3 and F5)."""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from .._event import FleetLost, FleetRegained, sinks
from .._log import ERROR, log
from .._strategy.contact import BATCH, Contact
from .._strategy.fleet import (
    ABSENT,
    FOREIGN,
    CircuitRecord,
    Fleet,
    Poll,
    Question,
    Session,
    TakeTurn,
    Tell,
    trial_of,
)
from ..typing import Timer
from .background import aside
from .callback import together
from .clock import chance, clock
from .daemon import Daemon
from .enrolled import Enrolled, SharedCircuit
from .hub import hub_here, make_hub_here
from .interrupting.watchdog import watchdog
from .interruption import remaining
from .lent_session import LentSession, Sent, close
from .native import native

Asked: TypeAlias = tuple[Question | Sent, Tell]

CLOSED = "no longer configured"
"""Why nobody is answered any more; told to nobody."""
_NO_THREADS = "no thread can be started here"
_CONNECTING_SECONDS = 1.0
_START_SECONDS = 1.0
"""How long ``configure`` waits where greenlets stand for threads."""
_POLLS = 3
"""A process that has read nothing for so many polls is not there any more."""
_STOP_SECONDS = 1.0
"""How long a fork waits for an exchange to end; the thread is left alone after that."""


def _ignore(_: object) -> None:
    """Be told something that nobody asked for."""


class Line:
    """What is common to fleets that are asked on a thread, and to those that are asked at once.

    Args:
        fleet: The fleet.
        circuits: Those that are told what it says.
    """

    def __init__(self, fleet: Fleet, circuits: Enrolled) -> None:
        self.fleet = fleet
        self.namespace = fleet.namespace
        self.patience = fleet.patience
        self.processes = 1
        """How many there were when the fleet was read last."""
        self._circuits = circuits
        self._known: dict[str, CircuitRecord] = {}
        self._read_at = 0.0
        self._session: Session | None = None
        self._untold: list[None] = [None]
        """Empty while sinks know that it is lost."""
        self._is_over = False

    contact: Contact

    @property
    def is_up(self) -> bool:
        """Whether the fleet answers, as far as is known."""
        return self.contact.is_up

    @property
    def is_prompt(self) -> bool:
        """Whether it answers within the patience, as far as is known."""
        return self.contact.is_up

    def ask_here(self, question: TakeTurn, tell: Tell) -> bool:
        """Return whether *question* was asked on the running thread; where not, nothing is told."""
        return False

    def leave(self) -> None:
        """Do nothing any more, in the child of a fork; what is the parent's stays as it is."""
        self._is_over = True
        self._session = None

    # What is heard

    def _exchange(self, questions: list[Question]) -> list[Any]:
        """Ask all *questions*; raises what the session raises."""
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

    def _hear(self, question: Question, answer: Any) -> None:
        """Tell the circuits what they are to know of *answer*."""
        if isinstance(question, TakeTurn):
            return
        now = clock.monotonic()
        if isinstance(question, Poll):
            self.processes, self._known, self._read_at = answer.processes, dict(answer.circuits), now
            for circuit in self._circuits:
                self._follow(circuit, self._known.get(circuit.key, ABSENT), now)
        else:
            self._known[question.key] = answer
            for circuit in self._circuits.of(question.key):
                self._follow(circuit, answer, now)

    def _welcome(self, circuit: SharedCircuit) -> None:
        """Tell *circuit*, which has just come, what is known."""
        now = clock.monotonic()
        record = self._known.get(circuit.key, ABSENT)
        passed = int((now - self._read_at) * 1e6)
        self._follow(circuit, record._replace(wait=max(0, record.wait - passed)), now)

    def strangers(self) -> list[str]:
        """Give the keys of circuits that are not closed in the fleet, and of which nobody here has heard."""
        if not self.contact.is_up:
            return []
        known = list(self._known.items())
        return [key for key, record in known if record.state != "closed" and not any(self._circuits.of(key))]

    def _follow(self, circuit: SharedCircuit, record: CircuitRecord | None, now: float) -> None:
        if not self._is_over:  # else they are another one's by now
            follow(circuit, record, now)

    def _tell_circuits_of_loss(self) -> None:
        now = clock.monotonic()
        for circuit in self._circuits:
            self._follow(circuit, None, now)

    # Lost and found

    def _lose(self, reason: str) -> None:
        """Take the fleet for lost, on any thread."""
        self.contact.lose(reason, self._now(), chance())
        self._tell_of_loss()

    def _tell_of_loss(self) -> None:
        if self._untold and not self.contact.is_up and not self._is_over:
            try:
                self._untold.pop()
            except IndexError:
                return  # another thread was faster
            self.aside(partial(sinks.tell, FleetLost(self.namespace, self.contact.reason)))

    def _regain(self) -> None:
        seconds = self.contact.regain(self._now())
        if not self._untold:
            self.aside(partial(sinks.tell, FleetRegained(self.namespace, seconds)))
            self._untold.append(None)

    def _now(self) -> float:
        return native.monotonic()

    def aside(self, function: Callable[[], object]) -> None:
        """Call *function*, which may take its time, and must not raise."""
        aside(function)


def follow(circuit: SharedCircuit, record: CircuitRecord | None, now: float) -> None:
    """Tell *circuit* what the fleet has; ``None``: it is lost."""
    try:
        circuit.follow(record, now)
    except Exception as error:  # the others have to hear of theirs
        log(ERROR, "a circuit of the fleet was not told", error=error)


def reason_of(error: BaseException) -> str:
    """Say why the fleet is lost, for people."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _kind_of(question: Question) -> str:
    return question.kind if isinstance(question, TakeTurn) else ""


def _drop(question: Question | Sent, tell: Tell) -> None:
    """Tell who has asked *question* that there is no answer."""
    if isinstance(question, Sent):
        close(question.session)
    _answer(tell, None)


def _answer(tell: Tell, answer: Any) -> None:
    try:
        tell(answer)
    except Exception as error:  # such as a loop that was closed; the others wait for theirs
        log(ERROR, "an answer of the fleet was not taken", error=error)


class ThreadLine(Line):
    """A fleet that is asked by one thread, many questions at once."""

    def __init__(self, fleet: Fleet, circuits: Enrolled) -> None:
        super().__init__(fleet, circuits)
        self.contact = Contact(fleet.poll, native.monotonic())
        # Reentrant: a signal handler or a finalizer may ask while its thread is in here.
        self._asked: SimpleQueue[Asked | None] = SimpleQueue()
        self._outstanding: dict[int, Tell] = {}
        """Who waits for the answers of what is being asked; whoever takes one out tells it."""
        self._trials: dict[str, Question] = {}
        """What a lost fleet is asked beside, by kind: it was lost by such questions."""
        self._asked_at = 0.0
        """When the questions were sent of which no answer has come; 0: there are none."""
        self._poll = Poll(uuid4().hex, max(1, round(_POLLS * fleet.poll * 1e6)))
        self._stopping = False
        self._knows_loss = False
        self._daemon = Daemon(self._run, lambda: not self._stopping)
        self._lent = LentSession()
        self._foreign: set[str] = set()
        """Limits whose keys have another type in the server."""

    def begin(self) -> None:
        """Begin to ask, at once and beside the caller."""
        self._stopping = False
        self._began = began = native.allocate_lock()
        began.acquire()
        has_hub = make_hub_here()
        self._lent.allow(not has_hub)
        if not self._daemon.start():
            self._lose(_NO_THREADS)
        elif has_hub:
            began.acquire(timeout=_START_SECONDS)

    def ask(self, question: Question, tell: Tell) -> bool:
        """Ask *question* with the next batch."""
        if not self.contact.is_up:
            return False
        self._asked.put((question, tell))
        if not self.is_up:
            self._answer_all()  # whoever has found out meanwhile may have been here before
        return True

    def ask_here(self, question: TakeTurn, tell: Tell) -> bool:
        """Ask *question* on the running thread, in the session that is lent to calls; false: it is not there.

        A failure decides nothing: the question goes with the next batch, which meets the same.
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
        if answer is not None:
            self._lent.put_back(session)
            _answer(tell, self._understood(question, answer))
            return True
        self._asked.put((Sent(question, session, at), tell))
        if not self.is_up:
            self._answer_all()
        return True

    @property
    def is_prompt(self) -> bool:
        """Whether it answers within the patience, as far as is known."""
        asked_at = self._asked_at
        return self.contact.is_up and not (asked_at and native.monotonic() - asked_at > self.patience)

    def welcome(self, circuit: SharedCircuit) -> None:
        """Tell *circuit*, which has just come, what is known."""
        if self.contact.is_up and self._read_at:  # else it hears of everything as soon as that is so
            self._welcome(circuit)

    @property
    def is_asking(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._outstanding) or not self._asked.empty() or self._lent.is_out

    def stop(self) -> bool:
        """End the thread and its session; tell whether they are gone."""
        self._stopping = True
        self._asked.put(None)
        return self._daemon.is_here or self._daemon.join(_STOP_SECONDS)

    def end(self) -> None:
        """Answer nobody any more: another fleet comes, or none. What is being asked ends by itself."""
        self._is_over = self._stopping = True
        self._lose(CLOSED)
        self._answer_all()

    def _answer_all(self) -> None:
        """Tell everybody who waits that the fleet is lost."""
        with together():
            while True:
                try:
                    _, tell = self._outstanding.popitem()
                except KeyError:
                    break
                _answer(tell, None)
            for question, tell in self._gathered(None):
                _drop(question, tell)
        self._asked.put(None)  # what would have woken the thread may have been taken just now

    # Its thread

    def _run(self) -> None:
        try:
            make_hub_here()
            if self._began.locked():
                self._began.release()
            while not self._stopping:
                try:
                    self._turn(self._gather())
                    if self._lent.is_due() and self.is_up and not self._stopping:
                        self._lend()
                except BaseException as error:  # an answer that is none, say; nobody else is on this thread
                    log(ERROR, "what the fleet said was not understood", error=error)
                    self._fail(error, self.is_up)
        finally:
            self._close()
            hub = hub_here()
            if hub is not None:
                hub.destroy(destroy_loop=True)  # it came with the sockets, which gevent has patched

    def _gather(self) -> list[Asked]:
        """Wait for the next question, or until something is due; give what there is."""
        try:
            first = self._asked.get(timeout=max(0.0, self.contact.due - native.monotonic()))
        except Empty:
            return []
        return self._gathered(BATCH - 2, *((first,) if first is not None else ()))

    def _gathered(self, most: int | None, *first: Asked) -> list[Asked]:
        gathered = list(first)
        for _ in range(self._asked.qsize() if most is None else min(most, self._asked.qsize())):
            try:
                asked = self._asked.get_nowait()
            except Empty:
                break  # somebody who has given up has taken them
            if asked is not None:
                gathered.append(asked)
        return gathered

    def _turn(self, asked: list[Asked]) -> None:
        contact, now = self.contact, native.monotonic()
        was_up = contact.is_up
        if not was_up:
            for question, tell in asked:
                _drop(question, tell)
            asked = []
        reads = contact.due <= now
        if reads:
            asked.append((self._poll, _ignore))
            asked += [(question, _ignore) for question in self._trials.values()]
        if asked:
            self._ask_all(asked, was_up, reads)
        if not contact.is_up:
            self._tell_of_loss()
            if not self._knows_loss:
                self._knows_loss = True
                self._tell_circuits_of_loss()

    def _ask_all(self, asked: list[Asked], was_up: bool, reads: bool) -> None:
        contact = self.contact
        outstanding = self._outstanding = {place: tell for place, (_, tell) in enumerate(asked)}
        if was_up and not self.is_up:
            self._answer_all()  # who gave up a moment ago may not have seen these
            return
        sent = {place: question for place, (question, _) in enumerate(asked) if isinstance(question, Sent)}
        questions = [question.question if isinstance(question, Sent) else question for question, _ in asked]
        timer = self._hurry() if was_up and self._session is None else None
        self._asked_at = min((one.at for one in sent.values()), default=native.monotonic())
        try:
            answers = self._answers(questions, sent)
        except BaseException as error:  # whatever it is, there is no answer
            self._trials |= {_kind_of(question): trial_of(question) for question in questions}
            self._fail(error, was_up)
            return
        finally:
            self._asked_at = 0.0
            if timer is not None:
                timer.cancel()
        if self._is_over or contact.is_up != was_up:
            return  # somebody has given up meanwhile: all were told
        if not was_up:
            self._regain()
            self._knows_loss = False
            self._trials = {}
        if reads:
            contact.read(native.monotonic(), chance())
            self._lent.end_unused()
        with together():
            for place, answer in enumerate(answers):
                if type(answer) is not int:
                    self._hear(questions[place], answer)
                tell = outstanding.pop(place, None)
                if tell is not None:
                    _answer(tell, self._understood(questions[place], answer))

    def _understood(self, question: Question, answer: Any) -> Any:
        """Return *answer*, or ``None`` where *question* has none although the fleet is well: log that once a limit."""
        if answer != FOREIGN or not isinstance(question, TakeTurn):
            return answer
        if question.key not in self._foreign:
            self._foreign.add(question.key)
            words = "the limit %r is not shared: its key in the fleet %r has another type; delete or rename that key"
            log(ERROR, words, question.key, self.namespace)
        return None

    def _answers(self, questions: list[Question], sent: dict[int, Sent]) -> list[Any]:
        """Return the answers to *questions*; some were *sent* before, by their places."""
        late: dict[int, Any] = {}
        for place, one in sent.items():
            late[place] = one.session.receive(None)
            self._lent.put_back(one.session)
        rest = [question for place, question in enumerate(questions) if place not in late]
        answers = iter(self._exchange(rest) if rest else ())
        return [late[place] if place in late else next(answers) for place in range(len(questions))]

    def _lend(self) -> None:
        """Make a session for calls. It may take as long as any that is made."""
        timer, self._asked_at = self._hurry(), native.monotonic()
        try:
            self._lent.make(self._connect, self._poll)
        finally:
            self._asked_at = 0.0
            timer.cancel()

    def _close(self) -> None:
        self._lent.end()  # also while a call uses it
        super()._close()

    def _fail(self, error: BaseException, was_up: bool) -> None:
        self._close()
        if was_up:
            self._lose(reason_of(error))
        else:
            self.contact.miss(reason_of(error), native.monotonic(), chance())
        self._answer_all()

    def _hurry(self) -> Timer:
        """Give the fleet up if it takes too long to connect, as where names are looked up in vain."""
        return watchdog.call_at(native.monotonic() + max(self.patience, _CONNECTING_SECONDS), self._give_up)

    def _give_up(self) -> None:
        self._lose("no connection in time")
        self._answer_all()  # here: its own thread hangs
