"""The calls that run and that wait: examples, a naive bulkhead, every interleaving of a few calls, many threads."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import strategies as st

from faulttolerance._strategy.bulkhead import Bulkhead, Waiter
from faulttolerance.exceptions import BulkheadException
from kit.examples import holds
from kit.tiers import few_and_many

HERE = threading.get_ident()
THERE = HERE + 1


def make(limit: int = 1, queue: int = 10) -> Bulkhead:
    """Return a bulkhead with a name."""
    return Bulkhead(limit, queue, "shop.Cart.pay")


def arrive(bulkhead: Bulkhead, me: Any, ident: int = HERE) -> Any:
    """Acquire a permit as a synchronous driver does."""
    held = bulkhead.held
    held[me] = ident
    if len(held) > bulkhead.limit or bulkhead.waiting:
        bulkhead.acquire(me, ident)
    return me


def queue(bulkhead: Bulkhead, me: Any, wake: Callable[[], object] = lambda: None, ident: int = HERE) -> Waiter | None:
    """Acquire a permit or queue as an asynchronous driver does."""
    held = bulkhead.held
    held[me] = ident
    if len(held) > bulkhead.limit or bulkhead.waiting:
        return bulkhead.acquire(me, ident, wake)
    return None


def leave(bulkhead: Bulkhead, me: Any) -> None:
    """Release a permit as any driver does."""
    bulkhead.held.pop(me, None)
    if bulkhead.waiting:
        bulkhead.admit_waiters()


def is_refused(bulkhead: Bulkhead, me: Any = "refused") -> bool:
    """Return whether a call that does not wait is refused; it leaves no trace."""
    try:
        arrive(bulkhead, me)
    except BulkheadException:
        return True
    leave(bulkhead, me)
    return False


# calls that do not wait


def test_the_limit_is_the_number_of_calls_that_run() -> None:
    """Specification, semaphore style: the call beyond the limit is refused, and leaves no trace."""
    bulkhead = make(limit=2)
    arrive(bulkhead, "a")
    arrive(bulkhead, "b")

    with pytest.raises(BulkheadException, match=r"^shop\.Cart\.pay: bulkhead is full$"):
        arrive(bulkhead, "c")

    assert (bulkhead.running, list(bulkhead.held)) == (2, ["a", "b"])


def test_a_released_permit_is_free() -> None:
    """A call that leaves makes room for one."""
    bulkhead = make(limit=2)
    arrive(bulkhead, "a")
    arrive(bulkhead, "b")

    leave(bulkhead, "a")
    arrive(bulkhead, "c")

    assert is_refused(bulkhead)
    assert bulkhead.running == 2


def test_leaving_twice_frees_one_permit() -> None:
    """A driver may release a permit that it is not sure to have."""
    bulkhead = make(limit=2)
    arrive(bulkhead, "a")
    arrive(bulkhead, "b")

    leave(bulkhead, "a")
    leave(bulkhead, "a")
    arrive(bulkhead, "c")

    assert is_refused(bulkhead)


# calls that wait


def test_waiters_are_admitted_first_in_first_out() -> None:
    """Specification, queue style: the first to come starts first, and is woken once."""
    bulkhead = make(limit=1)
    woken: list[str] = []
    arrive(bulkhead, "a")
    waiters = [queue(bulkhead, name, lambda name=name: woken.append(name)) for name in "bcd"]

    order = []
    for name in "abc":
        leave(bulkhead, name)
        order.append([waiter.admitted for waiter in waiters if waiter])

    assert woken == ["b", "c", "d"]
    assert order == [[True, False, False], [True, True, False], [True, True, True]]


def test_a_call_that_may_wait_runs_at_once_where_there_is_room() -> None:
    """It needs no waiter and no wake-up."""
    bulkhead = make(limit=2)

    assert queue(bulkhead, "a") is None
    assert queue(bulkhead, "b") is None
    assert queue(bulkhead, "c") is not None
    assert (bulkhead.running, len(bulkhead.waiting)) == (2, 1)


def test_as_many_wait_as_the_queue_says() -> None:
    """Specification: a call beyond the waiting queue is refused."""
    bulkhead = make(limit=1, queue=2)
    for name in "abc":
        queue(bulkhead, name)

    with pytest.raises(BulkheadException):
        queue(bulkhead, "d")

    assert (bulkhead.running, len(bulkhead.waiting), list(bulkhead.held)) == (1, 2, ["a"])


def test_without_a_queue_nobody_waits() -> None:
    """A queue of 0 refuses at once, and keeps nothing of the call."""
    bulkhead = make(limit=1, queue=0)
    queue(bulkhead, "a")

    with pytest.raises(BulkheadException):
        queue(bulkhead, "b")

    assert (len(bulkhead.waiting), bulkhead.waiting.ahead) == (0, ())


def test_calls_of_both_kinds_share_one_limit() -> None:
    """A synchronous and an asynchronous caller count alike (B35)."""
    bulkhead = make(limit=2)
    arrive(bulkhead, "a")
    queue(bulkhead, "b")

    assert is_refused(bulkhead)
    assert queue(bulkhead, "c") is not None


def test_a_permit_is_promised_to_the_next_waiter() -> None:
    """Between the leaving of one call and the admission of the next waiter, an arrival does not slip in."""
    bulkhead = make(limit=1)
    arrive(bulkhead, "a")
    waiter = queue(bulkhead, "b")
    bulkhead.held.pop("a")  # it has left, but not yet looked whether somebody waits

    assert is_refused(bulkhead)
    assert waiter is not None
    assert waiter.admitted


def test_a_later_caller_steps_behind_the_waiters() -> None:
    """An arrival that may wait follows the same rule."""
    bulkhead = make(limit=1)
    arrive(bulkhead, "a")
    first = queue(bulkhead, "b")
    bulkhead.held.pop("a")

    second = queue(bulkhead, "c")

    assert first is not None
    assert second is not None
    assert (first.admitted, second.admitted) == (True, False)


def test_an_arrival_passes_with_the_last_waiter_where_there_is_room_for_both() -> None:
    """An arrival behind waiters is not refused for that."""
    bulkhead = make(limit=2)
    arrive(bulkhead, "a")
    arrive(bulkhead, "b")
    waiter = queue(bulkhead, "c")
    bulkhead.held.clear()  # both have left, but not yet looked whether somebody waits

    arrive(bulkhead, "d")

    assert waiter is not None
    assert waiter.admitted
    assert list(bulkhead.held) == ["c", "d"]


def test_a_waiter_does_not_take_the_permit_of_an_earlier_caller() -> None:
    """The slower call, for which another one was refused, does run."""
    bulkhead = make(limit=1)
    bulkhead.held["slow"] = HERE  # it has found room, but not yet looked
    refused = is_refused(bulkhead)
    waiter = queue(bulkhead, "b")

    bulkhead.acquire("slow", HERE)

    assert waiter is not None
    assert (refused, waiter.admitted) == (True, False)
    leave(bulkhead, "slow")
    assert waiter.admitted


def test_a_waiter_that_withdraws_never_starts() -> None:
    """A waiter that timed out or was cancelled leaves the queue, and the next one moves up (B31)."""
    bulkhead = make(limit=1)
    arrive(bulkhead, "a")
    first, second = queue(bulkhead, "b"), queue(bulkhead, "c")
    assert first is not None
    assert second is not None

    bulkhead.release("b")
    leave(bulkhead, "a")

    assert (first.admitted, second.admitted, bulkhead.running) == (False, True, 1)


def test_a_waiter_that_withdraws_after_its_admission_passes_the_permit_on() -> None:
    """A cancellation between the admission and its notice does not lose the permit (B31, trap 19)."""
    bulkhead = make(limit=1)
    arrive(bulkhead, "a")
    first, second = queue(bulkhead, "b"), queue(bulkhead, "c")
    assert first is not None
    assert second is not None
    leave(bulkhead, "a")

    for _ in range(3):
        bulkhead.release("b")

    assert (second.admitted, bulkhead.running, len(bulkhead.waiting)) == (True, 1, 0)


def test_a_permit_whose_owner_cannot_be_woken_goes_to_the_next() -> None:
    """The loop of a waiter was closed: its wake-up fails, and the leaving call does not notice (B34)."""
    bulkhead = make(limit=1)
    woken: list[str] = []

    def closed() -> None:
        raise RuntimeError("Event loop is closed")

    arrive(bulkhead, "a")
    queue(bulkhead, "b", closed)
    queue(bulkhead, "c", closed)
    queue(bulkhead, "d", lambda: woken.append("d"))

    leave(bulkhead, "a")

    assert (woken, list(bulkhead.held)) == (["d"], ["d"])
    leave(bulkhead, "d")
    assert not is_refused(bulkhead)


def test_an_interruption_while_waking_loses_no_wake_up() -> None:
    """Ctrl-C on the thread that admits: every admitted waiter is woken all the same."""
    bulkhead = make(limit=2)
    woken: list[str] = []
    strikes = [KeyboardInterrupt()]

    def wake() -> None:
        if strikes:
            raise strikes.pop()
        woken.append("c")

    arrive(bulkhead, "a")
    arrive(bulkhead, "b")
    queue(bulkhead, "c", wake)
    queue(bulkhead, "d", lambda: woken.append("d"))
    bulkhead.held.clear()

    with pytest.raises(KeyboardInterrupt):
        bulkhead.admit_waiters()

    assert sorted(woken) == ["c", "d"]


def test_wake_ups_are_called_without_the_lock() -> None:
    """A wake-up may take a long time, and use the bulkhead from another thread (rule R10)."""
    bulkhead = make(limit=1)
    counted = []

    def wake() -> None:
        other = threading.Thread(target=lambda: counted.append(is_refused(bulkhead)))
        other.start()
        other.join(10)

    arrive(bulkhead, "a")
    queue(bulkhead, "b", wake)
    leave(bulkhead, "a")

    assert counted == [True]


@pytest.mark.parametrize("place", ["nothing", "permit", "queue", "admitted"])
def test_release_returns_a_permit_or_a_place_in_the_queue(place: str) -> None:
    """A driver uses it that was interrupted before it got the answer (rule R11)."""
    bulkhead = make(limit=1)
    me = object()
    if place == "permit":
        arrive(bulkhead, me)
    elif place != "nothing":
        arrive(bulkhead, "a")
        queue(bulkhead, me)
        if place == "admitted":
            leave(bulkhead, "a")

    bulkhead.release(me)
    leave(bulkhead, "a")

    assert (bulkhead.running, len(bulkhead.waiting)) == (0, 0)
    assert not is_refused(bulkhead)


# new values, forks


def test_a_smaller_bulkhead_drains() -> None:
    """Running calls go on and are counted; no call is admitted until fewer than the new limit run (rule C3)."""
    bulkhead = make(limit=3)
    for name in "abc":
        arrive(bulkhead, name)

    bulkhead.resize(1, 10)

    assert (bulkhead.running, is_refused(bulkhead)) == (3, True)
    leave(bulkhead, "a")
    leave(bulkhead, "b")
    assert (bulkhead.running, is_refused(bulkhead)) == (1, True)
    leave(bulkhead, "c")
    assert (bulkhead.running, is_refused(bulkhead)) == (0, False)


def test_a_larger_bulkhead_admits_waiters() -> None:
    """It admits as many as there is room for, in their order."""
    bulkhead = make(limit=1)
    woken: list[str] = []
    for name in "abcd":
        queue(bulkhead, name, lambda name=name: woken.append(name))

    bulkhead.resize(3, 10)

    assert (woken, bulkhead.running, len(bulkhead.waiting)) == (["b", "c"], 3, 1)


def test_a_shorter_queue_sends_nobody_away() -> None:
    """Waiters stay; the next call is refused."""
    bulkhead = make(limit=1, queue=3)
    for name in "abcd":
        queue(bulkhead, name)

    bulkhead.resize(1, 1)

    assert len(bulkhead.waiting) == 3
    with pytest.raises(BulkheadException):
        queue(bulkhead, "e")


def test_permits_of_threads_that_a_fork_left_behind_are_released() -> None:
    """In the child, permits and places of other threads are free; the forking thread keeps its own."""
    bulkhead = make(limit=2)
    woken: list[str] = []
    arrive(bulkhead, "mine")
    arrive(bulkhead, "theirs", THERE)
    queue(bulkhead, "their waiter", lambda: woken.append("theirs"), THERE)
    queue(bulkhead, "my waiter", lambda: woken.append("mine"))
    holder = threading.Thread(target=bulkhead._lock.acquire)  # another thread that was in the middle of something
    holder.start()
    holder.join()

    bulkhead.reset_after_fork(HERE)

    assert (list(bulkhead.held), woken, len(bulkhead.waiting)) == (["mine", "my waiter"], ["mine"], 0)


# the naive bulkhead


class NaiveBulkhead:
    """The yardstick: two lists, one caller at a time."""

    def __init__(self, limit: int, queue: int) -> None:
        self.limit, self.queue = limit, queue
        self.running: list[int] = []
        self.waiting: list[int] = []

    def arrive(self, me: int, may_wait: bool) -> str:
        if len(self.running) < self.limit and not self.waiting:
            self.running.append(me)
            return "runs"
        if may_wait and len(self.waiting) < self.queue:
            self.waiting.append(me)
            return "waits"
        return "refused"

    def remove(self, me: int) -> None:
        self.running = [one for one in self.running if one != me]
        self.waiting = [one for one in self.waiting if one != me]
        self.admit()

    def admit(self) -> None:
        while self.waiting and len(self.running) < self.limit:
            self.running.append(self.waiting.pop(0))


operations = st.one_of(
    st.just(("arrive", False)),
    st.just(("arrive", True)),
    st.just(("arrive", True)),
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("withdraw"), st.integers(0, 9)),
    st.tuples(st.just("abandon"), st.integers(0, 9)),
    st.tuples(st.just("resize"), st.integers(1, 4), st.integers(0, 4)),
)


@holds(75, 300, st.integers(1, 4), st.integers(0, 4), st.lists(operations, max_size=60))
def test_it_agrees_with_the_naive_bulkhead(limit: int, length: int, steps: list[Any]) -> None:
    """After any arrivals, ends, withdrawals and new values, the same calls run and the same calls wait."""
    bulkhead, naive = Bulkhead(limit, length), NaiveBulkhead(limit, length)
    waiters: dict[int, Waiter] = {}
    woken: list[int] = []
    admitted: list[int] = []
    me = 0

    for step, *arguments in steps:
        before = list(naive.waiting)
        if step == "arrive":
            me += 1
            outcome = "runs"
            try:
                if arguments[0]:
                    waiter = queue(bulkhead, me, lambda me=me: woken.append(me))
                    if waiter is not None:
                        waiters[me] = waiter
                        outcome = "waits"
                else:
                    arrive(bulkhead, me)
            except BulkheadException:
                outcome = "refused"
            assert outcome == naive.arrive(me, arguments[0])
        elif step == "leave" and naive.running:
            one = naive.running[arguments[0] % len(naive.running)]
            leave(bulkhead, one)
            naive.remove(one)
        elif step == "withdraw" and naive.waiting:
            one = naive.waiting[arguments[0] % len(naive.waiting)]
            bulkhead.release(one)
            naive.remove(one)
            before.remove(one)
        elif step == "abandon" and naive.running + naive.waiting:
            everyone = naive.running + naive.waiting
            one = everyone[arguments[0] % len(everyone)]
            bulkhead.release(one)
            naive.remove(one)
            before = [other for other in before if other != one]
        elif step == "resize":
            bulkhead.resize(*arguments)
            naive.limit, naive.queue = arguments
            naive.admit()
        admitted += [one for one in before if one in naive.running]

        assert set(bulkhead.held) == set(naive.running)
        assert list(bulkhead.waiting) == naive.waiting
        assert bulkhead.running == len(naive.running)
        assert woken == admitted


# every interleaving


class Baton:
    """A turn that one thread has at a time; chance decides at each visible step which thread is next."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.turns: dict[int, threading.Semaphore] = {}
        self.asleep: set[int] = set()
        self.done = threading.Event()
        self.moment = 0

    def run(self, works: list[Callable[[], None]]) -> None:
        self.turns = {number: threading.Semaphore(0) for number in range(len(works))}
        self.local = threading.local()
        self.errors: list[BaseException] = []

        def body(number: int) -> None:
            self.local.number = number
            self.turns[number].acquire()
            try:
                works[number]()
            except BaseException as error:
                self.errors.append(error)
            del self.turns[number]
            self._next()

        threads = [threading.Thread(target=body, args=(number,), daemon=True) for number in self.turns]
        for thread in threads:
            thread.start()
        self._next()
        assert self.done.wait(20), "the calls wait for one another"
        for thread in threads:
            if not self.asleep:
                thread.join(10)

    def step(self) -> None:
        """End a step that other threads can see: perhaps another thread goes first."""
        number = getattr(self.local, "number", None)
        if number is None:
            return
        mine = self.turns[number]
        self._next()
        mine.acquire()

    def sleep(self) -> None:
        """Wait until ``wake`` is called for this thread."""
        self.asleep.add(self.local.number)
        self.step()

    def wake(self, number: int) -> None:
        self.asleep.discard(number)

    def _next(self) -> None:
        self.moment += 1
        ready = sorted(set(self.turns) - self.asleep)
        if ready:
            self.turns[self.chance.choice(ready)].release()
        else:
            self.done.set()


class StepwiseLock:
    """A reentrant lock under which other threads go on, unless they need it."""

    def __init__(self, baton: Baton) -> None:
        self.baton = baton
        self.owner: int | None = None
        self.depth = 0

    def __enter__(self) -> None:
        me = self.baton.local.number
        while self.owner not in (None, me):
            self.baton.step()
        self.owner = me
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if not self.depth:
            self.owner = None
            self.baton.step()


class StepwiseDict(dict[Any, int]):
    """A dictionary at each of whose steps another thread may go first."""

    baton: Baton

    def __setitem__(self, key: Any, value: int) -> None:
        self.baton.step()
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        self.baton.step()
        super().__delitem__(key)

    def pop(self, *arguments: Any) -> Any:
        self.baton.step()
        return super().pop(*arguments)

    def __len__(self) -> int:
        self.baton.step()
        return super().__len__()

    def __iter__(self) -> Iterator[Any]:
        self.baton.step()
        return iter(list(super().keys()))


class Scene:
    """A few calls on one bulkhead, with the moment of everything that happened."""

    def __init__(self, seed: int, limit: int, length: int) -> None:
        self.baton = baton = Baton(seed)
        self.bulkhead = Bulkhead(limit, length)
        self.bulkhead._lock = StepwiseLock(baton)
        self.bulkhead.held = held = StepwiseDict()
        held.baton = baton
        self.began: dict[Any, int] = {}
        self.waiters: dict[Any, tuple[int, Waiter]] = {}  # since when
        self.overtaken: list[tuple[Any, Any]] = []
        self.left: dict[Any, int] = {}
        self.refused: dict[Any, int] = {}
        self.most = 0
        self.inside = 0

    def body(self, me: Any) -> None:
        for other, (since, waiter) in self.waiters.items():
            if since < self.began[me] and not waiter.admitted and other not in self.left:
                self.overtaken.append((me, other))
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.baton.step()
        self.inside -= 1
        leave(self.bulkhead, me)
        self.left[me] = self.baton.moment

    def call(self, number: int, turn: int, way: str) -> None:
        me = (number, turn)
        self.began[me] = self.baton.moment
        try:
            if way == "arrive":
                arrive(self.bulkhead, me)
            else:
                waiter = queue(self.bulkhead, me, lambda: self.baton.wake(number))
                if waiter is not None:
                    self.waiters[me] = (self.baton.moment, waiter)
                    if way == "queue":
                        if not waiter.admitted:
                            self.baton.sleep()
                        assert waiter.admitted
                    else:
                        self.baton.step()
                        self.left[me] = self.baton.moment  # from now on others may pass
                        self.bulkhead.release(me)
                        return
        except BulkheadException:
            self.refused[me] = self.baton.moment
        else:
            self.body(me)

    def play(self, ways: list[list[str]]) -> None:
        def work(number: int) -> Callable[[], None]:
            return lambda: [self.call(number, turn, way) for turn, way in enumerate(ways[number])] and None

        self.baton.run([work(number) for number in range(len(ways))])
        if self.baton.errors:
            raise self.baton.errors[0]


WAYS = [
    [["arrive", "arrive"]] * 3,
    [["arrive", "queue"], ["queue", "arrive"], ["arrive", "arrive"], ["queue"]],
    [["queue", "queue"]] * 3,
    [["queue"], ["give up", "give up"], ["arrive", "queue"], ["queue"]],
]


@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: " ".join("/".join(one) for one in ways))
@pytest.mark.parametrize(("limit", "length"), [(1, 1), (1, 3), (2, 2)])
@few_and_many("seeds", 8, 60)
def test_every_interleaving_keeps_the_promises(ways: list[list[str]], limit: int, length: int, seeds: int) -> None:
    """No order of steps exceeds the limit, loses a permit, refuses a call where there is room, or is unfair.

    Would catch: a look at ``waiting`` before the key is stored, a hand-over that trusts a count, a waiter that does not
    look again, a refusal because of a call that is refused itself.
    """
    for seed in range(seeds):
        scene = Scene(seed, limit, length)
        scene.play(ways)

        assert scene.most <= limit
        assert not scene.baton.asleep, f"seed {seed}: a waiter was never woken"
        assert not dict.__len__(scene.bulkhead.held)
        assert not len(scene.bulkhead.waiting)
        for me, moment in scene.refused.items():
            busy = max(
                sum(
                    began <= now and scene.left.get(other, now + 1) >= now
                    for other, began in scene.began.items()
                    if other != me and other not in scene.refused
                )
                for now in range(scene.began[me], moment + 1)
            )
            assert busy >= limit, f"seed {seed}: {me} was refused while there was room"
        assert not scene.overtaken, f"seed {seed}"


class MovingScene(Scene):
    """A scene in which a thread moves the limit."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 2, 3)
        self.limits = [(0, 2)]
        """Each limit, after the moment of its beginning."""
        self.beyond: list[Any] = []

    def body(self, me: Any) -> None:
        before = max(moment for moment, _ in self.limits if moment <= self.began[me])
        if self.inside + 1 > max(limit for moment, limit in self.limits if moment >= before):
            self.beyond.append(me)
        super().body(me)

    def move(self, limit: int) -> None:
        """Resize in steps: other threads may see a rise earlier, and a fall later."""
        self.baton.step()
        with self.bulkhead._lock:
            is_higher = limit > self.bulkhead.limit
            if is_higher:
                self.limits.append((self.baton.moment, limit))
            self.bulkhead.resize(limit, 3)
            if not is_higher:
                self.limits.append((self.baton.moment, limit))

    def play_with(self, ways: list[list[str]], moves: list[int]) -> None:
        def work(number: int) -> Callable[[], None]:
            return lambda: [self.call(number, turn, way) for turn, way in enumerate(ways[number])] and None

        self.baton.run([*map(work, range(len(ways))), lambda: [self.move(limit) for limit in moves] and None])
        if self.baton.errors:
            raise self.baton.errors[0]


@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: " ".join("/".join(one) for one in ways))
@few_and_many("seeds", 8, 60)
def test_every_interleaving_with_a_moving_limit_keeps_the_promises(ways: list[list[str]], seeds: int) -> None:
    """No call exceeds the highest limit since its arrival, no permit is lost, no waiter is overtaken (rule A1).

    Would catch: a limit that rises and admits no waiter, and a limit that is read twice where it counts.
    """
    for seed in range(seeds):
        scene = MovingScene(seed)
        scene.play_with(ways, random.Random(seed).choices([1, 2, 3], k=5))

        assert not scene.beyond, f"seed {seed}"
        assert not scene.baton.asleep, f"seed {seed}: a waiter was never woken"
        assert not dict.__len__(scene.bulkhead.held)
        assert not len(scene.bulkhead.waiting)
        assert not scene.overtaken, f"seed {seed}"


# a limit that adapts


def adaptive(limit: int, queue_length: int = 10) -> tuple[Bulkhead, list[float]]:
    now = [0.0]
    return Bulkhead(limit, queue_length, max_wait=60.0, latency=0.25, now=lambda: now[0]), now


def test_a_limit_that_rises_wakes_as_many_as_there_is_room_for() -> None:
    """More than one: when a call leaves, its permit and the new one are granted (trap 18)."""
    bulkhead, now = adaptive(4)
    for _ in range(3):
        now[0] += 1
        bulkhead.adapt(0.5)
    assert bulkhead.limit == 1
    arrive(bulkhead, "a")
    woken: list[str] = []
    for name in "bcdef":
        queue(bulkhead, name, lambda name=name: woken.append(name))

    now[0] += 1
    leave(bulkhead, "a")
    change = bulkhead.adapt(0.1)

    assert change is not None
    assert (change.old, change.new) == (1, 2)
    assert woken == ["b", "c"]
    bulkhead.resize(4, 10)
    assert woken == ["b", "c", "d", "e"]


def test_a_limit_that_falls_ends_nothing_and_admits_nobody_until_there_is_room() -> None:
    """By rule A1: running calls go on, and are counted."""
    bulkhead, now = adaptive(4)
    for name in "abcd":
        arrive(bulkhead, name)
    queue(bulkhead, "waits")
    now[0] += 1
    for _ in range(3):
        bulkhead.adapt(0.5, keeps_permit=True)

    assert (bulkhead.limit, bulkhead.running, len(bulkhead.waiting)) == (2, 4, 1)
    leave(bulkhead, "a")
    leave(bulkhead, "b")
    assert (bulkhead.running, len(bulkhead.waiting)) == (2, 1)
    leave(bulkhead, "c")
    assert (bulkhead.running, len(bulkhead.waiting)) == (2, 0)


def test_a_fork_keeps_the_limit_and_drops_the_permits_of_others() -> None:
    """By rule L5: the learned limit of a callee holds for the child too."""
    bulkhead, now = adaptive(4)
    for name, ident in (("a", HERE), ("b", THERE), ("c", THERE), ("d", THERE)):
        arrive(bulkhead, name, ident)
    now[0] += 1
    for _ in range(3):
        bulkhead.adapt(0.5, keeps_permit=True)

    bulkhead.reset_after_fork(HERE)

    assert (bulkhead.limit, bulkhead.running) == (2, 1)
    arrive(bulkhead, "e")
    assert is_refused(bulkhead)


@pytest.mark.parametrize("moment", range(12))
def test_calls_of_a_signal_handler_disturb_no_decision(moment: int) -> None:
    """By rule R11: late calls that end while another one is counted may begin an epoch there."""
    bulkhead, now = adaptive(8)
    strikes = [moment]

    class Strikes(list[int]):
        """A set of pending attempts; a signal arrives when it is counted."""

        def __getitem__(self, index: Any) -> Any:
            strikes[0] -= 1
            if strikes[0] == 0:
                for _ in range(3):
                    bulkhead.adapt(0.5)
            return super().__getitem__(index)

    assert bulkhead.adaptive is not None
    bulkhead.adaptive.uncounted = Strikes()
    for _ in range(12):
        now[0] += 0.3
        bulkhead.adapt(0.3)

        assert 1 <= bulkhead.limit <= 8
        assert bulkhead.limit == bulkhead.adaptive.limit


# threads


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("limit", [1, 3])
def test_threads_never_exceed_the_limit_and_lose_nothing(limit: int) -> None:
    """Eight threads arrive, wait, withdraw and change the limit; at the end the bulkhead is as at the beginning."""
    bulkhead = make(limit=limit, queue=4)
    inside: dict[object, None] = {}
    most: list[int] = []
    lost: list[object] = []
    ran: list[int] = []
    pause = threading.Event()

    def body(me: object) -> None:
        inside[me] = None
        most.extend(len(inside) for _ in range(100))  # long enough for others to come in meanwhile
        del inside[me]
        ran.append(1)
        leave(bulkhead, me)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(700):
            me = object()
            way = chance.random()
            try:
                if way < 0.4:
                    arrive(bulkhead, me, seed)
                    body(me)
                    continue
                woken = threading.Event()
                waiter = queue(bulkhead, me, woken.set, seed)
                if waiter is None:
                    body(me)
                elif way < 0.6:
                    bulkhead.release(me)
                elif woken.wait(10):
                    body(me)
                else:
                    lost.append(me)
            except BulkheadException:
                pause.wait(1e-4)  # or all tries may be over while the machine holds up the thread that is inside

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not lost
    assert max(most) <= limit
    assert (bulkhead.running, len(bulkhead.waiting), bulkhead.held) == (0, 0, {})
    assert len(ran) > 1000


def test_ten_thousand_waiters_come_and_go_in_any_order() -> None:
    """Neither admission nor withdrawal looks at all other waiters (B33)."""
    bulkhead = make(limit=100, queue=20_000)
    waiters = [queue(bulkhead, number) for number in range(10_000)]

    for waiter in reversed(waiters):
        if waiter is not None and waiter.attempt_id % 2:
            bulkhead.release(waiter.attempt_id)
    for number in range(10_000):
        leave(bulkhead, number)

    assert all(waiter is None or waiter.admitted == (waiter.attempt_id % 2 == 0) for waiter in waiters)
    assert (bulkhead.running, len(bulkhead.waiting)) == (0, 0)


# longest waits and tiers


class NaiveQueue:
    """The yardstick: a list of the waiters, in the order of arrival, and rules Q3, Q4 and K1 as they are worded."""

    def __init__(self, limit: int, queue: int, max_wait: float) -> None:
        self.limit, self.queue, self.max_wait = limit, queue, max_wait
        self.running: list[int] = []
        self.waiting: list[tuple[int, int, float]] = []
        self.filled_since = 0.0
        self.told: list[tuple[int, str]] = []

    def is_congested(self, now: float) -> bool:
        return now - self.filled_since > (self.max_wait or 0.1)

    def refuse_overdue(self, now: float) -> None:
        for me, tier, since in list(self.waiting):
            if self.max_wait and since + self.max_wait < now:
                self.waiting.remove((me, tier, since))
                self.told.append((me, "waited"))

    def admit(self, now: float) -> None:
        while self.waiting and len(self.running) < self.limit:
            first = self.waiting[0]
            if self.is_congested(now) and self.max_wait:
                first = max(self.waiting, key=lambda one: (one[1], self.waiting.index(one)))
            elif self.is_congested(now):
                first = max(self.waiting, key=lambda one: (one[1], -self.waiting.index(one)))
            self.waiting.remove(first)
            self.running.append(first[0])
            self.told.append((first[0], "admitted"))

    def arrive(self, me: int, tier: int, now: float) -> str:
        self.refuse_overdue(now)
        if not self.waiting and len(self.running) < self.limit:
            self.running.append(me)
            return "runs"
        if not self.waiting:
            self.filled_since = now
        self.waiting.append((me, tier, now))
        if len(self.waiting) <= self.queue:
            return "waits"
        lowest = [one for one in self.waiting if one[1] == min(other[1] for other in self.waiting)]
        loser = lowest[0] if self.max_wait and self.is_congested(now) else lowest[-1]
        self.waiting.remove(loser)
        if loser[0] == me:
            return "full"
        self.told.append((loser[0], "displaced"))
        return "waits"

    def leave(self, me: int, now: float) -> None:
        self.running = [one for one in self.running if one != me]
        self.waiting = [one for one in self.waiting if one[0] != me]
        self.refuse_overdue(now)
        self.admit(now)


@pytest.mark.parametrize("tiers", [1, 4])
@pytest.mark.parametrize("max_wait", [0.0, 0.2])
@few_and_many("seeds", 30, 150)
def test_the_queue_obeys_its_rules(max_wait: float, tiers: int, seeds: int) -> None:
    """By rules Q1 to Q5 and K1, written naively: the admitted calls, the reasons of refusals, and the order."""
    for seed in range(seeds):
        follows_the_rules(seed, max_wait, tiers)


def follows_the_rules(seed: int, max_wait: float, tiers: int) -> None:
    dice, now, told = random.Random(seed), [0.0], list[tuple[int, str]]()
    limit, size = dice.randint(1, 3), dice.randint(1, 6)
    bulkhead = Bulkhead(limit, size, max_wait=max_wait, now=lambda: now[0])
    naive = NaiveQueue(limit, size, max_wait)
    waiters: dict[int, Waiter] = {}
    for me in range(120):
        now[0] += dice.choice([0.0, 0.01, 0.03, 0.3 if dice.random() < 0.2 else 0.02])
        if dice.random() < 0.6:
            tier = dice.randrange(tiers)

            def wake(me: int = me) -> None:
                told.append((me, waiters[me].reason or "admitted"))

            waiters[me] = Waiter(me, HERE, wake, tier)
            try:
                end = "runs" if bulkhead.enter(waiters[me]) is None else "waits"
            except BulkheadException as refusal:
                end = refusal.reason
            assert end == naive.arrive(me, tier, now[0]), f"seed {seed}, call {me}"
        elif here := [*naive.running, *(one[0] for one in naive.waiting)]:
            goes = dice.choice(here)
            bulkhead.release(goes)
            naive.leave(goes, now[0])
        assert told == naive.told, f"seed {seed}, call {me}"
        assert list(bulkhead.held) == naive.running, f"seed {seed}, call {me}"


def test_a_waiter_that_cannot_look_at_the_clock_is_refused_in_its_time() -> None:
    """By rule Q2: the next caller refuses it; a loop that was closed delays no other call (B34)."""
    now, told = [0.0], list[str]()
    bulkhead = Bulkhead(1, 1, max_wait=0.2, now=lambda: now[0])
    arrive(bulkhead, "runs")
    bulkhead.enter(Waiter("gone", HERE, lambda: told.append("gone")))
    now[0] = 0.21

    assert bulkhead.enter(Waiter("next", HERE, lambda: told.append("next"))) is not None
    assert told == ["gone"]
    assert list(bulkhead.waiting) == ["next"]


def test_a_waiter_whose_time_is_over_is_woken_once() -> None:
    """By rule Q2, rule Q5: a timer that comes late, or twice, changes nothing."""
    told: list[str] = []
    bulkhead = Bulkhead(1, 5, max_wait=0.2)
    arrive(bulkhead, "runs")
    late = bulkhead.enter(Waiter("late", HERE, lambda: told.append("late")))
    lucky = bulkhead.enter(Waiter("lucky", HERE, lambda: told.append("lucky")))
    assert late is not None
    assert lucky is not None

    bulkhead.expire(late)
    bulkhead.expire(late)
    leave(bulkhead, "runs")
    bulkhead.expire(lucky)

    assert told == ["late", "lucky"]
    assert (late.reason, late.admitted, lucky.reason, lucky.admitted) == ("waited", False, "", True)
    assert list(bulkhead.held) == ["lucky"]
