"""The doubts of `check`, and the switch for each of them (rule M4)."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import faulttolerance as ft
from faulttolerance._command.lints import CODES, lint
from faulttolerance._config import settings
from faulttolerance.testing import configured
from kit.program import ALONE, command_line

TROUBLE = (ConnectionError, ft.TimeoutException)


def careful() -> ft.policies.Retry:
    return ft.policies.Retry(retry_on=TROUBLE)


DOUBTFUL: Mapping[str, list[Callable[[], ft.Guard]]] = {
    "FT001": [
        lambda: ft.Guard(
            circuit_breaker=ft.policies.CircuitBreaker(fail_on=ConnectionError), bulkhead=ft.policies.Bulkhead(3)
        ),
        lambda: ft.Guard(
            circuit_breaker=ft.policies.CircuitBreaker(fail_on=ConnectionError), rate_limit=ft.policies.RateLimit(3)
        ),
        lambda: ft.Guard(
            circuit_breaker=ft.policies.CircuitBreaker(fail_on=ConnectionError), timeout=ft.policies.Timeout("1s")
        ),
    ],
    "FT002": [
        lambda: ft.Guard(retry=ft.policies.Retry()),
        lambda: ft.Guard(retry=ft.policies.Retry(max_retries=1, delay="1s")),
        lambda: ft.Guard(retry=ft.policies.Retry(retry_on=Exception), retry_when=ft.policies.RetryWhen(result=bool)),
    ],
    "FT003": [
        lambda: ft.Guard(retry=ft.policies.Retry(retry_on=ConnectionError), timeout=ft.policies.Timeout("1s")),
    ],
    "FT004": [
        lambda: ft.Guard(retry=ft.policies.Retry(retry_on=OSError, delay="50ms")),
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=OSError, delay=1, delay_unit=ft.ChronoUnit.SECONDS, jitter="1001ms")
        ),
    ],
    "FT005": [
        lambda: ft.Guard(timeout=ft.policies.Timeout(5)),
        lambda: ft.Guard(timeout=ft.policies.Timeout("9999us")),
    ],
    "FT006": [
        lambda: ft.Guard(
            circuit_breaker=ft.policies.CircuitBreaker(fail_on=TROUBLE, delay="1s"),
            timeout=ft.policies.Timeout("1001ms"),
        ),
    ],
    "FT008": [
        lambda: ft.Guard(fallback=ft.policies.Fallback(lambda context: None)),
        lambda: ft.Guard(fallback=ft.policies.Fallback(lambda context: None, apply_on=(OSError, NameError))),
        lambda: ft.Guard(fallback=ft.policies.Fallback(lambda context: None, skip_on=OSError)),
    ],
    "FT009": [
        lambda: ft.Guard(circuit_breaker=ft.policies.CircuitBreaker(fail_on=TROUBLE, delay=30)),
        lambda: ft.Guard(circuit_breaker=ft.policies.CircuitBreaker(fail_on=TROUBLE, delay=0, max_delay=60)),
        lambda: ft.Guard(circuit_breaker=ft.policies.CircuitBreaker(fail_on=TROUBLE, window=60)),
        lambda: ft.Guard(circuit_breaker=ft.policies.CircuitBreaker(fail_on=TROUBLE, slow=2)),
        lambda: ft.Guard(retry=ft.policies.Retry(retry_on=OSError, delay=2, jitter=0)),
        lambda: ft.Guard(retry=ft.policies.Retry(retry_on=OSError, max_duration=10)),
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=OSError, delay="1s"),
            exponential_backoff=ft.policies.ExponentialBackoff(max_delay=60),
        ),
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=OSError, delay="1s"),
            fibonacci_backoff=ft.policies.FibonacciBackoff(max_delay=60),
        ),
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=OSError), honor_retry_after=ft.policies.HonorRetryAfter(max_delay=60)
        ),
        lambda: ft.Guard(deadline=ft.policies.Deadline(5)),
        lambda: ft.Guard(bulkhead=ft.policies.Bulkhead(3, max_wait=1)),
        lambda: ft.Guard(rate_limit=ft.policies.RateLimit(3, max_wait=1)),
    ],
    "FT010": [
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=OSError), exponential_backoff=ft.policies.ExponentialBackoff()
        ),
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=OSError, jitter_kind="full"),
            fibonacci_backoff=ft.policies.FibonacciBackoff(),
        ),
    ],
    "FT012": [
        lambda: ft.Guard(circuit_breaker=ft.policies.CircuitBreaker()),
        lambda: ft.Guard(adaptive_throttle=ft.policies.AdaptiveThrottle()),
        lambda: ft.Guard(
            circuit_breaker=ft.policies.CircuitBreaker(skip_on=ft.BulkheadException), bulkhead=ft.policies.Bulkhead(3)
        ),
        lambda: ft.Guard(circuit_breaker=ft.policies.CircuitBreaker(), fail_when=ft.policies.FailWhen(result=bool)),
    ],
    "FT013": [
        lambda: ft.Guard(
            retry=ft.policies.Retry(abort_on=ValueError),
            circuit_breaker=ft.policies.CircuitBreaker(fail_on=(*TROUBLE, OSError)),
        ),
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=RuntimeError),
            adaptive_throttle=ft.policies.AdaptiveThrottle(fail_on=OSError),
        ),
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=ft.FaultToleranceException), rate_limit=ft.policies.RateLimit(3)
        ),
        lambda: ft.Guard(retry=ft.policies.Retry(abort_on=ValueError), bulkhead=ft.policies.Bulkhead(3)),
        lambda: ft.Guard(
            retry=ft.policies.Retry(abort_on=ValueError),
            honor_retry_after=ft.policies.HonorRetryAfter(),
            bulkhead=ft.policies.Bulkhead(3),
        ),
    ],
}

SETTLED: Mapping[str, list[Callable[[], ft.Guard]]] = {
    "FT001": [
        lambda: ft.Guard(
            circuit_breaker=ft.policies.CircuitBreaker(),
            bulkhead=ft.policies.Bulkhead(3),
            timeout=ft.policies.Timeout("1s"),
        ),
        lambda: ft.Guard(
            circuit_breaker=ft.policies.CircuitBreaker(fail_on=OSError, skip_on=ft.BulkheadException),
            bulkhead=ft.policies.Bulkhead(3),
        ),
        lambda: ft.Guard(
            circuit_breaker=ft.policies.CircuitBreaker(fail_on=ConnectionError), timeout=ft.policies.Timeout(0)
        ),
        lambda: ft.Guard(
            circuit_breaker=ft.policies.CircuitBreaker(fail_on=ConnectionError),
            fail_when=ft.policies.FailWhen(exception=lambda failure: True),
            timeout=ft.policies.Timeout("1s"),
        ),
    ],
    "FT002": [
        lambda: ft.Guard(retry=ft.policies.Retry(retry_on=OSError)),
        lambda: ft.Guard(retry=ft.policies.Retry(abort_on=TypeError)),
        lambda: ft.Guard(retry=ft.policies.Retry(max_retries=0)),
        lambda: ft.Guard(retry=ft.policies.Retry(), retry_when=ft.policies.RetryWhen(exception=lambda failure: True)),
    ],
    "FT003": [
        lambda: ft.Guard(retry=careful(), timeout=ft.policies.Timeout("1s")),
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=OSError), timeout=ft.policies.Timeout("1s")
        ),  # which a TimeoutException is
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=ConnectionError, abort_on=ft.TimeoutException),
            timeout=ft.policies.Timeout("1s"),
        ),
        lambda: ft.Guard(retry=ft.policies.Retry(retry_on=ConnectionError), timeout=ft.policies.Timeout(0)),
    ],
    "FT004": [
        lambda: ft.Guard(retry=ft.policies.Retry(retry_on=OSError)),  # as the specification has it: no delay
        lambda: ft.Guard(retry=ft.policies.Retry(retry_on=OSError, delay="200ms")),
        lambda: ft.Guard(retry=ft.policies.Retry(retry_on=OSError, delay="50ms", jitter_kind="full")),
    ],
    "FT005": [lambda: ft.Guard(timeout=ft.policies.Timeout("10ms")), lambda: ft.Guard(timeout=ft.policies.Timeout(0))],
    "FT006": [
        lambda: ft.Guard(circuit_breaker=ft.policies.CircuitBreaker(delay="1s"), timeout=ft.policies.Timeout("1s"))
    ],
    "FT008": [
        lambda: ft.Guard(fallback=ft.policies.Fallback(lambda context: None, apply_on=TROUBLE)),
        lambda: ft.Guard(fallback=ft.policies.Fallback(lambda context: None, skip_on=TypeError)),
    ],
    "FT009": [
        lambda: ft.Guard(circuit_breaker=ft.policies.CircuitBreaker(delay=100, max_delay="1s", window="1m", slow=10)),
        lambda: ft.Guard(circuit_breaker=ft.policies.CircuitBreaker(fail_on=TROUBLE, delay=0)),
        lambda: ft.Guard(retry=ft.policies.Retry(retry_on=OSError, delay=30, delay_unit="seconds", max_duration=0)),
        lambda: ft.Guard(retry=ft.policies.Retry(max_retries=0, delay=2, max_duration=10)),
        lambda: ft.Guard(
            deadline=ft.policies.Deadline("5s"), rate_limit=ft.policies.RateLimit(3, window=0.01, max_wait="1s")
        ),
        lambda: ft.Guard(deadline=ft.policies.Deadline(0), bulkhead=ft.policies.Bulkhead(3)),
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=OSError, delay="1s"),
            exponential_backoff=ft.policies.ExponentialBackoff(max_delay=0),
        ),
    ],
    "FT010": [
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=OSError),
            exponential_backoff=ft.policies.ExponentialBackoff(min_delay="100ms"),
        ),
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=OSError, delay="1s"), fibonacci_backoff=ft.policies.FibonacciBackoff()
        ),
        lambda: ft.Guard(retry=ft.policies.Retry(max_retries=0), exponential_backoff=ft.policies.ExponentialBackoff()),
    ],
    "FT012": [
        lambda: ft.Guard(circuit_breaker=ft.policies.CircuitBreaker(fail_on=TROUBLE)),
        lambda: ft.Guard(adaptive_throttle=ft.policies.AdaptiveThrottle(skip_on=ValueError)),
        lambda: ft.Guard(
            circuit_breaker=ft.policies.CircuitBreaker(), fail_when=ft.policies.FailWhen(exception=lambda failure: True)
        ),
    ],
    "FT013": [
        lambda: ft.Guard(
            retry=careful(), circuit_breaker=ft.policies.CircuitBreaker(), bulkhead=ft.policies.Bulkhead(3)
        ),
        lambda: ft.Guard(
            retry=ft.policies.Retry(abort_on=ft.RefusedException), circuit_breaker=ft.policies.CircuitBreaker()
        ),
        lambda: ft.Guard(
            retry=ft.policies.Retry(retry_on=(OSError, ft.BulkheadException)), bulkhead=ft.policies.Bulkhead(3)
        ),
        lambda: ft.Guard(
            retry=ft.policies.Retry(abort_on=ValueError),
            honor_retry_after=ft.policies.HonorRetryAfter(),
            rate_limit=ft.policies.RateLimit(3),
        ),
        lambda: ft.Guard(retry=ft.policies.Retry(max_retries=0), circuit_breaker=ft.policies.CircuitBreaker()),
        lambda: ft.Guard(retry=ft.policies.Retry()),
    ],
}


def found(*guards: ft.Guard) -> list[str]:
    """Return the codes of the doubts about *guards*."""
    mine = [one for one in ft.guards() if any(one.method is guard for guard in guards)]
    assert len(mine) == len(guards)
    names = {one.name for one in mine}  # functions of other tests may be alive
    return [doubt.code for doubt in lint(mine, settings.snapshot) if doubt.where in names]


@pytest.mark.parametrize(("code", "make"), [(code, make) for code, several in DOUBTFUL.items() for make in several])
def test_it_is_doubted(code: str, make: Callable[[], ft.Guard]) -> None:
    """Rule M4: there is no other doubt about it."""
    assert found(make()) == [code]


@pytest.mark.parametrize(("code", "make"), [(code, make) for code, several in SETTLED.items() for make in several])
def test_it_is_settled(code: str, make: Callable[[], ft.Guard]) -> None:
    """Rule M4: the remedy of a doubt removes it."""
    assert code not in found(make())


def test_the_effective_values_are_judged() -> None:
    """Rule M4: a configured value may make a doubt, and may end one."""
    guard = ft.Guard(retry=ft.policies.Retry(), timeout=ft.policies.Timeout("1s"), name="m4 judged")
    with configured({"m4 judged/Retry/retryOn": "OSError", "m4 judged/Timeout/value": "5ms"}):
        assert found(guard) == ["FT005"]
    with configured({"m4 judged/Retry/enabled": False}):
        assert found(guard) == []
    assert found(guard) == ["FT002"]
    guard.close()


def nested_in_guard() -> tuple[Any, str]:
    inner = ft.Guard(retry=careful())

    @ft.retry(max_retries=1, retry_on=TROUBLE)
    @inner
    def call() -> None: ...

    return call, "each of 2 attempts makes up to 4 of"


def nested_in_decorators() -> tuple[Any, str]:
    outer = ft.Guard(retry=ft.policies.Retry(max_retries=-1, max_duration="1m", retry_on=TROUBLE))

    @outer
    @ft.retry(max_retries=2, retry_on=TROUBLE)
    def call() -> None: ...

    return call, "each of endlessly many attempts makes up to 3 of"


@pytest.mark.parametrize("make", [nested_in_guard, nested_in_decorators])
def test_a_retry_around_a_retry_is_doubted_once(make: Callable[[], tuple[Any, str]]) -> None:
    """Rule M4: FT007, in whichever way the guards were put there."""
    call, words = make()
    told = [str(one) for one in {*lint(list(ft.guards()), settings.snapshot)} if one.code == "FT007"]
    mine = [line for line in told if call.__qualname__ in line]

    assert len(mine) == 1
    assert words in mine[0]


def test_a_retry_around_a_guard_without_retries_is_fine() -> None:
    """Rule M4: the attempts are not multiplied."""
    inner = ft.Guard(retry=ft.policies.Retry(max_retries=0), timeout=ft.policies.Timeout("1s"))

    @ft.retry(retry_on=TROUBLE)
    @inner
    def call() -> None: ...

    told = [one for one in lint(list(ft.guards()), settings.snapshot) if one.code == "FT007"]
    assert [one for one in told if call.__qualname__ in one.where] == []


@pytest.fixture
def client() -> Iterator[type]:
    class Client:
        @ft.retry
        @ft.timeout(5)
        def charge(self) -> None: ...

    yield Client
    del Client
    gc.collect()  # others check all that this process guards


@pytest.mark.parametrize(
    ("properties", "left"),
    [
        ({}, ["FT002", "FT005"]),
        ({"Check/ignore": "FT002"}, ["FT005"]),
        ({"CLIENT/Check/ignore": ["ft005"]}, ["FT002"]),
        ({"CLIENT/charge/Check/ignore": "FT005, FT001", "Check/ignore": "FT002"}, []),
        ({"OTHER/Check/ignore": "FT002"}, ["FT002", "FT005"]),
    ],
)
def test_a_doubt_is_switched_off_by_a_key(client: type, properties: dict[str, Any], left: list[str]) -> None:
    """Rule M4: for all guards, for a class, for a method; the codes of all three keys are ignored."""
    properties = {
        key.replace("CLIENT", f"{__name__}.{client.__qualname__}"): value for key, value in properties.items()
    }
    with configured(properties):
        name = f"{__name__}.{client.__qualname__}.charge"
        doubts = lint([one for one in ft.guards() if one.name == name], settings.snapshot)
        assert sorted(one.code for one in doubts if one.where == name) == left
        unused = [one.key for one in ft.validate() if "ignore" in one.key]
        assert unused == [key for key in properties if "OTHER" in key]


@pytest.mark.parametrize(
    ("key", "left"),
    [
        ("Check/ignore", []),
        ("outer/Check/ignore", []),
        (f"{__name__}/FUNCTION/Check/ignore", []),
        ("other/Check/ignore", ["FT007"]),
    ],
)
def test_the_doubt_about_a_retry_around_a_retry_is_switched_off_by_a_key_of_either(key: str, left: list[str]) -> None:
    """Rule M4: the function that a ``Guard`` decorates has keys, too."""
    outer = ft.Guard(retry=careful(), name="outer")

    @outer
    @ft.retry(max_retries=2, retry_on=TROUBLE)
    def call() -> None: ...

    with configured({key.replace("FUNCTION", call.__qualname__): "FT007"}):
        doubts = [one for one in lint(list(ft.guards()), settings.snapshot) if call.__qualname__ in one.where]
    assert [one.code for one in doubts] == left


def test_every_code_is_tried() -> None:
    """Rule M4: each is doubted once, and settled once."""
    beside = {"FT007"}  # of more than the policies of one guard

    assert {*DOUBTFUL, *beside} == {*SETTLED, *beside} == {*CODES}


PROGRAM = "import faulttolerance as ft\n@ft.retry\n@ft.timeout(5)\ndef charge(): ...\n"


@pytest.fixture
def check(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    pytest.importorskip("typer")
    (tmp_path / "acme.py").write_text(PROGRAM)

    def run(*options: str, **environment: str) -> Any:
        return command_line("check", "acme", *options, folder=tmp_path, environment={**ALONE, **environment})

    yield run
    gc.collect()


@pytest.mark.outside
@pytest.mark.parametrize(
    ("options", "environment", "status", "codes"),
    [
        ((), {}, 0, ["FT002", "FT005"]),
        (("--strict",), {}, 1, ["FT002", "FT005"]),
        (("--strict",), {"FAULTTOLERANCE_CHECK_IGNORE": "FT002,ft005"}, 0, []),
        (("--strict",), {"FAULTTOLERANCE_CHECK_IGNORE": "FT002"}, 1, ["FT005"]),
    ],
)
def test_check_reports_doubts_and_fails_if_it_is_strict(
    check: Callable[..., Any], options: tuple[str, ...], environment: dict[str, str], status: int, codes: list[str]
) -> None:
    """Rule M4: both on the command line and in a build."""
    done = check(*options, **environment)

    assert (done.returncode, re.findall(r"\[(FT\d+)\]$", done.stderr, re.MULTILINE)) == (status, codes)


@pytest.mark.outside
def test_an_unknown_code_is_reported(check: Callable[..., Any]) -> None:
    """Rule M4: a typing mistake switches no doubt off."""
    assert "no doubt has the code 'FT999'; there are FT001" in check(FAULTTOLERANCE_CHECK_IGNORE="FT999").stderr
