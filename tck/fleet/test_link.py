"""Rules F1 and F5: the one link of a process, which is lost at once and finds the fleet again by itself."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import faulttolerance
from faulttolerance import FaultToleranceDefinitionException, Guard, configure, health
from faulttolerance._extensions.fleet.fleet_link import fleet_link
from faulttolerance._extensions.fleet.protocol import (
    CircuitRecord,
    OpenRequest,
    PollRequest,
    ProbeRequest,
    Request,
    TurnRequest,
)
from faulttolerance._extensions.fleet.server import redis
from faulttolerance._extensions.fleet.server_link import ThreadedLink
from faulttolerance.instrumentation import FleetLost, FleetRegained, set_event_sinks
from faulttolerance.policies import CircuitBreaker, FleetWide, RateLimit
from faulttolerance.testing import MemoryFleet, reset, virtual_time
from kit.fleet import DistantFleet, DistantSession
from kit.waiting import wait_until

TURN = TurnRequest("limit", "rolling", 1_000_000, 1_000_000, 1)
OPEN = OpenRequest("circuit", 0, 5_000_000, 0, "it failed")


@pytest.fixture
def fleet() -> Iterator[DistantFleet]:
    """A fleet that is configured."""
    fleet = DistantFleet()
    configure(fleet=fleet)
    yield fleet
    fleet.thawed.set()
    reset()


class Circuit:
    """A circuit that records what it is told."""

    def __init__(self, key: str = "circuit") -> None:
        self.key = key
        self.told: list[CircuitRecord | None] = []
        fleet_link.register(self)

    def follow(self, record: CircuitRecord | None, now: float) -> None:
        self.told.append(record)

    @property
    def state(self) -> str | None:
        """The state that it was told last; ``None``: lost."""
        return self.told[-1].state if self.told and self.told[-1] is not None else None


def ask(question: Request = TURN, seconds: float = 5.0) -> Any:
    """Ask as a call that waits on its thread; return "alone" if it has to decide alone at once."""
    told: list[Any] = []
    came = threading.Event()

    def tell(answer: Any) -> None:
        told.append(answer)
        came.set()

    if not fleet_link.current.send(question, tell):
        return "alone"
    assert came.wait(seconds)
    assert len(told) == 1
    return told[0]


def lost(fleet: DistantFleet) -> None:
    """Fail the fleet, and make a call that finds out."""
    fleet.failure = ConnectionError("gone")
    assert ask() in (None, "alone")
    wait_until(lambda: not fleet_link.current.health.is_up)


def test_an_answer_comes_by_the_link(fleet: DistantFleet) -> None:
    assert ask() == 0
    assert fleet_link.current.health.is_up
    assert fleet_link.current.patience == fleet.patience


def test_questions_that_have_gathered_are_asked_at_once(fleet: DistantFleet) -> None:
    """A batch has at most 128 questions, in the order in which they came (rule F1)."""
    fleet.delay = 0.05
    told: list[int] = []
    for _ in range(300):
        assert fleet_link.current.send(TURN, told.append)
    wait_until(lambda: len(told) == 300)

    assert max(fleet.batches) in (127, 128)
    assert len(fleet.batches) <= 6


@pytest.mark.parametrize("breakers", [1, 500])
def test_a_single_poll_reads_all_circuits(fleet: DistantFleet, breakers: int) -> None:
    """The polls do not grow with the number of breakers (trap 30)."""
    circuits = [Circuit(f"circuit {number}") for number in range(breakers)]
    fleet.answer(OPEN._replace(key="circuit 0"))
    before = len(fleet.asked)
    wait_until(lambda: circuits[0].state == "open")

    assert len(fleet.asked) - before <= 10
    assert all(circuit.state == "closed" for circuit in circuits[1:])


def test_a_circuit_that_asks_follows_the_answer_and_the_others_follow_the_next_poll(fleet: DistantFleet) -> None:
    """Two guards of one process with one name behave as if they were in two processes."""
    one, other, stranger = Circuit(), Circuit(), Circuit("stranger")
    wait_until(lambda: None not in (one.state, other.state, stranger.state))
    told: list[Any] = []
    assert fleet_link.current.send_for(one, OPEN, lambda answer: told.append((answer.state, one.state)))
    wait_until(lambda: told == [("open", "open")])
    wait_until(lambda: other.state == "open")

    assert stranger.state == "closed"


def test_a_circuit_that_comes_late_is_told_the_known_state(fleet: DistantFleet) -> None:
    """Its wait is shorter by the time that has passed since the reading."""
    ask(OPEN)
    early = Circuit()
    wait_until(lambda: early.state == "open")
    late = Circuit()
    wait_until(lambda: late.state == "open")

    assert late.told[0] is not None
    assert 0 < late.told[0].wait <= OPEN.delay


def test_circuits_are_enrolled_as_long_as_they_live(fleet: DistantFleet) -> None:
    circuits = [Circuit(f"circuit {number}") for number in range(10)]
    del circuits
    wait_until(lambda: not fleet_link._circuits)


def test_a_failing_fleet_is_lost_for_the_whole_process_at_once(fleet: DistantFleet) -> None:
    """Every waiting call is told, and no call asks again (rule F5, trap 27)."""
    fleet.thawed.clear()
    told: list[Any] = []
    for _ in range(200):
        assert fleet_link.current.send(TURN, told.append)
    fleet.failure = ConnectionError("gone")
    fleet.thawed.set()
    wait_until(lambda: len(told) == 200)

    assert told == [None] * 200
    assert ask() == "alone"
    assert not fleet_link.current.health.is_up


def test_a_late_answer_counts_and_is_told_to_the_call_that_asked(fleet: DistantFleet) -> None:
    """By rule F5: the fleet is late while a question is out for longer than the patience, and is not lost by that."""
    fleet.patience = 0.02
    configure(fleet=None)
    configure(fleet=fleet)
    assert ask() == 0
    fleet.silence = 60.0
    fleet.thawed.clear()
    told: list[Any] = []
    assert fleet_link.current.send(TURN, told.append)
    wait_until(lambda: not fleet_link.current.is_prompt)
    assert fleet_link.current.health.is_up
    assert told == []
    fleet.thawed.set()
    wait_until(lambda: fleet_link.current.is_prompt)

    assert told == [0]
    assert ask() == 0


def test_a_fleet_that_is_swapped_frees_all_that_wait(fleet: DistantFleet) -> None:
    """Calls of the batch that hangs and calls behind it are freed; a later answer is told to nobody."""
    fleet.silence = 60.0
    fleet.thawed.clear()
    told: list[Any] = []
    for _ in range(200):
        assert fleet_link.current.send(TURN, told.append)
    configure(fleet=None)
    wait_until(lambda: len(told) == 200)  # the thread of the link tells those that it took just before

    assert told == [None] * 200
    assert ask() == "alone"
    fleet.thawed.set()
    configure(fleet=fleet)
    assert ask() == 0
    assert told == [None] * 200


def test_processes_are_counted_at_each_poll(fleet: DistantFleet) -> None:
    """By rule F5: a process that missed three polls is gone; each process knows how many there are."""
    wait_until(lambda: bool(fleet.asked))
    assert fleet_link.current.processes == 1
    other: Any = fleet.answer(PollRequest("other", round(3e6 * fleet.poll)))
    assert other.processes == 2
    wait_until(lambda: fleet_link.current.processes == 2)
    wait_until(lambda: fleet_link.current.processes == 1)
    lost(fleet)
    assert fleet_link.current.processes == 1
    configure(fleet=None)
    assert fleet_link.current.processes == 0


@pytest.mark.parametrize("refused", [TURN, OPEN], ids=["a turn", "a circuit"])
def test_a_fleet_that_refuses_the_questions_of_calls_stays_lost(
    fleet: DistantFleet, refused: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By rule F5: it is found again when it answers such questions, and not because it can be read."""
    monkeypatch.setattr("faulttolerance._extensions.fleet.health._LONGEST_PAUSE", 0.05)
    ask()
    tried: list[Request] = []

    def refuse(question: Request) -> None:
        if isinstance(question, (TurnRequest, ProbeRequest, OpenRequest)):
            tried.append(question)
            raise PermissionError("no right")

    fleet.refuse = refuse
    assert ask(refused) is None
    wait_until(lambda: len(tried) > 3)
    assert not fleet_link.current.health.is_up
    assert all(question.key == "" for question in tried[1:])
    fleet.refuse = lambda _: None
    wait_until(lambda: fleet_link.current.health.is_up)

    before = len(fleet.asked)
    wait_until(lambda: len(fleet.asked) > before + 4)
    assert {type(question) for question in fleet.asked[before:]} == {PollRequest}


def test_a_fleet_that_never_connects_is_lost_although_nobody_waits(
    fleet: DistantFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name may be looked up in vain; no call has to find that out, and the fleet is found again."""
    monkeypatch.setattr("faulttolerance._extensions.fleet.server_link._CONNECTING_SECONDS", 0.2)
    goes_on = threading.Event()

    class Hanging(DistantFleet):
        def connect(self, changed: Any = None) -> DistantSession:
            goes_on.wait(20)
            return super().connect(changed)

    configure(fleet=Hanging(poll=3600.0))
    try:
        assert fleet_link.current.health.is_up
        wait_until(lambda: not fleet_link.current.health.is_up, seconds=10)
    finally:
        goes_on.set()
    wait_until(lambda: fleet_link.current.health.is_up)


def test_a_caller_of_a_batch_is_told_although_the_thread_that_gave_up_is_slow(fleet: DistantFleet) -> None:
    """The thread of the link tells the rest of its batch, and asks again only then."""
    keys = ("first", "second", "third")
    asked, goes_on = [{key: threading.Event() for key in keys} for _ in range(2)]
    told: list[Any] = []

    def hold(key: str) -> None:
        asked[key].set()
        assert goes_on[key].wait(20)

    fleet.refuse = lambda question: hold(question.key) if getattr(question, "key", "") in ("first", "second") else None
    link: Any = fleet_link.current
    link.send(TURN._replace(key="first"), lambda _: None)
    assert asked["first"].wait(20)
    link.send(TURN._replace(key="second"), told.append)
    link.send(TURN._replace(key="third"), lambda _: hold("third"))
    goes_on["first"].set()
    assert asked["second"].wait(20)  # the batch hangs
    gives_up = threading.Thread(target=link._give_up)
    gives_up.start()
    assert asked["third"].wait(20)  # the thread that gives up hangs, too
    goes_on["second"].set()
    wait_until(lambda: link.health.is_up)
    goes_on["third"].set()
    gives_up.join()

    assert told == [None]


@pytest.mark.parametrize("answers", [[], ["no mapping"], [3, 4, 5]], ids=str)
def test_a_fleet_whose_answers_make_no_sense_is_lost(
    fleet: DistantFleet, monkeypatch: pytest.MonkeyPatch, answers: list[Any]
) -> None:
    """It is asked again later, as any lost fleet."""
    ask()
    with monkeypatch.context() as patch:
        patch.setattr(DistantSession, "exchange", lambda *_: answers)
        wait_until(lambda: not fleet_link.current.health.is_up)
    wait_until(lambda: fleet_link.current.health.is_up)

    assert ask() == 0


def test_a_lost_fleet_is_asked_by_the_link_and_holds_again(fleet: DistantFleet) -> None:
    """It holds again soon, with its open circuits (rule F5)."""
    circuit = Circuit()
    lost(fleet)
    wait_until(lambda: circuit.told[-1] is None)
    fleet.failure = None
    fleet.answer(OPEN)
    assert ask() == "alone"
    wait_until(lambda: fleet_link.current.health.is_up, seconds=3)

    wait_until(lambda: circuit.state == "open")
    assert ask() == 0


def test_sinks_hear_once_that_the_fleet_is_lost_and_once_that_it_is_back(fleet: DistantFleet) -> None:
    """They hear it on a thread for which no call waits (rule F5)."""
    heard: list[Any] = []
    threads: set[int] = set()

    def sink(event: Any) -> None:
        threads.add(threading.get_ident())
        heard.append(event)

    ask()
    set_event_sinks([sink])
    lost(fleet)
    wait_until(lambda: heard)
    fleet.failure = None
    wait_until(lambda: len(heard) == 2)

    assert heard[0] == FleetLost("distant", "ConnectionError: gone")
    assert isinstance(heard[1], FleetRegained)
    assert 0.0 < heard[1].seconds < 5
    assert threading.get_ident() not in threads


def test_a_sink_that_hangs_holds_up_no_answer(fleet: DistantFleet) -> None:
    goes_on = threading.Event()
    set_event_sinks([lambda event: goes_on.wait(20)])
    lost(fleet)
    fleet.failure = None
    try:
        wait_until(lambda: fleet_link.current.health.is_up)
        assert ask() == 0
    finally:
        goes_on.set()


def test_the_log_tells_of_the_loss_in_words(fleet: DistantFleet, caplog: pytest.LogCaptureFixture) -> None:
    """There is one WARNING and one INFO; ``health`` is degraded meanwhile (rule F5)."""

    def said() -> list[tuple[str, str]]:
        told = [(record.levelname, record.getMessage()) for record in caplog.records]
        return [(level, text) for level, text in told if text.startswith("fleet: words ")]

    caplog.set_level("DEBUG", "faulttolerance")
    fleet = DistantFleet("words")  # of the one before, a test before may still be told
    configure(fleet=fleet)
    ask()
    assert fleet_link.current.description == "shared in 'words'"
    assert health().status == "up"
    lost(fleet)
    assert fleet_link.current.description.startswith("local: the fleet 'words' has been lost for ")
    assert fleet_link.current.description.endswith(", because of ConnectionError")  # without its message
    assert health().status == "degraded"
    fleet.failure = None
    wait_until(lambda: len(said()) == 2)

    assert said()[0] == (
        "WARNING",
        "fleet: words does not answer, and this process decides alone: ConnectionError: gone",
    )
    assert said()[1][0] == "INFO"
    assert said()[1][1].startswith("fleet: words answers again, after ")
    assert health().status == "up"


def test_a_fleet_can_be_swapped_while_calls_wait(fleet: DistantFleet) -> None:
    """The calls decide alone; the circuits hear nothing of the old fleet any more."""
    fleet.patience = 60.0
    fleet.thawed.clear()
    told: list[Any] = []
    assert fleet_link.current.send(TURN, told.append)
    other = DistantFleet("other")
    circuit = Circuit()
    configure(fleet=other)

    wait_until(lambda: told == [None])  # the link may just be taking the question from its queue
    assert ask() == 0
    assert fleet_link.current.description == "shared in 'other'"
    wait_until(lambda: circuit.state == "closed")
    fleet.thawed.set()
    configure(fleet=None)
    assert circuit.told[-1] is None
    assert ask() == "alone"


def test_a_fleet_that_was_swapped_tells_circuits_nothing(fleet: DistantFleet) -> None:
    """They do not even hear that it is lost, however late its thread ends."""
    for _ in range(20):
        other = DistantFleet("other", poll=3600)
        configure(fleet=fleet)
        ask()
        configure(fleet=other)
        circuit = Circuit()
        ask()
        wait_until(lambda circuit=circuit: circuit.state == "closed")
        assert None not in circuit.told


def test_a_fleet_that_is_not_given_again_stays(fleet: DistantFleet) -> None:
    configure(properties={})
    faulttolerance.reload()

    assert ask() == 0
    configure(fleet=None)
    assert fleet_link.current.description == "local: no fleet is configured"


def test_reset_ends_the_fleet(fleet: DistantFleet) -> None:
    reset()

    assert fleet_link.current.fleet is None


@pytest.mark.parametrize(
    "value", ["redis://:secret@host", 3, MemoryFleet, object()], ids=["url", "3", "class", "object"]
)
def test_a_value_that_is_no_fleet_is_a_definition_error(value: Any) -> None:
    """The error does not show the value, which may hold a password."""
    with pytest.raises(FaultToleranceDefinitionException) as caught:
        configure(fleet=value)

    assert "configure(fleet) is a " in str(caught.value)
    assert "RedisFleet" in str(caught.value)
    assert "secret" not in repr(caught.value)
    assert fleet_link.current.fleet is None


def test_a_fleet_in_this_process_is_asked_on_the_thread_of_the_call() -> None:
    """Circuits are told at once, and there is no thread."""
    threads = threading.active_count()
    memory = MemoryFleet("memory")
    configure(fleet=memory)
    circuit = Circuit()
    told: list[Any] = []

    assert circuit.state == "closed"
    assert fleet_link.current.send(TURN, told.append)
    assert told == [0]
    memory.open("circuit", 5_000)
    assert circuit.state == "open"
    memory.lose("as if")
    assert circuit.told[-1] is None
    assert ask() == "alone"
    assert health().reasons == ("the fleet 'memory' has been lost for 0.0 s, because of ConnectionError",)
    memory.regain()
    assert circuit.state == "open"
    assert ask() == 0
    assert threading.active_count() == threads
    reset()


def test_a_call_that_is_told_its_answer_may_ask_again(fleet: DistantFleet) -> None:
    """It may ask where it is told: nothing is locked there."""
    told: list[Any] = []
    assert fleet_link.current.send(TURN, lambda _: fleet_link.current.send(TURN, told.append))
    wait_until(lambda: told == [0])


def test_a_call_that_fails_when_it_is_told_its_answer_harms_nobody(
    fleet: DistantFleet, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("Event loop is closed")

    told: list[Any] = []
    assert fleet_link.current.send(TURN, fail)
    assert fleet_link.current.send(TURN, told.append)
    wait_until(lambda: told == [0])


def test_the_gauge_says_whether_the_fleet_answers(fleet: DistantFleet) -> None:
    assert list(fleet_link.current.read()) == [(("distant",), 1.0)]
    lost(fleet)
    assert list(fleet_link.current.read()) == [(("distant",), 0.0)]
    configure(fleet=None)
    assert list(fleet_link.current.read()) == []


@pytest.mark.parametrize("metrics", [True, False], ids=["on", "off"])
def test_both_exporters_show_the_gauge(fleet: DistantFleet, metrics: bool) -> None:
    """It has the tag ``namespace`` and no method; without a fleet or without metrics there is none."""
    prometheus = pytest.importorskip("prometheus_client")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    provider = pytest.importorskip("opentelemetry.sdk.metrics")
    registry, reader = prometheus.CollectorRegistry(), export.InMemoryMetricReader()
    guard = Guard(circuit_breaker=CircuitBreaker(), name="shown")
    configure(
        prometheus_registry=registry,
        meter_provider=provider.MeterProvider([reader]),
        properties={"MP_Fault_Tolerance_Metrics_Enabled": metrics},
    )
    guard.call(int)

    def shown() -> list[float | None]:
        read = reader.get_metrics_data()
        observed = [
            point.value
            for resource in (read.resource_metrics if read else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == "ft.fleet.up"
            for point in metric.data.data_points
            if point.attributes == {"namespace": "distant"}
        ]
        return [registry.get_sample_value("ft_fleet_up", {"namespace": "distant"}), *observed]

    try:
        assert shown() == ([1.0, 1.0] if metrics else [None])
        lost(fleet)
        assert shown() == ([0.0, 0.0] if metrics else [None])
        configure(fleet=None)
        assert shown()[0] is None
    finally:
        guard.close()


def test_a_loop_is_woken_once_for_all_answers_of_a_batch(fleet: DistantFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that is woken for the first answer would take the interpreter from the thread that tells the others."""
    guard = Guard(rate_limit=RateLimit(value=1_000), fleet_wide=FleetWide(), name="many")
    woken: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        fleet.delay = 0.05  # so that all are there when the next batch is made
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *args, **kwargs: (woken.append(args), wake(*args))[1])
        await asyncio.gather(*(guard.call_async(asyncio.sleep, 0) for _ in range(100)))

    asyncio.run(main())
    guard.close()

    assert 1 <= len(woken) <= 5


def test_calls_that_are_cancelled_while_they_ask_leave_the_others_alone(fleet: DistantFleet) -> None:
    """Rule F1: a cancelled call is told nothing."""
    guard = Guard(rate_limit=RateLimit(value=1_000), fleet_wide=FleetWide(), name="cancelled")

    async def main() -> list[Any]:
        fleet.delay = 0.05
        tasks = [asyncio.ensure_future(guard.call_async(asyncio.sleep, 0, number)) for number in range(100)]
        await asyncio.sleep(0.01)
        for task in tasks[::2]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())
    guard.close()

    assert results[1::2] == [*range(1, 100, 2)]
    assert {type(result) for result in results[::2]} == {asyncio.CancelledError}
    assert fleet_link.current.health.is_up


def test_no_call_pays_for_a_server_that_is_gone(fleet: DistantFleet) -> None:
    """One batch waits, until the patience is over; after that the calls of all guards ask nobody (trap 27)."""
    guards = [
        Guard(rate_limit=RateLimit(value=1_000), fleet_wide=FleetWide(), name=f"paying {number}") for number in range(4)
    ]
    for guard in guards:
        guard.call(int)
    fleet.thawed.clear()
    began = time.perf_counter()
    for _ in range(25):
        for guard in guards:
            guard.call(int)
    seconds = time.perf_counter() - began
    for guard in guards:
        guard.close()

    assert 0.15 < seconds < 0.45


def test_a_virtual_clock_does_not_hold_the_link(fleet: DistantFleet) -> None:
    """A server outside of the test answers in real time."""
    with virtual_time():
        guard = Guard(rate_limit=RateLimit(value=1_000), fleet_wide=FleetWide(), name="virtual")
        guard.call(int)
        guard.close()
        assert fleet_link.current.health.is_up


# Threads that choose a fleet at the same time


def on_another_thread(function: Callable[[], object]) -> None:
    """Call *function* on another thread, and return when it is done."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(10.0)
    assert not thread.is_alive()


def replaced_links_that_run() -> list[ThreadedLink]:
    """Return the links that still ask their fleets although another fleet is in use."""
    links = [one for one in gc.get_objects() if type(one) is ThreadedLink and one is not fleet_link.current]
    return [one for one in links if one._daemon.is_running]


def test_the_fleet_of_the_environment_never_replaces_the_fleet_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if the program sets its fleet on another thread while a first call reads the environment."""
    own = DistantFleet("own")

    def read_environment(url: str, namespace: str) -> DistantFleet:
        on_another_thread(lambda: configure(fleet=own))
        return DistantFleet("of the environment")

    monkeypatch.setattr(fleet_link, "is_chosen", False)
    monkeypatch.setattr(redis, "RedisFleet", read_environment)
    monkeypatch.setenv("FAULTTOLERANCE_FLEET_URL", "redis://")
    Guard(name="named", rate_limit=RateLimit(1), fleet_wide=FleetWide()).call(int)

    assert fleet_link.current.fleet is own
    reset()


def test_a_link_that_another_thread_has_just_replaced_ends() -> None:
    """One thread makes its link, and another one sets another fleet meanwhile."""
    other = DistantFleet("other")

    class Overtaken(DistantFleet):
        @property
        def is_immediate(self) -> bool:  # type: ignore[override]
            if fleet_link.current.fleet is None:
                on_another_thread(lambda: fleet_link.use(other))
            return False

    overtaken = Overtaken()
    fleet_link.use(overtaken)

    assert fleet_link.current.fleet is overtaken
    wait_until(lambda: not replaced_links_that_run())
    reset()


def test_a_link_that_was_replaced_before_its_start_ends(fleet: DistantFleet) -> None:
    """One thread tells the circuits that the previous fleet is gone, and another one sets a third fleet meanwhile."""
    third = DistantFleet("third")

    class Circuit:
        key = "circuit"

        def follow(self, record: CircuitRecord | None, now: float) -> None:
            if fleet_link.current.fleet is second:
                on_another_thread(lambda: fleet_link.use(third))

    circuit, second = Circuit(), DistantFleet("second")
    fleet_link.register(circuit)
    fleet_link.use(second)

    assert fleet_link.current.fleet is third
    wait_until(lambda: not replaced_links_that_run())
