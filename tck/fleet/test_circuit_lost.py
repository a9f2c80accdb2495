"""The circuit of a fleet that is lost, found again, emptied or not told, and its local states (rules F5 and F6)."""

from __future__ import annotations

import pytest

from faulttolerance import CircuitBreakerOpenException
from faulttolerance._extensions.fleet.protocol import OnResponse, OpenRequest, ProbeRequest, Request
from faulttolerance._strategy.circuit_breaker import CLOSED, HALF_OPEN, OPEN, CircuitValues
from faulttolerance._strategy.verdict import FAILURE, NEUTRAL, SUCCESS
from kit.replicas import POLL, Process, World, closed_again, opened

# F5, and what is local


def test_a_circuit_is_local_while_the_fleet_is_lost_and_shared_afterwards() -> None:
    """By rule F5: it probes and closes in this process; an open circuit of the fleet opens it again."""
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


def test_an_opening_while_the_fleet_was_lost_is_written_when_it_is_back() -> None:
    """By rule F5: it is written with the rest of the delay."""
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


def test_a_circuit_that_is_half_open_when_the_fleet_is_back_is_probed_by_all() -> None:
    """By rule F5: no circuit stays half-open without a place that a process can get."""
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


def test_a_process_decides_alone_before_its_circuit_is_told_of_the_loss() -> None:
    """By rule F5: the fleet is lost, and the circuit was not told yet."""
    world = opened()
    one = world.processes[0]
    one.is_up = False

    assert one.call()
    assert world.states[0] == CLOSED


def test_a_reset_holds_until_the_circuit_of_the_fleet_moves() -> None:
    """By rule F6: a reset is local, even if the fleet is lost and found meanwhile; a forced circuit follows nothing."""
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
    one.breaker.force(world.now, CLOSED)
    world.advance(20.0)
    other.call()
    other.call(FAILURE)
    world.advance(POLL)

    assert world.states == [CLOSED, OPEN]


def test_a_circuit_that_is_forced_open_asks_nobody_and_keeps_no_place() -> None:
    """By rule F6: a process that is refused elsewhere gets the place after a second."""
    world = opened()
    one, other = world.processes
    one.call()
    one.breaker.force(world.now, OPEN)
    one.sent.clear()
    for _ in range(3):
        one.call()
    assert one.sent == []
    world.advance(1.0)

    assert [other.call(), other.call()] == [False, True]
    assert world.states[0] == OPEN


def test_a_child_process_has_no_place_of_its_parent() -> None:
    """By rule F4: the child follows the fleet anew, and has no part in a probe of its parent."""
    world = opened()
    one, other = world.processes
    one.call()
    probe = one.begin()
    assert probe is not None
    one.breaker.reset_after_fork(1)
    one.circuit.reset_after_fork()
    one.sent.clear()
    one.end(probe, NEUTRAL)

    assert one.sent == []
    assert one.circuit.is_idle(world.now)
    one.read()
    assert [one.call(), one.call(), other.call()] == [False] * 3


def test_a_place_that_came_before_a_loss_runs_out() -> None:
    """By rule F4: no call here would use the place, and a process that is refused elsewhere gets it."""
    world = opened(after=6.0, latency=0.02)
    one, other = world.processes
    one.call()
    one.circuit.follow(None, world.now)
    world.advance(1.1)
    other.call()
    world.advance(0.1)

    assert one.circuit.is_idle(world.now)
    assert other.call()


def test_new_values_are_those_of_the_next_decision() -> None:
    """A reload changes threshold and delay of the next place that is asked for and of the next opening."""
    world = opened()
    one = world.processes[0]
    one.breaker.reconfigure(CircuitValues(7.0, 2, 0.5, 2), world.now)
    world.advance(2.0)
    one.call()
    wish = one.sent[-1]
    assert isinstance(wish, ProbeRequest)
    assert wish.places == 2
    assert one.call(FAILURE)

    assert world.record.wait == 7_000_000


def test_an_opening_that_an_interruption_kept_back_is_written_later() -> None:
    """Control flow may come before the question; the opening is written at the next reading."""
    world = World()
    one = world.processes[0]
    for _ in range(2):
        one.breaker.settle(one.breaker.state, object(), FAILURE, world.now, "OSError")
    world.advance(2 * POLL)

    assert world.states == [OPEN, OPEN]


def test_a_circuit_that_opens_before_its_process_has_read_anything_is_news_for_the_fleet() -> None:
    """By rule F5: a process that has just begun knows no version that could be newer."""
    world = closed_again()
    late = Process(world)
    world.processes.append(late)
    late.fail()
    late.read()
    world.advance(POLL)

    assert world.states == [OPEN] * 3


def test_an_opening_while_the_fleet_is_lost_is_written_over_an_older_closed_state() -> None:
    """By rule F5: the version of the fleet is the known one, so nothing is newer."""
    world = closed_again()
    one = world.processes[0]
    one.lose()
    one.fail()
    one.regain()
    world.advance(POLL)

    assert world.states == [OPEN, OPEN]


def test_a_circuit_that_is_still_open_when_the_fleet_is_back_is_open_here() -> None:
    """By rule F5: this holds although the circuit has closed here meanwhile, and has not moved there."""
    world = opened(after=1.0, max_delay=60.0, delay=20.0)
    one = world.processes[0]
    one.breaker.reconfigure(CircuitValues(2.0, 2, 0.5, 1), world.now)
    one.lose()
    world.advance(3.0)
    assert one.call()
    one.regain()

    assert world.states == [OPEN, OPEN]


def test_a_circuit_is_local_until_the_fleet_is_heard_of() -> None:
    """By rule F5: this holds even if the fleet could be asked already."""
    world = opened()
    one = world.processes[0]
    one.circuit.follow(None, world.now)

    assert one.call()


def test_an_opening_is_written_once() -> None:
    """By rule F3: calls under way do not write it again, and forced or reset circuits write nothing."""
    world = World(latency=0.02)
    one, other = world.processes
    other.breaker.force(world.now, OPEN)
    world.advance(3 * POLL + 0.1)  # no answer is on its way
    begun = [one.begin() for _ in range(8)]
    for me in begun[:5]:
        one.end(me, FAILURE)
    world.advance(0.5)
    for me in begun[5:]:
        one.end(me, FAILURE)
    one.breaker.reset(world.now)
    one.fail()

    assert [type(question) for question in (*one.sent, *other.sent)].count(OpenRequest) == 1


@pytest.mark.parametrize("kind", [OpenRequest, ProbeRequest])
def test_a_question_that_was_interrupted_before_it_was_sent_is_asked_again(kind: type) -> None:
    """Ctrl-C may come between decision and question; no answer is then awaited for longer than a second."""
    world = World() if kind is OpenRequest else opened()
    one = world.processes[0]
    send = one.send

    def interrupted(question: Request, tell: OnResponse) -> bool:
        if isinstance(question, kind):
            raise KeyboardInterrupt
        return send(question, tell)

    one.send = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        one.fail()
    one.send = send  # type: ignore[method-assign]
    world.advance(1.1 * POLL)
    one.call()

    assert world.states[0] == (OPEN if kind is OpenRequest else HALF_OPEN)
    assert world.record.state == OPEN
    assert one.call() == (kind is ProbeRequest)


def test_an_emptied_server_learns_at_once_of_an_opening_a_moment_ago() -> None:
    """By rule F3: an opening that was answered is no longer on its way."""
    world = World()
    one = world.processes[0]
    one.fail()
    world.server.clear()
    one.read()

    assert world.record.state == OPEN


def test_a_place_is_not_used_after_its_time() -> None:
    """By rule F4: another process has it, or may have it before the server is told of its use."""
    world = opened(after=6.0, latency=0.04)
    one, other = world.processes
    one.call()
    world.advance(0.93)
    assert one.begin() is None
    world.advance(5.0)
    other.call()
    world.advance(0.1)
    probe = other.begin()
    assert probe is not None

    assert one.begin() is None


def test_a_process_has_at_most_one_question_for_a_place_on_its_way() -> None:
    """By rule F4: calls that come meanwhile are refused."""
    world = opened(after=6.0, latency=0.04)
    one = world.processes[0]
    one.sent.clear()
    for _ in range(3):
        assert not one.call()

    assert [type(question) for question in one.sent] == [ProbeRequest]


def test_a_place_is_lent_for_longer_the_rarer_calls_are() -> None:
    """By rule F4: a second at first, twice the time between two calls then, thirty seconds at most."""
    world = opened(processes=1)
    (one,) = world.processes
    one.circuit._new_holder = lambda: "another"
    world.exchange(ProbeRequest("key", world.record.version, "else", 1, 3_600_000_000))
    for seconds in (0.1, 0.7, 4.0, 100.0):
        one.call()
        world.advance(seconds)
    one.call()
    lengths = [question.length / 1e6 for question in one.sent if isinstance(question, ProbeRequest)]

    assert [round(length, 1) for length in dict.fromkeys(lengths)] == [1.0, 1.4, 8.0, 30.0]


def test_the_rate_of_calls_is_measured_anew_each_time_the_circuit_has_been_open() -> None:
    """By rule F4: a process that was refused for a minute is not one that is called once a minute."""
    world = opened(processes=1, delay=60.0, after=60.0)
    (one,) = world.processes
    one.call()
    assert one.call(FAILURE)
    world.advance(60.0)
    one.call()

    lengths = [question.length for question in one.sent if isinstance(question, ProbeRequest)]
    assert lengths == [1_000_000, 60_000_000, 1_000_000]  # the probe kept its place for the delay


def test_a_probe_that_never_ends_is_forgotten_when_the_circuit_moves() -> None:
    """By rule F4: its verdict would have no effect, and nothing here waits for it."""
    world = opened()
    one, other = world.processes
    one.call()
    probe = one.begin()
    assert probe is not None
    world.advance(6.0)
    other.call()
    assert other.call()
    world.advance(POLL)
    assert one.circuit.is_idle(world.now)
    one.sent.clear()
    one.end(probe, SUCCESS)

    assert one.sent == []


def test_a_fleet_with_much_patience_lends_for_longer() -> None:
    """By rule F4: a message may take as long as the patience."""
    world = opened(processes=1)
    (one,) = world.processes
    one.patience = 1.0
    one.call()
    lease = one.sent[-1]

    assert isinstance(lease, ProbeRequest)
    assert lease.length == 4_000_000


def test_without_a_delay_a_second_place_is_no_probe_of_a_circuit_that_has_opened() -> None:
    """By rule F4: the answer of the fleet to the failure is on its way."""
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


def test_a_probe_that_fails_while_the_circuit_is_forced_open_gives_its_place_back() -> None:
    """By rule F6: a forced state is for this process alone; another process finds out by its own probe."""
    world = opened()
    one, other = world.processes
    one.call()
    probe = one.begin()
    assert probe is not None
    one.breaker.force(world.now, OPEN)
    one.end(probe, FAILURE)

    assert [other.call(), other.call()] == [False, True]


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


def test_a_call_before_the_end_of_the_delay_is_told_the_rest_of_it() -> None:
    """By rule F3: the delay counts at the server, even after a reload here; no call asks before its end."""
    world = opened(after=1.0)
    one = world.processes[0]
    one.breaker.reconfigure(CircuitValues(0.5, 2, 0.5, 1), world.now)
    one.call()
    one.sent.clear()
    with pytest.raises(CircuitBreakerOpenException) as found:
        one.gate.admit(object(), 1, world.now)

    assert found.value.retry_after == pytest.approx(4.0)
    assert one.sent == []
