"""The circuit of a fleet under random histories: losses, delays, flushes, killed processes; and a sequential model."""

from __future__ import annotations

from hypothesis import strategies as st

from faulttolerance._strategy.circuit_breaker import CLOSED, HALF_OPEN, OPEN
from faulttolerance._strategy.verdict import FAILURE, NEUTRAL, SUCCESS
from kit.examples import holds
from kit.replicas import POLL, Process, World

# Random histories

STEPS = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 2), st.integers(0, 7)), max_size=60)


class History:
    """A fleet to which random things happen, with a check of the number of its probes."""

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
            world.server.clear()
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
        """Check that no more probes run than the threshold, except those that outlived their delay or are forgotten."""
        world, delay = self.world, self.world.values["delay"] or 60.0
        since = max(world.now - delay, self.forgotten_at)
        running = [attempt for process in world.processes for attempt in process.running.values()]
        probes = [began for _, began, is_leased in running if is_leased and began > since]
        assert len(probes) <= world.values["success_threshold"]

    def calm_down(self) -> None:
        """Connect each process to the server, end all failures, and call each process now and then."""
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


@holds(20, 200, STEPS, st.integers(1, 3), st.sampled_from([0.0, 0.004, 0.04]), st.sampled_from([0.0, 1.0, 5.0]))
def test_a_fleet_never_probes_more_than_it_may_and_closes_in_the_end_after_any_history(
    steps: list[tuple[int, int, int]], threshold: int, latency: float, delay: float
) -> None:
    """By rules F3, F4 and F5: losses, delays, flushes, a clock set back, killed processes (traps 28 and 32).

    Once all processes reach the server and nothing fails, all circuits are closed, and no process holds a place.
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


# One step after the other


class Model:
    """A naive model with one circuit for all: nothing takes time, and every process knows everything."""

    def __init__(self, processes: int, threshold: int) -> None:
        self.threshold = threshold
        self.windows: list[list[bool]] = [[] for _ in range(processes)]
        self.leases = set[int]()
        self.successes = 0
        self.state = CLOSED

    def call(self, who: int, fails: bool) -> bool:
        if self.state == CLOSED:
            window = self.windows[who] = [*self.windows[who][-1:], fails]
            if len(window) == 2 and any(window):
                self.open()
            return True
        if self.state == OPEN:
            return False
        if who not in self.leases:
            if self.successes + len(self.leases) < self.threshold:
                self.leases.add(who)
            return False
        self.leases.remove(who)
        self.successes += not fails
        if fails:
            self.open()
        elif self.successes == self.threshold:
            self.state = CLOSED
            self.windows = [[] for _ in self.windows]
        return True

    def open(self) -> None:
        self.state, self.successes = OPEN, 0
        self.leases.clear()

    def wait(self) -> None:
        if self.state == OPEN:
            self.state = HALF_OPEN


@holds(20, 200, st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=60), st.integers(1, 3))
def test_a_fleet_in_which_nothing_takes_time_is_one_circuit(
    steps: list[tuple[int, bool, bool]], threshold: int
) -> None:
    """By rules F3 and F4: each call goes as in the sequential model, in which all processes have one circuit."""
    world, model = World(3, success_threshold=threshold), Model(3, threshold)
    for who, fails, waits in steps:
        if waits and model.state == OPEN:
            world.advance(5.0)
            model.wait()
        assert world.processes[who].call(FAILURE if fails else SUCCESS) == model.call(who, fails)
        for process in world.processes:
            process.read()
        assert world.states == [model.state] * 3
