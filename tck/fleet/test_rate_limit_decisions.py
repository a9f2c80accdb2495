"""A rate limit of a fleet in one process: its questions, its waiting calls, and its turns while the fleet is lost."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import ceil
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from faulttolerance._extensions.fleet.limit import FleetRateLimit, FleetTurnWaiter
from faulttolerance._extensions.fleet.protocol import TurnRequest
from faulttolerance._extensions.fleet.share import LocalShare
from faulttolerance._strategy.rate_limit import LimitValues, RateLimit, WindowKind
from faulttolerance.exceptions import RateLimitException
from kit.examples import holds
from kit.windows import take_turn

KINDS: list[WindowKind] = ["fixed", "rolling", "smooth"]


class Link:
    """A fleet that answers when the test says so; ``answers`` are given at once."""

    patience = 0.05

    def __init__(self, *answers: int | None) -> None:
        self.answers = list(answers)
        self.asked: list[TurnRequest] = []
        self.tells: list[Callable[[Any], object]] = []
        self.is_up = self.is_prompt = True
        self.processes = 1
        self.current = self

    def send(self, question: Any, tell: Callable[[Any], object]) -> bool:
        if not self.is_up:
            return False
        self.asked.append(question)
        if self.answers:
            tell(self.answers.pop(0))
        else:
            self.tells.append(tell)
        return True

    def lose(self) -> None:
        """Stop answering: each open question gets ``None``."""
        self.is_up = self.is_prompt = False
        while self.tells:
            self.tells.pop()(None)


class Calls:
    """Calls under one limit of one process, each with its place."""

    def __init__(self, link: Link, kind: WindowKind = "fixed", value: int = 1, max_wait: float = 0.0, **more: Any):
        spacing, burst = more.get("spacing", 0.0), more.get("burst", 1)
        self.local = RateLimit("shop.send", LimitValues(value, 1.0, spacing, kind, max_wait, burst))
        self.link = link
        self.limit = FleetRateLimit(self.local, LocalShare(), "shop.send", link, may_wait=max_wait > 0)
        self.woken: list[FleetTurnWaiter] = []

    def place(self) -> FleetTurnWaiter:
        place = FleetTurnWaiter(1, lambda: self.woken.append(place))
        return place

    def ask(self, now: float, place: FleetTurnWaiter | None = None) -> float | str:
        """Return what a call is told: the seconds to wait, or a refusal with its ``retry_after``."""
        try:
            return round(self.limit.request_turn(place or self.place(), now), 5)
        except RateLimitException as refusal:
            return f"refused, {round(refusal.retry_after, 5)}"


def test_a_turn_is_asked_for_in_microseconds_with_all_that_the_limit_says() -> None:
    """By rule F2: the server counts whole microseconds; other lengths become longer, never shorter."""
    link = Link(0, 0)
    limit = RateLimit("send", LimitValues(5, 1 / 3, 0.01, "smooth", 0.0, 3))
    shared = FleetRateLimit(limit, LocalShare(), "the key", link, may_wait=False)
    shared.request_turn(FleetTurnWaiter(1, int), 0.0)
    limit.reconfigure(LimitValues(7, 2.0, 0.0, "rolling"), 0.5)
    shared.request_turn(FleetTurnWaiter(1, int), 1.0)

    assert link.asked == [
        TurnRequest("the key", "smooth", 5, 333_334, 3, 10_000),
        TurnRequest("the key", "rolling", 7, 2_000_000, 1, 0),
    ]


@pytest.mark.parametrize("kind", ["rolling", "smooth"])
def test_a_call_without_room_in_the_local_window_does_not_ask(kind: WindowKind) -> None:
    """By rule F2: the window of the process comes first; it holds each granted turn from its question on."""
    calls = Calls(Link(0), kind)

    assert calls.ask(10.0) == 0.0
    assert calls.ask(10.25) == "refused, 0.75"
    assert len(calls.link.asked) == 1


def test_a_fixed_window_begins_elsewhere_in_the_fleet() -> None:
    """By rule F2: a process with a full window asks all the same, and keeps to its spacing."""
    calls = Calls(Link(0, 0, 0), spacing=0.2)

    assert [calls.ask(10.0), calls.ask(10.1), calls.ask(10.5), calls.ask(10.9)] == [0.0, "refused, 0.1", 0.0, 0.0]
    assert calls.local.window.count == 3


def test_the_fleet_says_when_there_may_be_room() -> None:
    """By rule F2: ``retry_after`` comes from the server, and the local window does not count the call."""
    calls = Calls(Link(123_456), "smooth")

    assert calls.ask(10.0) == "refused, 0.12346"
    assert calls.local.is_idle(10.0)


def test_an_answer_is_waited_for_no_longer_than_the_patience() -> None:
    """By rules F2 and F5: after it this process decides for that call, and the other calls go on waiting."""
    calls = Calls(Link(), "smooth")
    first, second = calls.place(), calls.place()

    assert calls.ask(10.0, first) == calls.ask(10.01, second) + 0.0 == 0.05
    assert calls.ask(10.03, first) == 0.02
    assert calls.ask(10.05, first) == 0.0  # alone, by the part of the process
    assert calls.woken == []
    calls.link.tells[1](0)
    assert calls.woken[-1] is second
    assert calls.ask(10.05, second) == 0.0  # its answer came in time


def test_while_the_fleet_is_late_nobody_asks() -> None:
    """By rule F5: one batch of calls waits for the patience, and no other does."""
    calls = Calls(Link(), "rolling", value=2)
    calls.link.is_prompt = False

    assert [calls.ask(10.0), calls.ask(10.0), calls.ask(10.0)] == [0.0, 0.0, "refused, 1.0"]
    assert calls.link.asked == []


def test_a_late_answer_is_of_no_use_to_a_call_that_went_on() -> None:
    """By rule F5: the call is not counted again."""
    calls = Calls(Link(), "rolling", value=9)
    place = calls.place()
    calls.ask(10.0, place)
    assert calls.ask(10.05, place) == 0.0
    calls.link.tells[0](0)

    assert calls.woken == []
    assert len(calls.local.window.moments) == 1


@pytest.mark.parametrize(("answer", "then"), [(0, 0.0), (400_000, 0.3), (1_200_000, "refused, 1.2"), (None, 0.9)])
def test_a_late_answer_counts_for_a_call_that_still_waits(answer: int | None, then: float | str) -> None:
    """By rule F5: a call that stands in the line alone goes on as the fleet says, as soon as it answers."""
    calls = Calls(Link(0), "fixed", max_wait=0.95)
    assert calls.ask(9.95) == 0.0
    place = calls.place()
    assert calls.ask(10.0, place) == 0.05
    assert calls.ask(10.05, place) == 0.9
    calls.link.tells[0](answer)

    assert place in calls.woken
    assert calls.ask(10.1, place) == (0.85 if answer is None else then)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [0, 2, 4])
def test_alone_a_process_uses_its_part_of_the_limit(kind: WindowKind, given: int) -> None:
    """By rule F5: the part is the value divided by the processes, less the turns that the fleet gave."""
    link = Link(*[0] * given)
    calls = Calls(link, kind, value=8, burst=8)
    link.processes = 4
    assert [calls.ask(10.0) for _ in range(given)] == [0.0] * given
    link.is_prompt = False

    assert [calls.ask(10.0) for _ in range(9)].count(0.0) == max(0, 2 - given)
    assert 8 <= sum(calls.ask(11.0 + step / 100) == 0.0 for step in range(400)) <= 10


@pytest.mark.parametrize("kind", KINDS)
def test_alone_each_of_many_processes_has_a_turn_now_and_then(kind: WindowKind) -> None:
    """By rule F5: with more processes than turns in a window, a process has one turn in several windows."""
    link = Link()
    calls = Calls(link, kind, value=2, burst=2)
    link.processes, link.is_prompt = 5, False

    assert [calls.ask(10.0 + step / 10) == 0.0 for step in range(51)] == [step % 25 == 0 for step in range(51)]


def test_alone_a_process_takes_no_turn_that_the_fleet_has_just_refused() -> None:
    """By rule F5: the fleet has said for how long it has no turn for anybody."""
    calls = Calls(Link(400_000), "fixed", value=2)
    assert calls.ask(10.0) == "refused, 0.4"
    calls.link.is_prompt = False

    assert calls.ask(10.1) == "refused, 0.3"
    assert calls.ask(10.4) == 0.0


def test_new_values_apply_to_the_part_of_a_process_too() -> None:
    """By rules F5 and X2: granted turns still count, and the words of the fleet on the old values do not."""
    calls = Calls(Link(), "rolling", value=2)
    calls.link.is_prompt = False
    assert [calls.ask(10.0), calls.ask(10.0), calls.ask(10.0)] == [0.0, 0.0, "refused, 1.0"]
    calls.local.reconfigure(LimitValues(3, 1.0, 0.0, "rolling"), 10.1)
    assert [calls.ask(10.1), calls.ask(10.1)] == [0.0, "refused, 0.9"]
    calls.link.processes = 3
    assert calls.ask(10.9) == "refused, 0.1"
    assert calls.ask(11.0) == "refused, 0.1"


def test_a_lost_fleet_leaves_the_window_of_the_process_as_it_is() -> None:
    """By rules F2 and F5: each replica has the whole value, and turns that the fleet had granted count."""
    calls = Calls(Link(0, None), "rolling", value=3)
    assert calls.ask(10.0) == 0.0
    assert calls.ask(10.1) == 0.0  # its question was lost
    calls.link.is_up = False

    assert [calls.ask(10.2), calls.ask(10.3), calls.ask(10.999_999_5)] == [0.0, "refused, 0.7", 0.0]


def test_a_deadline_that_cuts_the_wait_short_says_nothing_of_the_fleet() -> None:
    """By rule F2: a call waits for the patience or for its remaining time; then this process decides alone."""
    calls = Calls(Link(), "rolling", value=2)
    cut, over = calls.place(), calls.place()
    calls.ask(10.0, cut)
    calls.ask(10.0, over)

    assert calls.limit.cut_short(cut, 10.0, 0.05, 0.02) == 0.02
    assert calls.ask(10.02, cut) == 0.0
    assert calls.limit.cut_short(over, 10.0, 0.05, 0.0) == 0.0
    assert calls.link.is_up
    assert calls.ask(10.03) == "refused, 0.99"


def test_an_answer_that_comes_as_the_wait_is_cut_short_is_taken() -> None:
    """By rule F2: a granted turn is used and a refusal of the fleet is raised, even at the last moment."""
    calls = Calls(Link(), "rolling", value=9)
    soon, late, refused = calls.place(), calls.place(), calls.place()
    for place in (soon, late, refused):
        calls.ask(10.0, place)
    for tell, answer in zip(calls.link.tells, (0, 0, 400_000), strict=True):
        tell(answer)

    assert calls.limit.cut_short(soon, 10.0, 0.05, 0.02) == 0.0
    assert calls.limit.cut_short(late, 10.0, 0.05, 0.0) == 0.0
    with pytest.raises(RateLimitException) as raised:
        calls.limit.cut_short(refused, 10.0, 0.05, 0.0)
    assert raised.value.retry_after == pytest.approx(0.4)


# the line


def test_only_the_first_of_the_line_asks_again() -> None:
    """By rules F2 and RL1: the others are woken one by one, and no call overtakes those that wait."""
    calls = Calls(Link(0, 500_000, 600_000), value=1, max_wait=2.9)
    a, b, c, d = (calls.place() for _ in range(4))
    calls.ask(10.0)

    assert calls.ask(10.0, a) == 0.5
    assert calls.ask(10.1, b) == 2.0  # it looks from time to time whether the first is still there
    assert calls.ask(10.1, c) == 2.9  # its turn would be at 12.5
    assert calls.ask(10.1, d) == "refused, 3.4"
    assert len(calls.link.asked) == 2
    assert calls.ask(10.3, a) == 0.2  # woken for nothing
    assert calls.ask(10.5, a) == 0.6  # the server has seen others come
    calls.woken.clear()
    calls.limit.leave(c, 10.6)
    assert calls.woken == []
    calls.limit.leave(a, 10.7)
    assert calls.woken == [b]
    calls.link.answers = [0]
    assert calls.ask(10.7, b) == 0.0
    assert len(calls.link.asked) == 4
    assert not calls.local.waiting


def test_calls_that_asked_together_stand_in_the_line_in_the_order_of_their_answers() -> None:
    """By rule RL1: the first call that is told to wait is the first in the line; a hedge never stands there."""
    calls = Calls(Link(), "smooth", value=10, max_wait=1.0)
    first, second, last = calls.place(), calls.place(), calls.place()
    hedges = FleetRateLimit(calls.local, LocalShare(), "shop.send", calls.link, may_wait=False)
    for place in (first, second, last):
        calls.ask(10.0, place)
    for tell, wait in zip(calls.link.tells, (0, 100_000, 100_000), strict=True):
        tell(wait)

    assert calls.ask(10.02, last) == 0.08  # as long as it was to wait when it asked
    assert calls.ask(10.02, second) == 1.0
    assert calls.ask(10.02, first) == 0.0
    with pytest.raises(RateLimitException):
        hedges.request_turn(FleetTurnWaiter(1, int), 10.05)
    assert len(calls.link.asked) == 3


def test_a_call_that_would_wait_longer_than_it_may_is_refused() -> None:
    """By rule RL1: it is refused as soon as the fleet says so, even as the first of the line, and the next is woken."""
    calls = Calls(Link(300_000, 300_000), max_wait=0.5)
    first, second = calls.place(), calls.place()

    assert calls.ask(10.0, first) == 0.3
    assert calls.ask(10.1, second) == "refused, 1.2"
    calls.limit.leave(second, 10.1)
    calls.woken.clear()
    calls.local.reconfigure(LimitValues(100, 1.0, 0.0, "fixed", max_wait=0.5), 10.1)
    assert calls.woken == [first]
    second = calls.place()
    assert calls.ask(10.1, second) == 0.5
    assert calls.ask(10.1, first) == 0.3
    assert calls.link.asked[-1].limit == 100
    calls.link.answers = [300_000]
    calls.woken.clear()
    assert calls.ask(10.4, first) == "refused, 0.3"
    assert calls.woken == [first, second]  # the one was told, the other is the first now


def test_a_first_call_that_never_asks_holds_nobody_up() -> None:
    """By rule RL1: its loop may be closed; the calls behind it look from time to time."""
    calls = Calls(Link(100_000), max_wait=60.0)
    dead, second, third = calls.place(), calls.place(), calls.place()
    calls.ask(10.0, dead)
    assert calls.ask(10.0, second) == 2.0
    assert calls.ask(10.0, third) == 3.0

    calls.link.answers = [0]
    assert calls.ask(12.0, second) == 0.0
    assert calls.woken[-1] is third


def test_any_call_that_finds_the_first_gone_wakes_the_next() -> None:
    """By rule RL1: the next one looks by itself only after as many seconds as calls stood before it."""
    calls = Calls(Link(100_000), max_wait=60.0)
    dead, second = calls.place(), calls.place()
    calls.ask(10.0, dead)
    calls.ask(10.0, second)

    calls.ask(11.5, calls.place())
    assert calls.woken[-1] is second


def test_the_line_goes_on_where_the_fleet_is_lost_and_found() -> None:
    """By rules F5 and RL1: the order stays; first the window of the process decides, and then that of the fleet."""
    calls = Calls(Link(0, 500_000), "rolling", max_wait=9.0)
    places = [calls.place() for _ in range(4)]
    calls.ask(10.0)
    # This process has no room either, and its window says when it has.
    assert calls.ask(10.1, places[0]) == 0.9
    assert calls.ask(10.1, places[1]) == 2.0
    calls.link.is_up = calls.link.is_prompt = False
    assert calls.ask(10.1, places[2]) == 3.0
    calls.woken.clear()
    assert calls.ask(11.0, places[0]) == 0.0
    assert calls.woken == [places[1]]
    assert calls.ask(11.0, places[1]) == 1.0
    calls.link.is_up = calls.link.is_prompt = True
    calls.link.answers = [0]
    assert calls.ask(12.0, places[1]) == 0.0
    calls.link.answers = [0]
    assert calls.ask(13.0, places[2]) == 0.0
    assert not calls.local.waiting


def test_a_call_that_waits_alone_asks_the_fleet_when_it_is_there_again() -> None:
    """By rules F5 and RL1: the first of the line looks each second, however far off its turn is."""
    calls = Calls(Link(), max_wait=30.0)
    calls.link.processes, calls.link.is_prompt = 9, False
    first = calls.place()
    assert [calls.ask(10.0), calls.ask(10.0, first), calls.ask(11.0, first)] == [0.0, 1.0, 1.0]
    calls.link.is_prompt, calls.link.answers = True, [0]

    assert calls.ask(12.0, first) == 0.0


# histories


class Server:
    """A server with a clock of its own, whose answers are compared with the plain words of the rule."""

    def __init__(self, question: TurnRequest) -> None:
        self.question = question
        self.kept: Any = None
        self.ahead = 0
        self.granted: list[int] = []
        self.is_exact = True
        """Whether nothing was forgotten, and its clock never set back."""

    def answer(self, question: TurnRequest, now: float) -> int:
        moment = round(now * 1e6) + self.ahead
        expected = self.would_wait(moment)
        self.kept, wait = take_turn(self.kept, question, moment)
        if self.is_exact:
            assert wait == expected
        if not wait:
            self.granted.append(moment)
        return wait

    def would_wait(self, now: int) -> int:
        """Return how long a call has to wait, by all turns since the beginning."""
        _, kind, limit, window, burst, spacing = self.question
        due = [now]
        if self.granted:
            due.append(self.granted[-1] + spacing)
        if kind == "rolling" and len(self.granted) >= limit:
            due.append(self.granted[-limit] + window)
        if kind == "fixed" and self.granted:
            begin = self.granted[0] + (now - self.granted[0]) // window * window
            if sum(moment >= begin for moment in self.granted) >= limit:
                due.append(begin + window)
        if kind == "smooth":
            back = Fraction(0)
            for moment in self.granted:
                # A caller asks in whole microseconds; what was rounded up for it is not lost.
                back = (back if ceil(back) >= moment else Fraction(moment)) + Fraction(window, limit)
            due.append(ceil(back - (burst - 1) * Fraction(window, limit)))
        return max(due) - now


class Process:
    """A process of the fleet, whose questions and answers take their time on the way to the server."""

    patience = 0.05

    def __init__(self, world: World, max_wait: float) -> None:
        self.world = world
        _, kind, value, window, burst, spacing = world.server.question
        self.local = RateLimit("send", LimitValues(value, window / 1e6, spacing / 1e6, kind, max_wait, burst))
        self.limit = FleetRateLimit(self.local, LocalShare(), "send", self, may_wait=max_wait > 0)
        self.is_up = True
        self.current = self  # it is its own link
        self.processes = 0
        self.was_alone = False
        self.out: dict[Callable[[Any], object], float] = {}
        """The moment of each open question, by the function that takes its answer."""
        self.heard_at = 0.0
        self.granted = 0

    def send(self, question: Any, tell: Callable[[Any], object]) -> bool:
        if self.is_up:
            self.out[tell] = since = self.world.now
            self.world.at(self.world.delay(), lambda: self.reach(question, tell))
            self.world.at(0.5, lambda: self.lose() if self.out.get(tell) == since else None)
        return self.is_up

    @property
    def is_prompt(self) -> bool:
        return self.is_up and all(self.world.now - since <= self.patience for since in self.out.values())

    def reach(self, question: Any, tell: Callable[[Any], object]) -> None:
        if tell in self.out and not self.world.is_lost:
            answer = self.world.server.answer(question, self.world.now)
            # One link: answers come in the order of their questions.
            self.heard_at = max(self.world.now + self.world.delay(), self.heard_at)
            self.world.at(self.heard_at - self.world.now, lambda: self.hear(tell, answer))

    def hear(self, tell: Callable[[Any], object], answer: int | None) -> None:
        if tell in self.out:
            del self.out[tell]
            self.granted += answer == 0
            tell(answer)

    def lose(self) -> None:
        self.is_up = False
        for tell in [*self.out]:
            self.hear(tell, None)
        self.world.at(1.0, self.ping)

    def ping(self) -> None:
        if self.world.is_lost:
            self.world.at(1.0, self.ping)
        else:
            self.is_up = True


class World:
    """Several processes, a server, and the events between them."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        kind = dice.choice(KINDS)
        burst = dice.choice([1, 1, 3]) if kind == "smooth" else 1
        self.server = Server(
            TurnRequest("send", kind, dice.randint(1, 4), 1_000_000, burst, dice.choice([0, 0, 70_000]))
        )
        self.slowness = dice.choice([0.0, 0.001, 0.01])
        self.is_lost = False
        self.now = 100.0
        self.events: list[tuple[float, int, Callable[[], object]]] = []
        self.count = 0
        self.processes = [Process(self, dice.choice([0.0, 0.4, 2.5])) for _ in range(dice.randint(1, 4))]
        for process in self.processes:
            process.processes = len(self.processes)
        self.by_fleet = self.alone = self.refused = self.unfinished = 0

    def delay(self) -> float:
        return self.dice.random() * self.slowness

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, act))

    def play(self, calls: int, *, has_incidents: bool) -> None:
        moment = 0.0
        for _ in range(calls):
            moment += self.dice.choice([0.0, 0.001, 0.05, 0.3])
            self.at(moment, partial(self.call, self.dice.choice(self.processes)))
        for incident in (self.lose, self.flush, self.set_back) if has_incidents else ():
            self.at(self.dice.random() * moment, incident)
        while self.events:
            self.now, _, act = heapq.heappop(self.events)
            act()

    def lose(self) -> None:
        self.is_lost = True
        self.at(self.dice.random() * 3, self.find)

    def find(self) -> None:
        self.is_lost = False

    def flush(self) -> None:
        self.server.kept, self.server.is_exact = None, False

    def set_back(self) -> None:
        self.server.ahead -= self.dice.randint(1, 10_000_000)
        self.server.is_exact = False

    def call(self, process: Process) -> None:
        """Make one call; a few are cancelled."""
        came, ended = self.now, []
        place = FleetTurnWaiter(1, lambda: self.at(0.0, again))
        self.unfinished += 1

        def again() -> None:
            if ended:
                return
            answer = place.response
            is_silent = answer == -1 and process.is_prompt
            behind = [other for other in process.local.waiting if other is not place]
            is_first = not behind or process.local.waiting.first is place
            asked = len(process.out)
            try:
                wait = process.limit.request_turn(place, self.now)
            except RateLimitException:
                wait = -1.0
            if is_silent and is_first and wait and len(process.out) == asked:
                self.expect_no_room(process)
            if wait > 0:
                self.at(wait, again)
                return
            assert self.now - came <= process.local.max_wait / 1e9 + 2 * process.patience + 1e-6
            self.refused += wait < 0
            self.by_fleet += not wait and answer == 0
            if not wait and answer != 0:
                self.alone += 1
                process.was_alone = True
            end()

        def end() -> None:
            if not ended:
                ended.append(self.now)
                self.unfinished -= 1
                process.limit.leave(place, self.now)

        again()
        if self.dice.random() < 0.1:
            self.at(self.dice.random(), end)

    def expect_no_room(self, process: Process) -> None:
        """Check that the fleet would refuse, too, where a process does not ask it."""
        if self.server.is_exact and not process.was_alone:
            assert self.server.would_wait(round(self.now * 1e6) - 2) > 0


@holds(10, 100, st.randoms(use_true_random=False))
def test_several_processes_share_one_limit_exactly(dice: Random) -> None:
    """By rule F2: as many calls pass as under one sequential limit, with any delays and any calls that give up."""
    world = World(dice)
    world.play(60, has_incidents=False)

    assert world.unfinished == world.alone == 0
    assert world.by_fleet <= sum(process.granted for process in world.processes) == len(world.server.granted)
    assert not any(process.local.waiting for process in world.processes)
    assert all(process.is_up for process in world.processes)


@holds(10, 100, st.randoms(use_true_random=False))
def test_every_call_ends_in_time_whatever_becomes_of_the_server(dice: Random) -> None:
    """By rules F2 and F5, trap 32: no turn is used that the fleet did not grant; it is lost, emptied and set back."""
    world = World(dice)
    world.play(60, has_incidents=True)

    assert world.unfinished == 0
    assert world.by_fleet <= sum(process.granted for process in world.processes)
    assert not any(process.local.waiting for process in world.processes)
