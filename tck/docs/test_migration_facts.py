"""Facts about other libraries on the pages on migration that no table can show: threads, probes, listeners, counts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from faulttolerance import (
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    circuit_breaker,
    circuit_breakers,
    exponential_backoff,
    retry,
)
from faulttolerance.instrumentation import RetryScheduled
from faulttolerance.testing import captured_events, recorded, reset, virtual_time
from kit.peers import on_clock

pytestmark = pytest.mark.filterwarnings("ignore:.*iscoroutinefunction:DeprecationWarning")  # other libraries use it


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    reset()
    yield
    reset()


def meeting(guarded: Any, others: int = 1) -> int:
    """Return the number of threads that are inside *guarded* at once, if it lets them in."""
    barrier = threading.Barrier(others + 1)

    def meet() -> bool:
        try:
            barrier.wait(timeout=0.2)
        except threading.BrokenBarrierError:
            return False
        return True

    with ThreadPoolExecutor(others + 1) as pool:
        calls = [pool.submit(guarded(meet)) for _ in range(others + 1)]
        return sum(call.exception() is None and call.result() for call in calls)


def test_calls_of_pybreaker_wait_for_one_another() -> None:
    """The page says this, and that ours run side by side."""
    pybreaker = pytest.importorskip("pybreaker")

    assert meeting(pybreaker.CircuitBreaker()) == 0
    assert meeting(circuit_breaker()) == 2


def test_pybreaker_lets_an_exception_of_a_listener_out() -> None:
    """Our library logs the exception, and the call goes on."""
    pybreaker = pytest.importorskip("pybreaker")

    class Broken(pybreaker.CircuitBreakerListener):  # type: ignore[misc, name-defined]
        def success(self, cb: Any) -> None:
            raise LookupError

    with pytest.raises(LookupError):
        pybreaker.CircuitBreaker(listeners=[Broken()])(int)("7")


def test_pybreaker_keeps_the_failure_in_the_context_of_its_refusal() -> None:
    """The failure is that of the call that opens the circuit."""
    pybreaker = pytest.importorskip("pybreaker")

    with pytest.raises(pybreaker.CircuitBreakerError) as caught:
        pybreaker.CircuitBreaker(fail_max=1)(int)("seven")

    assert isinstance(caught.value.__context__, ValueError)


def opened(library: Any, clock: Any, call: Any) -> None:
    """Open the circuit of *call* by two failures, and wait until a probe may pass."""
    for _ in range(2):
        with pytest.raises(ValueError, match="seven"):
            call(lambda: int("seven"))
    clock.advance(31)


def test_circuitbreaker_lets_everybody_probe() -> None:
    """Our circuit admits as many probes as it still needs successes."""
    library = pytest.importorskip("circuitbreaker")
    breaker = library.CircuitBreaker(failure_threshold=2, recovery_timeout=30)
    theirs = breaker(lambda body: body())
    ours = circuit_breaker(request_volume_threshold=2, delay="30s")(lambda body: body())

    with virtual_time() as clock:
        with on_clock(["circuitbreaker"], clock):
            opened(library, clock, theirs)
            assert theirs(lambda: theirs(lambda: "both")) == "both"
        opened(library, clock, ours)
        with pytest.raises(CircuitBreakerOpenException):
            ours(lambda: ours(lambda: "both"))


def test_a_late_success_closes_a_circuit_of_circuitbreaker() -> None:
    """The call began before the circuit opened; our circuit counts it in the state that admitted it."""
    library = pytest.importorskip("circuitbreaker")
    breaker = library.CircuitBreaker(failure_threshold=2, recovery_timeout=30, name="late")
    theirs = breaker(lambda body: body())
    ours = circuit_breaker(request_volume_threshold=2, delay="30s")(lambda body: body())

    def fail_twice(call: Any) -> str:
        for _ in range(2):
            with pytest.raises(ValueError, match="seven"):
                call(lambda: int("seven"))
        return "at last"

    for call in (theirs, ours):
        assert call(lambda call=call: fail_twice(call)) == "at last"
    assert breaker.state == "closed"
    with pytest.raises(CircuitBreakerOpenException):
        ours(lambda: "refused")


def test_an_interruption_closes_a_circuit_of_circuitbreaker() -> None:
    """The other library counts an interruption as a success."""
    library = pytest.importorskip("circuitbreaker")
    breaker = library.CircuitBreaker(failure_threshold=2, recovery_timeout=30, name="struck")

    def strike() -> None:
        raise KeyboardInterrupt

    with virtual_time() as clock, on_clock(["circuitbreaker"], clock):
        opened(library, clock, breaker(lambda body: body()))
        with pytest.raises(KeyboardInterrupt):
            breaker(strike)()

        assert breaker.state == "closed"


def test_zero_seconds_are_the_default_of_circuitbreaker() -> None:
    library = pytest.importorskip("circuitbreaker")
    breaker = library.CircuitBreaker(failure_threshold=1, recovery_timeout=0)

    with pytest.raises(ValueError, match="seven"):
        breaker(int)("seven")

    assert breaker.open_remaining == 30


def test_a_decorator_in_a_variable_makes_a_circuit_for_each_function() -> None:
    """The variable replaces a subclass of circuitbreaker's class."""
    patient = circuit_breaker(request_volume_threshold=1, delay="60s")

    @patient
    def fail() -> None:
        raise ConnectionError

    @patient
    def work() -> str:
        return "done"

    with pytest.raises(ConnectionError):
        fail()

    assert work() == "done"
    assert circuit_breakers.state(f"{__name__}.{fail.__qualname__}") == "open"


def fail() -> None:
    raise ConnectionError


def test_the_statistics_of_tenacity_are_in_the_record() -> None:
    """They are attempts, and the seconds between them."""
    tenacity = pytest.importorskip("tenacity")
    theirs = tenacity.retry(stop=tenacity.stop_after_attempt(4), wait=tenacity.wait_fixed(2), reraise=True)(fail)
    ours = retry(retry_on=ConnectionError, max_retries=3, delay="2s", jitter=0)(fail)

    with virtual_time() as clock, on_clock(["tenacity"], clock), recorded(ours) as calls:
        for call in (theirs, ours):
            with pytest.raises(ConnectionError):
                call()

    assert theirs.statistics["attempt_number"] == len(calls[0].attempts) == 4
    assert theirs.statistics["idle_for"] == sum(calls[0].delays) == 6


def test_retry_with_of_tenacity_loses_the_object() -> None:
    """The function that it returns needs the object as an argument."""
    tenacity = pytest.importorskip("tenacity")

    class Client:
        @tenacity.retry(reraise=True)  # type: ignore[untyped-decorator]
        def fetch(self) -> str:
            return "fresh"

    again = Client().fetch.retry_with(stop=tenacity.stop_after_attempt(1))

    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        again()
    assert again(Client()) == "fresh"


def test_tenacity_never_retries_a_generator() -> None:
    """Our library refuses a generator."""
    tenacity = pytest.importorskip("tenacity")
    begun = []

    def pages() -> Iterator[int]:
        begun.append(True)
        yield 1
        raise ConnectionError

    with pytest.raises(ConnectionError):
        [*tenacity.retry(stop=tenacity.stop_after_attempt(3))(pages)()]

    assert len(begun) == 1
    with pytest.raises(FaultToleranceDefinitionException):
        retry(retry_on=ConnectionError)(pages)


def test_tenacity_can_be_switched_off_as_the_page_says() -> None:
    tenacity = pytest.importorskip("tenacity")
    theirs = tenacity.retry(stop=tenacity.stop_after_attempt(3))(fail)

    theirs.retry.enabled = False

    with pytest.raises(ConnectionError):  # and no RetryError
        theirs()


def test_the_values_that_hooks_of_stamina_get_are_events() -> None:
    """They are the number of the failed attempt, the delay and the failure."""
    stamina = pytest.importorskip("stamina")
    theirs = stamina.retry(on=ConnectionError, attempts=3, wait_initial=1, wait_jitter=0)(fail)
    ours = retry(retry_on=ConnectionError, max_retries=2, delay="1s", jitter=0)(exponential_backoff()(fail))
    heard: list[Any] = []

    with virtual_time() as clock, on_clock(["stamina"], clock), captured_events() as events:
        stamina.instrumentation.set_on_retry_hooks([heard.append])
        for call in (theirs, ours):
            with pytest.raises(ConnectionError):
                call()

    told = [(one.attempt, one.delay, type(one.failure)) for one in events if isinstance(one, RetryScheduled)]
    assert [(one.retry_num, one.wait_for, type(one.caused_by)) for one in heard] == told
    assert told == [(1, 1, ConnectionError), (2, 2, ConnectionError)]


def test_the_count_of_pybreaker_is_in_the_snapshot() -> None:
    """It counts failures in a row, ours those in a window of the same length."""
    pybreaker = pytest.importorskip("pybreaker")
    breaker = pybreaker.CircuitBreaker(fail_max=5)
    ours = circuit_breaker(request_volume_threshold=5, failure_ratio=1.0)(fail)

    for call in (breaker(fail), ours):
        for _ in range(3):
            with pytest.raises(ConnectionError):
                call()

    assert breaker.fail_counter == circuit_breakers.snapshot(f"{__name__}.fail").failures == 3
