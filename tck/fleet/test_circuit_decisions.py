"""The circuit of a fleet: its openings and its probes (rules F3 and F4)."""

from __future__ import annotations

from itertools import product

import pytest

from faulttolerance._extensions.fleet.protocol import OpenRequest, ProbeRequest
from faulttolerance._strategy.circuit_breaker import CLOSED, HALF_OPEN, OPEN
from faulttolerance._strategy.verdict import FAILURE, NEUTRAL, SUCCESS
from kit.replicas import POLL, World, opened

# F3


def test_a_circuit_that_a_process_opens_is_open_in_all_within_poll() -> None:
    """By rule F3: the process writes the opening, and the others read it; the delay counts at the server."""
    world = World(3, latency=0.01)
    world.processes[0].fail()
    world.advance(POLL + 0.02)

    assert world.states == [OPEN] * 3
    assert [process.call() for process in world.processes] == [False] * 3
    assert [move[:2] for move in world.processes[2].moves] == [(CLOSED, OPEN)]
    assert "last OSError" in world.processes[2].moves[0][2]
    assert [round(process.breaker.state.until - 1005.0, 1) for process in world.processes] == [0.0] * 3


def test_closed_and_open_circuits_ask_nobody() -> None:
    """By rule F3: a second of calls sends nothing except the opening of the circuit."""
    world = World()
    one, other = world.processes
    for process in world.processes:
        process.sent.clear()
        for _ in range(100):
            process.call()
    one.fail()
    for _ in range(100):
        one.call()

    assert [type(question) for question in one.sent] == [OpenRequest]
    assert other.sent == []


def test_two_processes_that_open_at_once_make_one_opening() -> None:
    """By rule F3: the second process is fenced off by the version that it has seen, and follows."""
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


def test_an_opening_that_was_overtaken_yields_to_a_newer_state() -> None:
    """By rule F3: the circuit of the fleet has opened and closed meanwhile."""
    world = World(latency=0.02)
    one = world.processes[0]
    world.advance(0.1)
    world.server.set_circuit("key", round((world.now + world.ahead) * 1e6), None)
    one.fail()
    world.advance(0.03)

    assert world.states[0] == CLOSED
    assert world.record.state == CLOSED


def test_an_emptied_server_learns_again_of_open_circuits() -> None:
    """By rule F3: a circuit that is open somewhere opens again for all, with the rest of its delay."""
    world = opened(after=2.0)
    before = world.record.version
    world.server.clear()
    world.advance(POLL)

    assert world.record.state == OPEN
    assert world.record.version > before
    assert world.record.wait <= 3_000_000
    assert world.states == [OPEN, OPEN]


def test_a_server_that_has_lost_its_data_is_believed() -> None:
    """By rule F3: answers come in their order, so an older version is what the server has now."""
    world = opened(after=2.0)
    one = world.processes[0]
    older = world.record._replace(version=world.record.version - 1, state=CLOSED, wait=0)

    one.circuit.follow(older, world.now)

    assert one.breaker.state_name(world.now) == CLOSED


# F4


def test_a_refused_call_asks_for_a_place_and_the_next_call_is_the_probe() -> None:
    """By rule F4: the whole fleet has one place; the success of its probe closes the circuit for all."""
    world = opened()
    one, other = world.processes

    assert [one.call(), one.sent[-1].__class__] == [False, ProbeRequest]
    probe = one.begin()
    assert probe is not None
    assert [one.call(), other.call(), one.call(), other.call()] == [False] * 4
    one.end(probe, SUCCESS)
    assert world.record.state == CLOSED
    world.advance(POLL)

    assert world.states == [CLOSED, CLOSED]


def test_a_probe_that_fails_opens_the_circuit_for_all_and_for_longer_each_time() -> None:
    """By rule F4: with ``max_delay`` the delay doubles with each failure in a row, in any process."""
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
    """By rule F4, trap 28: the next process that asks gets the place."""
    world = opened()
    one, other = world.processes
    one.call()
    probe = one.begin()
    assert probe is not None
    one.end(probe, NEUTRAL)

    assert [other.call(), other.call(SUCCESS)] == [False, True]
    assert world.record.state == CLOSED


def test_a_probe_whose_admission_was_interrupted_gives_its_place_back() -> None:
    """By rule F4, trap 28: control flow came before the caller knew which state of the gate had admitted it."""
    world = opened()
    one, other = world.processes
    one.call()
    probe = one.begin()
    one.gate.settle(one.gate.state, probe, NEUTRAL, world.now)
    one.gate.settle(one.gate.state, object(), NEUTRAL, world.now)

    assert [other.call(), other.call()] == [False, True]


@pytest.mark.parametrize(("delay", "kept"), [(5.0, 5.0), (0.0, 60.0)])
def test_the_probe_of_a_killed_process_frees_its_place_after_the_delay(delay: float, kept: float) -> None:
    """By rule F4, trap 28: without a delay the place is free after a minute."""
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


def test_an_idle_place_goes_to_a_process_that_is_refused_meanwhile() -> None:
    """By rule F4: a process that is not called any more does not keep the only probe."""
    world = opened()
    one, other = world.processes
    one.call()
    for _ in range(20):
        world.advance(0.1)
        if other.call():
            break

    assert world.record.state == CLOSED


def test_the_place_of_a_process_that_died_idle_is_free_after_a_second() -> None:
    """By rule F4: no process renews it."""
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
    """By rule F4: no process starves where a few processes take turns and each is called every five seconds."""
    world = opened(processes=rate, latency=latency)
    made = 0
    while world.record.state != CLOSED:
        world.processes[made % rate].call()
        made += 1
        world.advance(5.0 / rate)
        assert made <= 4 * rate

    world.advance(POLL + latency)
    assert world.states == [CLOSED] * rate


@pytest.mark.parametrize(("processes", "seconds"), [*product((1, 3), (20.0, 60.0, 600.0)), (1, 4000.0)])
def test_the_circuit_closes_again_where_calls_are_very_rare(processes: int, seconds: float) -> None:
    """By rule F4: no circuit is shut for ever, even if the server forgets it between two calls."""
    world = opened(processes=processes, after=6.0, latency=0.02)
    for number in range(4 * processes):
        world.processes[number % processes].call()
        world.advance(seconds / processes)

    assert world.record.state == CLOSED


def test_a_place_of_a_process_that_is_called_rarely_goes_to_one_that_is_called_often() -> None:
    """By rule F4: it goes within half a minute, even if the first process lives and is called no more."""
    world = opened(after=6.0, latency=0.02)
    one, other = world.processes
    one.call()
    world.advance(600.0)
    one.call()
    world.advance(100.0)
    assert not one.circuit.is_idle(world.now)
    refused = 0
    while not other.call():
        world.advance(0.5)
        refused += 1
    world.advance(0.1)

    assert world.record.state == CLOSED
    assert refused <= 62


def test_rare_calls_find_their_place_where_nothing_is_polled() -> None:
    """By rule F4: a fleet in this process has no thread; the place is asked for again when a call needs it."""
    world = opened(processes=1)
    (one,) = world.processes
    one.next_read = float("inf")
    one.call()
    world.advance(60.0)

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
        assert world.record.state == OPEN
        process.end(probe, SUCCESS)
    world.advance(POLL)

    assert world.states == [CLOSED, CLOSED]


def test_denied_places_are_not_asked_for_by_every_call() -> None:
    """By rule F4: at most one question is on its way, and pauses follow after some denials."""
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
    """With ``delay=0`` the circuit refuses calls only because of its probes."""
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
