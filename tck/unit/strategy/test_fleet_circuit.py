"""The circuit of a fleet: random histories of several processes and one server, and each decision by itself.

The server is the one that keeps a fleet in memory; processes are a breaker with its gate and what they share, asked and
told by hand: questions reach the server late, answers come late or never, in the order in which they were sent.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from faulttolerance import CircuitBreakerOpenException
from faulttolerance._fleet.memory import Memory
from faulttolerance._strategy.circuit_breaker import CLOSED, HALF_OPEN, OPEN, CircuitBreaker
from faulttolerance._strategy.fleet import ABSENT, EndProbe, LeaseProbe, OpenCircuit, Question, ReadCircuits, Tell
from faulttolerance._strategy.fleet_circuit import FleetGate, SharedCircuit
from faulttolerance._strategy.gate import Era
from faulttolerance._strategy.verdict import FAILURE, NEUTRAL, SUCCESS, Verdict

POLL, TICK, PATIENCE = 1.0, 0.3, 0.05


class World:
    """The server, the time, and the processes."""

    def __init__(self, processes: int = 2, *, latency: float = 0.0, delay: float = 5.0, **values: Any) -> None:
        self.now = 1000.0
        self.ahead = 1_000_000.0
        self.server = Memory()
        self.latency = latency
        self.names = map(str, itertools.count())
        self.values = {"delay": delay, "request_volume_threshold": 2, "failure_ratio": 0.5, "success_threshold": 1}
        self.values |= values
        self.processes = [Process(self) for _ in range(processes)]
        for process in self.processes:
            process.read()

    def exchange(self, question: Question) -> Any:
        return self.server.exchange([question], round((self.now + self.ahead) * 1e6))[0]

    def advance(self, seconds: float) -> None:
        """Let time pass, and happen what is due meanwhile."""
        end = self.now + seconds
        while True:
            due = min((process.due for process in self.processes), default=end)
            if due > end:
                break
            self.now = max(self.now, due)
            for process in self.processes:
                process.work()
        self.now = end

    @property
    def record(self) -> Any:
        return self.exchange(ReadCircuits()).get("key", ABSENT)

    @property
    def states(self) -> list[str]:
        return [process.breaker.state_name(self.now) for process in self.processes]


class Process:
    """One process of a fleet, and its way to the server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.patience = PATIENCE
        self.is_up = True
        self.asked: deque[tuple[float, Question, Tell]] = deque()
        self.answered: deque[tuple[float, Question, Any, Tell]] = deque()
        self.next_read = world.now + POLL
        self.next_tick = world.now + TICK
        self.sent: list[Question] = []
        self.breaker = CircuitBreaker("name", **world.values, now=world.now)
        self.moves: list[tuple[str, str, str]] = []
        self.circuit = SharedCircuit("key", self.breaker, self, lambda: next(world.names), self.deliver)
        self.gate = FleetGate(self.breaker, self.circuit)
        self.running: dict[object, tuple[Era, float, bool]] = {}
        """By attempt: its era, when it began, and whether the fleet knows of it."""

    def deliver(self, breaker: CircuitBreaker) -> None:
        breaker.deliver(lambda *move: self.moves.append(move))

    # The way to the server

    def ask(self, question: Question, tell: Tell) -> bool:
        if not self.is_up:
            return False
        self.sent.append(question)
        if self.world.latency:
            self.asked.append((self.world.now + self.world.latency / 2, question, tell))
        else:
            self.hear(question, self.world.exchange(question), tell)
        return True

    def give_up(self) -> None:
        self.lose()

    def hear(self, question: Question, answer: Any, tell: Tell) -> None:
        if isinstance(question, ReadCircuits):
            answer = answer.get("key", ABSENT)
        self.circuit.follow(getattr(answer, "circuit", answer), self.world.now)
        tell(answer)

    @property
    def due(self) -> float:
        return min(
            self.next_read,
            self.next_tick,
            *(first[0] for first in itertools.islice(self.asked, 1)),
            *(first[0] for first in itertools.islice(self.answered, 1)),
        )

    def work(self) -> None:
        now, world = self.world.now, self.world
        while self.asked and self.asked[0][0] <= now:
            _, question, tell = self.asked.popleft()
            self.answered.append((now + world.latency / 2, question, world.exchange(question), tell))
        while self.answered and self.answered[0][0] <= now:
            self.hear(*self.answered.popleft()[1:])
        if self.next_read <= now:
            self.next_read = now + POLL
            self.read()
        if self.next_tick <= now:
            self.next_tick = now + TICK
            if self.is_up:
                for question, tell in self.circuit.renewals(now):
                    self.ask(question, tell)

    def read(self) -> None:
        self.ask(ReadCircuits(), lambda _: None)

    def lose(self, arrives: bool = False) -> None:
        """Lose the fleet; *arrives*: what was sent reaches the server all the same."""
        self.is_up = False
        lost = [tell for *_, tell in (*self.answered, *self.asked)]
        if arrives:
            for _, question, _ in self.asked:
                self.world.exchange(question)
        self.asked.clear()
        self.answered.clear()
        for tell in lost:
            tell(None)
        self.circuit.follow(None, self.world.now)

    def regain(self) -> None:
        if not self.is_up:
            self.is_up = True
            self.read()

    # Calls

    def begin(self) -> object | None:
        """Begin a call; ``None``: it is refused."""
        me, now = object(), self.world.now
        era = self.gate.state
        is_leased = False
        if not era.is_closed:
            if now < era.until:
                return None
            try:
                before = len(self.circuit._probes)
                era = self.gate.admit(me, 1, now)
                is_leased = len(self.circuit._probes) > before
            except CircuitBreakerOpenException:
                return None
        self.running[me] = era, now, is_leased
        return me

    def end(self, me: object, verdict: Verdict) -> None:
        era, _, _ = self.running.pop(me)
        if not (era.is_clean if verdict is SUCCESS else verdict is NEUTRAL and era.is_closed):
            self.gate.settle(era, me, verdict, self.world.now, "OSError" if verdict is FAILURE else "")
        self.deliver(self.breaker)

    def call(self, verdict: Verdict = SUCCESS) -> bool:
        """Make a call that takes no time; false: it is refused."""
        me = self.begin()
        if me is not None:
            self.end(me, verdict)
        return me is not None

    def fail(self) -> None:
        """Open the circuit here, if it is closed."""
        for _ in range(2):
            self.call(FAILURE)


def opened(*, after: float = 5.0, **values: Any) -> World:
    """A fleet whose circuit was opened by its first process, and everybody knows."""
    world = World(**values)
    world.processes[0].fail()
    world.advance(after)
    return world


# F3


def test_what_one_process_opens_is_open_in_all_within_poll() -> None:
    """By rule F3: it writes that, and the others read it; the delay counts at the server."""
    world = World(3, latency=0.01)
    world.processes[0].fail()
    world.advance(POLL + 0.02)

    assert world.states == [OPEN] * 3
    assert [process.call() for process in world.processes] == [False] * 3
    assert [move[:2] for move in world.processes[2].moves] == [(CLOSED, OPEN)]
    assert "last OSError" in world.processes[2].moves[0][2]
    assert [round(process.breaker.state.until - 1005.0, 1) for process in world.processes] == [0.0] * 3


def test_closed_and_open_circuits_ask_nobody() -> None:
    """By rule F3: a second of calls sends nothing but that the circuit has opened."""
    world = World()
    one, other = world.processes
    for process in world.processes:
        process.sent.clear()
        for _ in range(100):
            process.call()
    one.fail()
    for _ in range(100):
        one.call()

    assert [type(question) for question in one.sent] == [OpenCircuit]
    assert other.sent == []


def test_two_that_open_at_once_are_one_opening() -> None:
    """By rule F3: the second one is fenced off by the version that it has seen, and follows."""
    world = World(latency=0.02)
    for process in world.processes:
        process.fail()
    version = None
    for _ in range(4):
        world.advance(0.5)
        version = version or world.record.version
        assert world.record.version == version

    assert world.states == [OPEN, OPEN]
    assert world.record.reopened == 0


def test_an_opening_that_was_overtaken_yields_to_what_is_newer() -> None:
    """By rule F3: the fleet's circuit has opened and closed meanwhile."""
    world = World(latency=0.02)
    one = world.processes[0]
    world.advance(0.1)
    world.server.move("key", round((world.now + world.ahead) * 1e6), None)
    one.fail()
    world.advance(0.03)

    assert world.states[0] == CLOSED
    assert world.record.state == CLOSED


def test_an_emptied_server_hears_again_what_is_open() -> None:
    """By rule F3: what is open somewhere is open again for all, with what is left of its delay."""
    world = opened(after=2.0)
    before = world.record.version
    world.server.forget()
    world.advance(POLL)

    assert world.record.state == OPEN
    assert world.record.version > before
    assert world.record.wait <= 3_000_000
    assert world.states == [OPEN, OPEN]


def test_a_server_that_has_lost_what_it_knew_is_believed_at_the_second_time() -> None:
    """By rule F3: an older version may be an answer that came late; the same one again is not."""
    world = opened(after=2.0)
    one = world.processes[0]
    older = world.record._replace(version=world.record.version - 1, state=CLOSED, wait=0)
    one.circuit.follow(older, world.now)
    assert one.breaker.state_name(world.now) == OPEN

    one.circuit.follow(older, world.now)

    assert one.breaker.state_name(world.now) == CLOSED


def test_without_a_gate_that_obeys_it_nothing_moves() -> None:
    """A breaker that is only observed, or a policy that was switched off, shares nothing."""
    world = World()
    one, other = world.processes
    del other.gate
    one.fail()
    world.advance(POLL)

    assert world.states == [OPEN, CLOSED]


# F4


def test_a_refused_call_asks_for_a_place_and_the_next_one_is_the_probe() -> None:
    """By rule F4: one place in the whole fleet; its success closes the circuit for all."""
    world = opened()
    one, other = world.processes

    assert [one.call(), one.sent[-1].__class__] == [False, LeaseProbe]
    probe = one.begin()
    assert probe is not None
    assert [one.call(), other.call(), one.call(), other.call()] == [False] * 4
    one.end(probe, SUCCESS)
    assert world.record.state == CLOSED
    world.advance(POLL)

    assert world.states == [CLOSED, CLOSED]


def test_a_probe_that_fails_opens_the_circuit_for_all_and_for_longer_each_time() -> None:
    """By rule F4: with ``max_delay`` the delay doubles for each time in a row, whichever process probed."""
    world = opened(max_delay=60.0)
    waits = []
    for process in (*world.processes, *world.processes):
        world.advance(max(world.record.wait / 1e6, 0.0) + POLL)
        process.call()
        assert process.call(FAILURE)
        waits.append(round(world.record.wait / 1e6))
        world.advance(POLL)
        assert world.states == [OPEN, OPEN]

    assert waits == [10, 20, 40, 57]
    assert world.record.reopened == 4


def test_a_cancelled_probe_gives_its_place_back_at_once() -> None:
    """By rule F4, trap 28: the next one asks, and gets it."""
    world = opened()
    one, other = world.processes
    one.call()
    probe = one.begin()
    assert probe is not None
    one.end(probe, NEUTRAL)

    assert [other.call(), other.call(SUCCESS)] == [False, True]
    assert world.record.state == CLOSED


def test_a_probe_whose_admission_was_interrupted_gives_its_place_back() -> None:
    """By rule F4, trap 28: control flow came before the caller knew which era has let it in."""
    world = opened()
    one, other = world.processes
    one.call()
    probe = one.begin()
    one.gate.settle(one.gate.state, probe, NEUTRAL, world.now)
    one.gate.settle(one.gate.state, object(), NEUTRAL, world.now)

    assert [other.call(), other.call()] == [False, True]


@pytest.mark.parametrize(("delay", "kept"), [(5.0, 5.0), (0.0, 60.0)])
def test_the_probe_of_a_killed_process_frees_its_place_after_the_delay(delay: float, kept: float) -> None:
    """By rule F4, trap 28: a minute where there is no delay."""
    world = opened(delay=delay)
    one, other = world.processes
    one.call()
    assert one.begin() is not None
    world.processes.remove(one)
    world.advance(kept - 0.1)
    assert [other.call(), other.call()] == [False, False]
    world.advance(0.5)
    other.call()

    assert other.call()
    assert world.record.state == CLOSED


def test_an_idle_place_goes_to_who_is_refused_meanwhile() -> None:
    """By rule F4: a process that is not called any more does not sit on the only probe."""
    world = opened()
    one, other = world.processes
    one.call()
    for _ in range(20):
        world.advance(0.1)
        if other.call():
            break

    assert world.record.state == CLOSED


def test_the_place_of_a_process_that_died_idle_is_free_after_a_second() -> None:
    """By rule F4: nobody renews it."""
    world = opened()
    one, other = world.processes
    one.call()
    world.processes.remove(one)
    world.advance(0.9)
    assert [other.call(), other.call()] == [False, False]
    world.advance(0.2)

    assert [other.call(), other.call()] == [False, True]


@pytest.mark.parametrize("latency", [0.0, 0.02])
@pytest.mark.parametrize("rate", [1, 2, 5])
def test_the_circuit_closes_again_where_calls_are_rare(rate: int, latency: float) -> None:
    """By rule F4: with a call every five seconds in each of a few processes, taking turns, nobody starves."""
    world = opened(processes=rate, latency=latency)
    made = 0
    while world.record.state != CLOSED:
        world.processes[made % rate].call()
        made += 1
        world.advance(5.0 / rate)
        assert made <= 4 * rate

    world.advance(POLL + latency)
    assert world.states == [CLOSED] * rate


def test_rare_calls_find_their_place_without_a_lane_that_renews_it() -> None:
    """By rule F4: a fleet in this process has no thread; the place is asked for again when a call needs it."""
    world = opened(processes=1)
    (one,) = world.processes
    one.next_tick = float("inf")
    one.call()
    world.advance(5.0)

    assert one.call()
    assert world.record.state == CLOSED


def test_as_many_probes_as_the_threshold_pass_in_the_whole_fleet() -> None:
    """By rule F4: with a threshold of 3 two processes have three probes, and together they close the circuit."""
    world = opened(success_threshold=3)
    one, other = world.processes
    probes = []
    for process in (one, other, one, other, one):
        process.call()
        probes += [(process, probe)] if (probe := process.begin()) else []
    assert len(probes) == 3
    for process, probe in probes:
        assert world.record.state == HALF_OPEN
        process.end(probe, SUCCESS)
    world.advance(POLL)

    assert world.states == [CLOSED, CLOSED]


def test_denied_places_are_not_asked_for_by_every_call() -> None:
    """By rule F4: one question is on its way at most, and after some denials there are pauses."""
    world = opened(after=6.0, latency=0.002)
    one, other = world.processes
    one.call()
    world.advance(0.01)
    assert one.begin() is not None
    world.advance(0.01)
    other.sent.clear()
    for _ in range(1000):
        other.call()
        world.advance(0.001)

    assert 20 <= len(other.sent) <= 70


def test_without_a_delay_probes_follow_the_opening_at_once() -> None:
    """With ``delay=0`` the circuit never refuses but for its probes."""
    world = World(delay=0.0)
    one = world.processes[0]
    one.fail()
    one.call()
    assert one.call(FAILURE)
    one.call()

    assert one.call()
    assert world.record.state == CLOSED
    assert one.moves == [
        (CLOSED, OPEN, one.moves[0][2]), (OPEN, HALF_OPEN, ""), (HALF_OPEN, OPEN, one.moves[2][2]),
        (OPEN, HALF_OPEN, ""), (HALF_OPEN, CLOSED, ""),
    ]  # fmt: skip


# F5, and what is local


def test_lost_the_circuit_is_local_and_regained_the_shared_one_holds() -> None:
    """By rule F5: it probes and closes here; an open circuit of the fleet opens it again."""
    world = opened(after=1.0)
    one, other = world.processes
    one.lose()
    world.advance(4.5)
    assert one.call()
    assert world.states[0] == CLOSED
    other.call()
    assert other.call(FAILURE)
    one.regain()

    assert world.states == [OPEN, OPEN]


def test_what_was_opened_while_the_fleet_was_lost_is_written_when_it_is_back() -> None:
    """By rule F5: with what is left of the delay."""
    world = World()
    one, other = world.processes
    one.lose()
    one.fail()
    world.advance(2.0)
    assert world.states == [OPEN, CLOSED]
    one.regain()
    world.advance(POLL)

    assert world.states == [OPEN, OPEN]
    assert round(other.breaker.state.until - world.now, 1) == 2.0


def test_what_is_half_open_when_the_fleet_is_back_is_probed_by_all() -> None:
    """By rule F5: nothing stays half-open without a place that anybody could get."""
    world = World()
    one, other = world.processes
    one.lose()
    one.fail()
    world.advance(5.0)
    probe = one.begin()
    assert probe is not None
    one.regain()
    world.advance(POLL)
    assert other.breaker.state_name(world.now) == HALF_OPEN
    one.end(probe, NEUTRAL)
    one.call()

    assert one.call()
    assert world.record.state == CLOSED


def test_a_call_that_nobody_can_be_asked_about_is_decided_here() -> None:
    """By rule F5: the fleet is lost, and the circuit was not told yet."""
    world = opened()
    one = world.processes[0]
    one.is_up = False

    assert one.call()
    assert world.states[0] == CLOSED


def test_a_reset_holds_until_the_circuit_of_the_fleet_moves() -> None:
    """By rule F6: it is local, also where the fleet is lost and found meanwhile; a forced circuit follows nothing."""
    world = opened()
    one, other = world.processes
    one.breaker.reset(world.now)
    world.advance(2 * POLL)
    assert world.states[0] == CLOSED
    one.lose()
    one.regain()
    assert world.states[0] == CLOSED
    other.call()
    assert other.call(FAILURE)
    world.advance(POLL)
    assert world.states == [OPEN, OPEN]
    one.breaker.force_closed(world.now)
    world.advance(20.0)
    other.call()
    other.call(FAILURE)
    world.advance(POLL)

    assert world.states == [CLOSED, OPEN]


def test_a_circuit_that_is_forced_open_asks_nobody_and_gives_its_place_back() -> None:
    """By rule F6: whoever is refused elsewhere gets the place at once."""
    world = opened()
    one, other = world.processes
    one.call()
    one.breaker.force_open(world.now)
    one.sent.clear()
    for _ in range(3):
        one.call()
    world.advance(TICK)

    assert [type(question) for question in one.sent] == [EndProbe]
    assert [other.call(), other.call()] == [False, True]
    assert world.states[0] == OPEN


def test_a_child_process_has_no_place_of_its_parent() -> None:
    """By rule F4: it follows the fleet anew, and what its parent probes is its parent's business."""
    world = opened()
    one, other = world.processes
    one.call()
    probe = one.begin()
    assert probe is not None
    one.breaker.keep_only(1)
    one.circuit.keep_only()
    one.sent.clear()
    one.end(probe, NEUTRAL)

    assert one.sent == []
    assert one.circuit.is_idle(world.now)
    one.read()
    assert [one.call(), one.call(), other.call()] == [False] * 3


def test_answers_to_questions_of_before_a_loss_give_the_place_back() -> None:
    """By rule F4: nobody here would use it."""
    world = opened(after=6.0, latency=0.02)
    one = world.processes[0]
    one.call()
    one.circuit.follow(None, world.now)
    world.advance(0.1)

    assert EndProbe in map(type, one.sent)
    assert one.circuit.is_idle(world.now)


def test_new_values_are_those_of_the_next_decision() -> None:
    """A reload changes threshold and delay: the place that is asked for next, and the next opening, have them."""
    world = opened()
    one = world.processes[0]
    one.breaker.reconfigure(7.0, 2, 0.5, 2, world.now)
    world.advance(2.0)
    one.call()
    lease = one.sent[-1]
    assert isinstance(lease, LeaseProbe)
    assert lease.places == 2
    assert one.call(FAILURE)

    assert world.record.wait == 7_000_000


def test_what_was_never_said_because_of_an_interruption_is_said_later() -> None:
    """Control flow may come before anything is asked: an opening is written at the next reading."""
    world = World()
    one = world.processes[0]
    for _ in range(2):
        one.breaker.settle(one.breaker.state, object(), FAILURE, world.now, "OSError")
    world.advance(2 * POLL)

    assert world.states == [OPEN, OPEN]


def closed_again() -> World:
    """A fleet whose circuit was open, and was closed by a probe."""
    world = opened()
    world.processes[0].call()
    world.processes[0].call()
    world.advance(POLL)
    assert world.states == [CLOSED, CLOSED]
    return world


def test_what_opens_before_a_process_has_heard_anything_is_news_for_the_fleet() -> None:
    """By rule F5: a process that has just begun knows no version that could be newer."""
    world = closed_again()
    late = Process(world)
    world.processes.append(late)
    late.fail()
    late.read()
    world.advance(POLL)

    assert world.states == [OPEN] * 3


def test_what_opens_while_the_fleet_is_lost_is_written_over_what_was_closed_before() -> None:
    """By rule F5: the version is the one that was known, so there is nothing newer."""
    world = closed_again()
    one = world.processes[0]
    one.lose()
    one.fail()
    one.regain()
    world.advance(POLL)

    assert world.states == [OPEN, OPEN]


def test_what_is_still_open_when_the_fleet_is_back_is_open_here() -> None:
    """By rule F5: although nothing has moved there, and the circuit has closed here meanwhile."""
    world = opened(after=1.0, max_delay=60.0, delay=20.0)
    one = world.processes[0]
    one.breaker.reconfigure(2.0, 2, 0.5, 1, world.now)
    one.lose()
    world.advance(3.0)
    assert one.call()
    one.regain()

    assert world.states == [OPEN, OPEN]


def test_until_the_fleet_is_heard_of_the_circuit_is_local() -> None:
    """By rule F5: also where it could be asked already."""
    world = opened()
    one = world.processes[0]
    one.circuit.follow(None, world.now)

    assert one.call()


def test_an_opening_is_written_once() -> None:
    """By rule F3: not by each call that was under way, nor by what was forced or reset."""
    world = World(latency=0.02)
    one, other = world.processes
    other.breaker.force_open(world.now)
    world.advance(3 * POLL)
    begun = [one.begin() for _ in range(8)]
    for me in begun[:5]:
        one.end(me, FAILURE)
    world.advance(0.5)
    for me in begun[5:]:
        one.end(me, FAILURE)
    one.breaker.reset(world.now)
    one.fail()

    assert [type(question) for question in (*one.sent, *other.sent)].count(OpenCircuit) == 1


@pytest.mark.parametrize("kind", [OpenCircuit, LeaseProbe])
def test_what_was_interrupted_before_it_was_asked_is_asked_again(kind: type) -> None:
    """Control flow, such as Ctrl-C, came between deciding and asking: no answer is waited for longer than a second."""
    world = World() if kind is OpenCircuit else opened()
    one = world.processes[0]
    ask = one.ask

    def interrupted(question: Question, tell: Tell) -> bool:
        if isinstance(question, kind):
            raise KeyboardInterrupt
        return ask(question, tell)

    one.ask = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        one.fail()
    one.ask = ask  # type: ignore[method-assign]
    world.advance(1.1 * POLL)
    one.call()
    world.advance(POLL)

    assert world.record.state == (OPEN if kind is OpenCircuit else HALF_OPEN)


def test_an_emptied_server_hears_at_once_what_was_opened_a_moment_ago() -> None:
    """By rule F3: what was answered is no longer on its way."""
    world = World()
    one = world.processes[0]
    one.fail()
    world.server.forget()
    one.read()

    assert world.record.state == OPEN


def test_a_place_that_was_not_renewed_in_time_is_not_used() -> None:
    """By rule F4: a lane that stands still has no place when somebody else has got it, or may while a question goes."""
    world = opened(after=6.0, latency=0.04)
    one, other = world.processes
    one.next_tick = float("inf")
    one.call()
    world.advance(0.93)
    assert one.begin() is None
    world.advance(5.0)
    other.call()
    world.advance(0.1)
    probe = other.begin()
    assert probe is not None

    assert one.begin() is None


def test_a_place_is_not_used_while_it_is_asked_for_again() -> None:
    """By rule F4: the answer may be that somebody else has wanted it; one question is on its way at most."""
    world = opened(after=6.0, latency=0.04)
    one, other = world.processes
    one.call()
    other.call()
    world.advance(0.25)
    one.next_tick = float("inf")
    other.call()
    world.advance(0.3)
    for question, tell in one.circuit.renewals(world.now):
        one.ask(question, tell)
    assert isinstance(one.sent[-1], LeaseProbe)
    assert one.circuit.renewals(world.now) == []

    assert one.begin() is None


def test_a_place_that_is_asked_for_again_is_the_same_one() -> None:
    """By rule F4: the server still keeps it for a moment when it is not certain here any more."""
    world = opened(processes=1)
    (one,) = world.processes
    one.next_tick = float("inf")
    one.call()
    assert not one.circuit.is_idle(world.now)
    world.advance(0.95)
    assert one.circuit.is_idle(world.now)
    probe = one.begin()

    assert probe is not None
    assert not one.circuit.is_idle(world.now)


def test_a_place_is_lent_for_longer_the_rarer_calls_are() -> None:
    """By rule F4: a second at first, twice the time between two calls then, thirty seconds at most."""
    world = opened(processes=1)
    (one,) = world.processes
    one.next_tick = float("inf")
    one.circuit._new_holder = lambda: "another"
    world.exchange(LeaseProbe("key", world.record.version, "else", 1, 3_600_000_000))
    for seconds in (0.1, 0.7, 4.0, 100.0):
        one.call()
        world.advance(seconds)
    one.call()
    lengths = [question.length / 1e6 for question in one.sent if isinstance(question, LeaseProbe)]

    assert [round(length, 1) for length in dict.fromkeys(lengths)] == [1.0, 1.4, 8.0, 30.0]


def test_a_fleet_with_much_patience_lends_for_longer() -> None:
    """By rule F4: what is sent may take as long as the patience."""
    world = opened(processes=1)
    (one,) = world.processes
    one.patience = 1.0
    one.call()
    lease = one.sent[-1]

    assert isinstance(lease, LeaseProbe)
    assert lease.length == 4_000_000


def test_without_a_delay_a_second_place_is_no_probe_of_a_circuit_that_has_opened() -> None:
    """By rule F4: what the fleet says to the failure is on its way."""
    world = World(1, latency=0.04, delay=0.0, success_threshold=2)
    (one,) = world.processes
    world.advance(0.1)
    one.fail()
    world.advance(0.1)
    one.call()
    world.advance(0.1)
    probe = one.begin()
    assert probe is not None
    one.call()
    world.advance(0.1)
    one.end(probe, FAILURE)

    assert one.begin() is None


def test_a_probe_that_ends_while_the_circuit_is_forced_open_is_told_with_the_delay() -> None:
    """By rule F6: that it is forced for ever is for this process alone."""
    world = opened()
    one = world.processes[0]
    one.call()
    probe = one.begin()
    assert probe is not None
    one.breaker.force_open(world.now)
    one.end(probe, FAILURE)

    assert world.record.wait == 5_000_000


def test_a_verdict_that_was_not_told_leaves_a_circuit_that_probes_again() -> None:
    """Control flow came between the local verdict and the question: the place is free after the delay, here too."""
    world = opened(processes=1)
    (one,) = world.processes
    one.call()
    probe = one.begin()
    assert probe is not None
    era, _, _ = one.running.pop(probe)
    one.breaker.settle(era, probe, FAILURE, world.now)
    one.circuit._probes.clear()
    world.advance(5.5)

    assert [one.call(), one.call()] == [False, True]
    assert world.states == [CLOSED]


def test_who_asks_before_the_delay_is_over_is_told_for_how_long_it_is_not() -> None:
    """By rule F3: the delay counts at the server, whatever a reload makes of it here; nobody asks till then."""
    world = opened(after=1.0)
    one = world.processes[0]
    one.breaker.reconfigure(0.5, 2, 0.5, 1, world.now)
    one.call()
    one.sent.clear()
    with pytest.raises(CircuitBreakerOpenException) as found:
        one.gate.admit(object(), 1, world.now)

    assert found.value.retry_after == pytest.approx(4.0)
    assert one.sent == []


# Random histories

STEPS = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 2), st.integers(0, 7)), max_size=60)


class History:
    """Does random things to a fleet, and looks whether more probes run than may."""

    def __init__(self, threshold: int, latency: float, delay: float) -> None:
        self.world = World(3, latency=latency, delay=delay, success_threshold=threshold)
        self.forgotten_at = float("-inf")
        self.is_set_back = False

    def do(self, what: int, who: int, how: int) -> None:
        world = self.world
        process = world.processes[who]
        running = list(process.running)
        if what < 5:
            process.begin()
        elif what < 12 and running:
            process.end(running[how % len(running)], (SUCCESS, FAILURE, FAILURE, NEUTRAL)[how % 4])
        elif what == 12:
            process.lose(arrives=bool(how % 2))
        elif what == 13:
            process.regain()
        elif what == 14 and not how:
            world.server.forget()
            self.forgotten_at = world.now
        elif what == 15 and not how:
            world.ahead -= 3600.0
        elif what == 16:
            process.fail()
        elif what == 17 and how > 5:
            world.processes[who] = Process(world)  # killed, and started anew
        else:
            world.advance((0.001, 0.02, 0.1, 0.3, 1.0, 1.1, 2.0, 5.5)[how])

    def check(self) -> None:
        """No more probes than the threshold at once, but for those that outlived their delay, or were forgotten."""
        world, delay = self.world, self.world.values["delay"] or 60.0
        since = max(world.now - delay, self.forgotten_at)
        running = [attempt for process in world.processes for attempt in process.running.values()]
        probes = [began for _, began, is_leased in running if is_leased and began > since]
        assert len(probes) <= world.values["success_threshold"]

    def calm_down(self) -> None:
        """Let everybody reach the server, nothing fail any more, and each process be called now and then."""
        world = self.world
        for process in world.processes:
            process.regain()
            for me in list(process.running):
                process.end(me, NEUTRAL)
        for step in range(40):
            world.processes[step % 3].call()
            world.advance(1.7)
            self.check()
        world.advance(2 * POLL)


@settings(max_examples=400, deadline=None)
@given(STEPS, st.integers(1, 3), st.sampled_from([0.0, 0.004, 0.04]), st.sampled_from([0.0, 1.0, 5.0]))
def test_whatever_happens_the_fleet_never_probes_more_than_it_may_and_closes_in_the_end(
    steps: list[tuple[int, int, int]], threshold: int, latency: float, delay: float
) -> None:
    """By rules F3, F4 and F5: losses, delays, flushes, a clock set back, killed processes (traps 28 and 32).

    Once everybody reaches the server and nothing fails, all are closed, and nobody holds anything.
    """
    history = History(threshold, latency, delay)
    for step in steps:
        history.do(*step)
        history.check()
    history.calm_down()

    world = history.world
    assert world.states == [CLOSED] * 3
    assert world.record.state == CLOSED
    assert all(process.circuit.is_idle(world.now) for process in world.processes)
