"""The adaptive throttle through public names: declared, called, configured, counted, shown, forked, repeated."""

from __future__ import annotations

import asyncio
import os
import random
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("pydantic_settings")

from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    RefusedException,
    TimeoutException,
    adaptive_throttle,
    asynchronous,
    asynchronous_non_blocking,
    bulkhead,
    circuit_breaker,
    configure,
    explain,
    fallback,
    guards,
    retry,
    validate,
)
from faulttolerance.exceptions import ThrottleException
from faulttolerance.policies import AdaptiveThrottle, Bulkhead, CircuitBreaker, RateLimit, Retry, Timeout
from faulttolerance.testing import VirtualClock, configured, virtual_time
from kit import Invoke, Service
from kit.definition import refused
from kit.meter import PrometheusMeter
from kit.program import ALONE, command_line, python

FOR_EVER = 86_400_000


@pytest.fixture
def meter() -> PrometheusMeter:
    """A registry that is there before the first call."""
    return PrometheusMeter()


def outcome(call: Callable[[], Any]) -> str:
    """Return the outcome of a call as a letter: its own failure, a refusal, or a result."""
    try:
        call()
    except ThrottleException:
        return "r"
    except OSError:
        return "f"
    return "."


def test_a_failing_callee_is_spared(invoke: Invoke, meter: PrometheusMeter) -> None:
    """AT1, AT3: in every convention the same calls are refused, none below min_requests; a probe passes each second."""

    class Client(Service):
        @adaptive_throttle(window=FOR_EVER)
        @invoke.body
        async def work(self) -> None:
            raise OSError

    meter.watch(Client.work, Client)
    client = Client()
    outcomes = "".join(outcome(lambda: invoke(client.work)) for _ in range(40))

    def counted(result: str) -> int:
        return meter.value("ft.throttle.calls.total", result=result)

    assert outcomes[:10] == "f" * 10
    assert outcomes.count("r") >= 25
    assert (counted("failed"), counted("refused"), counted("accepted")) == (outcomes.count("f"), outcomes.count("r"), 0)
    method = frozenset({("method", meter.method)})
    assert meter.values()["ft_throttle_probability", method] == pytest.approx(40 / 41)


def test_successful_calls_are_let_through(invoke: Invoke, meter: PrometheusMeter) -> None:
    """AT5: each of them is counted as accepted, the first one too."""

    class Client(Service):
        @adaptive_throttle(min_requests=1)
        @invoke.body
        async def work(self) -> str:
            return "well"

    meter.watch(Client.work, Client)
    client = Client()

    assert [invoke(client.work) for _ in range(50)] == ["well"] * 50
    assert meter.value("ft.throttle.calls.total", result="accepted") == 50
    assert meter.value("ft.throttle.probability") == 0


GUARDS: dict[str, Callable[[Guard, Callable[[], None], VirtualClock], Callable[[], Any]]] = {
    "Guard.call": lambda guard, body, clock: lambda: guard.call(body),
    "Guard.call_async": lambda guard, body, clock: lambda: clock.run(guard.call_async(body)),
    "decorator": lambda guard, body, clock: guard(body),
}


@pytest.mark.parametrize("way", GUARDS)
def test_a_guard_has_a_throttle_of_its_own(way: str) -> None:
    """Calls through the guard are counted in every way of calling."""
    fails = True

    def body() -> None:
        if fails:
            raise OSError

    with virtual_time(seed=1) as clock:
        call = GUARDS[way](Guard(adaptive_throttle=AdaptiveThrottle(min_requests=3)), body, clock)
        outcomes = "".join(outcome(call) for _ in range(30))
        clock.advance(11)
        fails = False
        after = "".join(outcome(call) for _ in range(30))

    assert outcomes.startswith("fff")
    assert outcomes.count("r") >= 20
    assert after == "." * 30


def test_a_class_is_covered() -> None:
    """Each method has a throttle of its own."""

    @adaptive_throttle(min_requests=3)
    class Client:
        def read(self) -> None:
            raise OSError

        async def write(self) -> None:
            raise OSError

    client = Client()
    with virtual_time(seed=1) as clock:
        read = "".join(outcome(client.read) for _ in range(30))
        written = "".join(outcome(lambda: clock.run(client.write())) for _ in range(3))

    assert "r" in read
    assert written == "fff"


def test_a_seed_repeats_the_refusals() -> None:
    """The throttle draws its chance from the clock."""

    def outcomes(seed: int) -> str:
        chance = random.Random(7)

        @adaptive_throttle
        def work() -> None:
            if chance.random() < 0.8:
                raise OSError

        with virtual_time(seed=seed) as clock:
            found = ""
            for _ in range(300):
                found += outcome(work)
                clock.advance(0.05)
            return found

    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)


def test_the_window_passes_with_virtual_time() -> None:
    """After an idle hour the failures before it refuse no call."""

    @adaptive_throttle
    def work() -> None:
        raise OSError

    with virtual_time(seed=1) as clock:
        before = "".join(outcome(work) for _ in range(40))
        clock.advance(3600)
        after = "".join(outcome(work) for _ in range(9))

    assert before.endswith("rrrrr")
    assert after == "f" * 9


# What counts


def test_a_refusal_of_the_same_guard_counts_as_neither() -> None:
    """AT1: the callee did not receive the call; a circuit breaker in the same place would count it."""
    guard = Guard(
        adaptive_throttle=AdaptiveThrottle(min_requests=1), rate_limit=RateLimit(1, 60_000), bulkhead=Bulkhead(1)
    )
    guard.call(int)
    for _ in range(50):
        with pytest.raises(RefusedException) as raised:
            guard.call(int)
        assert type(raised.value) is not ThrottleException


def test_the_refusal_of_a_guard_further_inside_counts() -> None:
    """AT1: the guard inside is part of the callee, and no policy of this guard."""
    inside = Guard(rate_limit=RateLimit(1, 60_000))
    guard = Guard(adaptive_throttle=AdaptiveThrottle(min_requests=1))
    kinds = []
    with virtual_time(seed=1):
        for _ in range(30):
            try:
                guard.call(lambda: inside.call(int))
            except RefusedException as error:
                kinds.append(type(error))

    assert ThrottleException in kinds


def test_a_time_out_of_the_same_guard_is_a_failure() -> None:
    """A callee that hangs is spared, too."""
    guard = Guard(adaptive_throttle=AdaptiveThrottle(min_requests=2), timeout=Timeout(100))
    kinds: list[type[BaseException]] = []

    async def main() -> None:
        for _ in range(20):
            try:
                await guard.call_async(asyncio.sleep, 60)
            except (TimeoutError, ThrottleException) as error:
                kinds.append(type(error))

    with virtual_time(seed=1) as clock:
        clock.run(main())

    assert kinds[:2] == [TimeoutException] * 2
    assert ThrottleException in kinds


def test_cancelled_attempts_count_as_neither() -> None:
    """A cancellation says nothing about the callee."""

    @adaptive_throttle(min_requests=1)
    async def work(well: bool) -> str:
        if not well:
            await asyncio.sleep(60)
        return "well"

    async def main() -> list[str]:
        for _ in range(20):
            task = asyncio.ensure_future(work(False))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return [await work(True) for _ in range(20)]

    assert asyncio.run(main()) == ["well"] * 20


def test_only_exceptions_in_fail_on_are_failures() -> None:
    """The verdicts are the circuit breaker's: skip_on goes first, any other exception is accepted."""

    def fails_with(error: type[Exception], **sets: Any) -> str:
        @adaptive_throttle(min_requests=1, **sets)
        def work() -> None:
            raise error

        found = ""
        for _ in range(30):
            try:
                work()
            except ThrottleException:
                found += "r"
            except error:
                found += "f"
        return found

    assert "r" in fails_with(OSError)
    assert "r" in fails_with(OSError, fail_on=OSError)
    assert "r" not in fails_with(ValueError, fail_on=OSError)
    assert "r" not in fails_with(OSError, skip_on=OSError)


# Refusals


def test_refusals_are_retried_replaced_and_told() -> None:
    """AT4: their class selects them, as for any policy; the note says in words how often they occurred."""

    def broken() -> None:
        raise OSError

    with virtual_time(seed=1):
        guard = Guard(retry=Retry(max_retries=60, jitter=0), adaptive_throttle=AdaptiveThrottle(min_requests=3))
        with pytest.raises((ThrottleException, OSError)) as raised:
            guard.call(broken)

        spared = Guard(adaptive_throttle=AdaptiveThrottle(min_requests=3), retry=Retry(max_retries=0))
        given_up = [outcome(lambda: spared.call(broken)) for _ in range(20)]

    assert "throttled" in raised.value.__notes__[0]
    assert "r" in given_up

    @fallback(lambda context: type(context.failure).__name__, apply_on=ThrottleException)
    @retry(max_retries=20, jitter=0, abort_on=ThrottleException)
    @adaptive_throttle(min_requests=3)
    def replaced() -> str:
        raise OSError

    with virtual_time(seed=1):
        assert replaced() == "ThrottleException"


def test_a_refusal_names_the_guarded_method() -> None:
    """AT4: it gives no time of a retry, since nobody knows when an attempt would be let in."""

    @adaptive_throttle(min_requests=1)
    def work() -> None:
        raise OSError

    refusals: list[Exception] = []
    with virtual_time(seed=1):
        for _ in range(50):
            try:
                work()
            except (OSError, ThrottleException) as error:
                refusals.append(error)

    refusal = refusals[-1]
    assert isinstance(refusal, ThrottleException)
    assert str(refusal).startswith(f"{__name__}.{work.__qualname__}: throttled")
    assert refusal.retry_after is None


# Declaring, configuring, showing


def test_both_gates_on_one_method_are_refused() -> None:
    """The error names the second gate, in either order of the decorators and in a Guard."""
    with refused("work @AdaptiveThrottle is combined with @CircuitBreaker"):

        @adaptive_throttle
        @circuit_breaker
        def work() -> None: ...

    with refused("work_async @AdaptiveThrottle is combined with @CircuitBreaker"):

        @circuit_breaker
        @adaptive_throttle
        async def work_async() -> None: ...

    with refused("@AdaptiveThrottle is combined with @CircuitBreaker"):
        Guard(circuit_breaker=CircuitBreaker(), adaptive_throttle=AdaptiveThrottle())


def test_a_gate_on_a_method_excludes_the_other_gate_on_its_class() -> None:
    """The error comes when the class is decorated; both gates on one class are refused, too."""
    with refused("Client.work @AdaptiveThrottle is combined with @CircuitBreaker"):

        @circuit_breaker
        class Client:
            @adaptive_throttle
            def work(self) -> None: ...

    with refused("Both.work @AdaptiveThrottle is combined with @CircuitBreaker"):

        @circuit_breaker
        @adaptive_throttle
        class Both:
            def work(self) -> None: ...


def test_a_method_may_be_asynchronous_in_another_way_than_its_class() -> None:
    """Only gates exclude each other; of the two ways to be asynchronous, that of the method holds."""

    @asynchronous
    class Client:
        @asynchronous_non_blocking
        async def work(self) -> int:
            return 7

    async def main() -> int:
        return await Client().work()

    assert asyncio.run(main()) == 7


@pytest.mark.outside
def test_check_finds_two_gates_and_values_out_of_range(tmp_path: Path) -> None:
    """The command line reports both before any call."""
    (tmp_path / "fine.py").write_text("import faulttolerance\n@faulttolerance.adaptive_throttle\ndef work(): ...\n")
    (tmp_path / "both.py").write_text(
        "import faulttolerance\n@faulttolerance.adaptive_throttle\n@faulttolerance.circuit_breaker\ndef work(): ...\n"
    )

    def check(module: str, **variables: str) -> tuple[int, str]:
        done = command_line("check", module, folder=tmp_path, environment={**ALONE, **variables})
        return done.returncode, done.stdout + done.stderr

    pytest.importorskip("typer")

    low = check("fine", FAULTTOLERANCE_ADAPTIVETHROTTLE_WINDOW="999")
    both = check("both")

    assert check("fine")[0] == 0
    assert low[0] != 0
    assert "AdaptiveThrottle/window" in low[1] or "FAULTTOLERANCE_ADAPTIVETHROTTLE_WINDOW" in low[1]
    assert both[0] != 0
    assert "@AdaptiveThrottle is combined with @CircuitBreaker" in both[1]


def test_ranges_hold_for_configured_values() -> None:
    """A configured value out of range is refused with its key."""

    @adaptive_throttle
    def work() -> None: ...

    work()
    for key, value in (("multiplier", "1.0"), ("window", "999"), ("window", "0.5s"), ("minRequests", "0")):
        with pytest.raises(FaultToleranceDefinitionException, match=f"AdaptiveThrottle/{key}"):
            configure(properties={f"AdaptiveThrottle/{key}": value})


def test_the_configuration_has_the_last_word() -> None:
    """C3: new values apply at once and the counts stay; a throttle that is switched off refuses nothing."""

    @adaptive_throttle(min_requests=1000)
    def work() -> None:
        raise OSError

    def outcomes() -> str:
        return "".join(outcome(work) for _ in range(40))

    with virtual_time(seed=1) as clock:
        declared = outcomes()
        with configured({"AdaptiveThrottle/minRequests": 3, "AdaptiveThrottle/window": "20s"}):
            lower = outcomes()
            shown = explain(work)
        with configured({"AdaptiveThrottle/minRequests": 3, "AdaptiveThrottle/failOn": "ValueError"}):
            kept = outcomes()
            clock.advance(30)
            others = outcomes()
        with configured({"AdaptiveThrottle/minRequests": 3, "AdaptiveThrottle/enabled": False}):
            off = outcomes()

    assert declared == others == off == "f" * 40
    assert "r" in lower[:3]
    assert "r" in kept[:3]
    assert "minRequests = 3" in shown
    assert "window = 20s" in shown


def test_explain_shows_the_throttle_in_the_place_of_the_circuit_breaker() -> None:
    """The throttle stands inside the retry and outside the limits."""

    @bulkhead
    @adaptive_throttle(multiplier=1.5)
    @retry
    def work() -> None: ...

    text = explain(work)

    assert text.index("Retry") < text.index("AdaptiveThrottle") < text.index("Bulkhead")
    assert "multiplier = 1.5  [decorator]" in text
    assert any(isinstance(policy, AdaptiveThrottle) for one in guards() for policy in one.policies)
    validate()


def test_a_healthy_throttle_draws_no_chance() -> None:
    """The jitter of other policies stays as it was."""

    def delays(*decorators: Callable[[Any], Any]) -> float:
        failures = iter([OSError(), OSError(), None])

        def work() -> None:
            if (error := next(failures)) is not None:
                raise error

        for one in decorators:
            work = one(work)
        with virtual_time(seed=5) as clock:
            before = clock.monotonic()
            retry(work, max_retries=5, delay=100, jitter=90)()
            return clock.monotonic() - before

    assert delays(adaptive_throttle) == delays()


def test_asynchronous_methods_share_one_throttle() -> None:
    """All their calls are counted together, on any thread."""

    @asynchronous
    @adaptive_throttle(min_requests=5, window=FOR_EVER)
    async def work() -> None:
        raise OSError

    async def main() -> int:
        results = []
        for _ in range(5):
            results += await asyncio.gather(*(work() for _ in range(8)), return_exceptions=True)
        return sum(isinstance(one, ThrottleException) for one in results)

    assert asyncio.run(main()) >= 10


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_process_keeps_the_counts() -> None:
    """L5: the child has a lock of its own."""
    program = """
        import os
        from faulttolerance import Guard
        from faulttolerance.exceptions import ThrottleException
        from faulttolerance.policies import AdaptiveThrottle
        from faulttolerance.testing import virtual_time

        def fail():
            raise OSError

        def refused(guard):
            count = 0
            for _ in range(20):
                try:
                    guard.call(fail)
                except ThrottleException:
                    count += 1
                except OSError:
                    pass
            return count

        with virtual_time(seed=1):
            guard = Guard(adaptive_throttle=AdaptiveThrottle(min_requests=40))
            assert refused(guard) == 0
            assert refused(guard) == 0
            pid = os.fork()
            if pid == 0:
                os._exit(0 if refused(guard) > 10 else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    """

    python(textwrap.dedent(program))
