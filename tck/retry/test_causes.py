"""Sets of failures that look behind a failure, or at the members of a group (rule T2)."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import faulttolerance as ft
from faulttolerance import (
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Guard,
    caused_by,
    circuit_breaker,
    explain,
    fallback,
    retry,
)
from faulttolerance._config.formatting import formatted
from faulttolerance._strategy.verdict import contains
from faulttolerance.policies import CircuitBreaker, Retry
from faulttolerance.testing import configured
from kit import Invoke


class Halt(BaseException):
    """Control flow of an application."""


class Wrapped(Exception):
    """A library's own exception around a failure below it."""


def chained(failure: BaseException, cause: BaseException | None = None, context: BaseException | None = None) -> Any:
    failure.__context__ = context
    if cause is not None:
        failure.__cause__ = cause
    return failure


def suppressed() -> BaseException:
    try:
        try:
            raise ConnectionError
        except ConnectionError:
            raise ValueError from None
    except ValueError as error:
        return error


def circle() -> BaseException:
    first, second = ValueError(1), KeyError(2)
    first.__cause__, second.__cause__ = second, first
    return first


def deep(bottom: Exception, depth: int = 200) -> BaseException:
    failure: BaseException = bottom
    for _ in range(depth):
        failure = chained(ValueError(), context=failure)
    return failure


def nested(*members: Exception, depth: int = 200) -> ExceptionGroup[Exception]:
    group = ExceptionGroup("at the bottom", members)
    for _ in range(depth):
        group = ExceptionGroup("around it", [group])
    return group


def attempts_of(invoke: Invoke, failure: BaseException, **parameters: Any) -> int:
    """Return the number of attempts of a call that fails with *failure* each time."""
    attempts = []

    @retry(max_retries=1, delay=0, jitter=0, **parameters)
    @invoke.body
    async def service() -> None:
        attempts.append(None)
        raise failure

    with pytest.raises(type(failure)):
        invoke(service)
    return len(attempts)


@pytest.mark.parametrize(
    ("failure", "is_meant"),
    [
        (lambda: ConnectionError(), True),
        (lambda: ConnectionResetError(), True),
        (lambda: ValueError(), False),
        (lambda: chained(ValueError(), cause=ConnectionError()), True),
        (lambda: chained(ValueError(), context=ConnectionError()), True),
        (lambda: chained(ValueError(), cause=chained(KeyError(), context=ConnectionRefusedError())), True),
        (lambda: chained(ValueError(), cause=KeyError(), context=ConnectionError()), False),
        (suppressed, False),
        (circle, False),
        (lambda: chained(ValueError(), cause=circle()), False),
        (lambda: deep(ConnectionError()), True),
        (lambda: ExceptionGroup("", [ValueError(), ConnectionError()]), True),
        (lambda: ExceptionGroup("", [ValueError(), chained(KeyError(), cause=ConnectionError())]), True),
        (lambda: ExceptionGroup("", [ValueError(), KeyError()]), False),
        (lambda: nested(ValueError(), ConnectionError()), True),
        (lambda: chained(ValueError(), cause=ExceptionGroup("", [ConnectionError()])), True),
    ],
)
def test_a_failure_is_meant_by_the_chain_that_its_traceback_shows(
    failure: Callable[[], BaseException], is_meant: bool, invoke: Invoke
) -> None:
    """Rule T2: a set looks at the failure, its causes, shown contexts, one member of a group; circles end (B18)."""
    assert attempts_of(invoke, failure(), retry_on=caused_by(ConnectionError)) == 1 + is_meant
    assert attempts_of(invoke, failure(), abort_on=[KeyboardInterrupt, caused_by(ConnectionError)]) == 2 - is_meant


@pytest.mark.parametrize(
    ("group", "is_meant"),
    [
        (lambda: ExceptionGroup("", [ConnectionResetError(), TimeoutError()]), True),
        (lambda: ExceptionGroup("", [ConnectionError(), ValueError()]), False),
        (lambda: ExceptionGroup("", [ExceptionGroup("", [ConnectionError()]), TimeoutError()]), True),
        (lambda: nested(ConnectionError()), True),
        (lambda: nested(ConnectionError(), ValueError()), False),
    ],
)
def test_a_group_is_meant_if_all_its_members_are(
    group: Callable[[], BaseException], is_meant: bool, invoke: Invoke
) -> None:
    """Rule T2: plain classes mean a group of nothing else, at any depth; so do the classes that are never retried."""
    classes = (ConnectionError, TimeoutError)

    assert attempts_of(invoke, group(), retry_on=classes) == 1 + is_meant
    assert attempts_of(invoke, group(), abort_on=classes) == 2 - is_meant


def test_a_set_without_classes_means_no_group() -> None:
    """Rule T2: nothing is contained in an empty set."""
    guard = Guard(retry=Retry(max_retries=1, jitter=0, retry_on=()))
    attempts = []

    def service() -> None:
        attempts.append(None)
        raise ExceptionGroup("", [ValueError()])

    with pytest.raises(ExceptionGroup):
        guard.call(service)
    assert len(attempts) == 1


@pytest.mark.parametrize("kind", [Halt, KeyboardInterrupt, SystemExit])
def test_control_flow_is_not_meant_by_its_causes_or_members(kind: type[BaseException], invoke: Invoke) -> None:
    """Rules T2 and R0: a cause or a member makes no failure of control flow; only its own name in a set does."""
    causes = caused_by(ConnectionError, BaseException)

    assert attempts_of(invoke, chained(Halt(), cause=ConnectionError()), retry_on=causes) == 1
    assert attempts_of(invoke, BaseExceptionGroup("", [kind(), ConnectionError()]), retry_on=causes) == 1
    assert attempts_of(invoke, Halt(), retry_on=caused_by(Halt)) == 2


def test_no_chain_and_no_nesting_is_too_deep() -> None:
    """Rule T2: the search uses no recursion."""
    assert isinstance(deep(ConnectionError(), 100_000), caused_by(ConnectionError))  # type: ignore[arg-type]
    assert contains((ConnectionError,), nested(ConnectionError(), depth=100_000))
    assert not contains((ConnectionError,), nested(ConnectionError(), ValueError(), depth=100_000))


def test_the_chain_of_a_failure_stays_where_the_caller_handles_another() -> None:
    """Rule T2: a failure keeps the exception that its body handled, whatever its caller handles."""
    again = retry(max_retries=1, delay=0, jitter=0)

    @again
    def service() -> None:
        try:
            raise KeyError
        except KeyError:
            raise Wrapped  # noqa: B904

    @again
    async def service_async() -> None:
        service()

    async def handle() -> None:
        try:
            raise ConnectionError
        except ConnectionError:
            await service_async()

    with pytest.raises(Wrapped) as caught:
        asyncio.run(handle())

    assert isinstance(caught.value, caused_by(KeyError))  # type: ignore[arg-type]


def test_it_stands_in_every_set(invoke: Invoke) -> None:
    """Rule T2: in those of the breaker and of the fallback, beside classes and alone."""

    @fallback(lambda context: "substitute", apply_on=(OSError, caused_by(ConnectionError)))
    @invoke.body
    async def replaced(kind: type[BaseException]) -> None:
        raise Wrapped from kind()

    @fallback(lambda context: "substitute", skip_on=caused_by(ConnectionError))
    @invoke.body
    async def skipped(kind: type[BaseException]) -> None:
        raise Wrapped from kind()

    @circuit_breaker(
        request_volume_threshold=2, failure_ratio=1, fail_on=caused_by(ConnectionError), skip_on=[caused_by(KeyError)]
    )
    @invoke.body
    async def broken(kind: type[BaseException]) -> None:
        raise Wrapped from kind()

    assert invoke(replaced, ConnectionError) == "substitute"
    assert invoke(skipped, KeyError) == "substitute"
    for method in (replaced, skipped):
        with pytest.raises(Wrapped):
            invoke(method, KeyError if method is replaced else ConnectionError)
    for kind in (KeyError, KeyError, ConnectionError, ConnectionError):
        with pytest.raises(Wrapped):
            invoke(broken, kind)
    with pytest.raises(CircuitBreakerOpenException):
        invoke(broken, KeyError)


@pytest.mark.parametrize(
    "text",
    [
        "caused_by(ConnectionError)",
        " ValueError , caused_by( ConnectionError , KeyError ) ",
        "faulttolerance.caused_by(builtins.ConnectionError)",
        f"{__name__}.BEHIND",
    ],
)
def test_it_is_configured_as_it_is_written(text: str, invoke: Invoke) -> None:
    """Rule T2: by names of classes between the brackets, alone or in a list; or by the name of a constant."""
    with configured({"Retry/retryOn": text}):
        assert attempts_of(invoke, chained(RuntimeError(), cause=ConnectionError()), retry_on=()) == 2
        assert attempts_of(invoke, chained(RuntimeError(), cause=OSError()), retry_on=()) == 1


BEHIND = caused_by(ConnectionError)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("caused_by()", "Retry/retryOn"),
        ("caused_by(ConectionError)", "did you mean 'ConnectionError'?"),
        ("caused_by(int)", "Retry/retryOn is 'caused_by(int)'; allowed: "),
        ("caused_by(OSError", "Retry/retryOn"),
        ("caused_by(caused_by(OSError))", "Retry/retryOn"),
    ],
)
def test_a_misspelt_set_is_refused(text: str, words: str) -> None:
    """Rule T2: the error names the key and the nearest name."""
    guarded = retry(lambda: None)

    with configured({"Retry/retryOn": text}), pytest.raises(FaultToleranceDefinitionException) as refused:
        guarded()

    assert words in str(refused.value)


@pytest.mark.parametrize("wrong", [(), (int,), ("OSError",), (OSError(),), ((OSError,),), (caused_by(OSError),)])
def test_it_takes_exception_classes_and_at_least_one(wrong: tuple[Any, ...]) -> None:
    """Rule T2: anything else is refused at once."""
    with pytest.raises(FaultToleranceDefinitionException, match="allowed: one or more exception classes"):
        caused_by(*wrong)


def test_it_is_a_value() -> None:
    """Rule T2: equal where its classes are; it pickles, copies, and its ``repr`` can be typed."""
    causes = caused_by(ConnectionError, Halt)

    assert causes == caused_by(ConnectionError, Halt, ConnectionError)
    assert causes != caused_by(ConnectionError)
    assert len({causes, caused_by(ConnectionError, Halt)}) == 1
    assert pickle.loads(pickle.dumps(causes)) == causes
    assert copy.deepcopy(causes) == causes
    assert repr(causes) == f"caused_by(ConnectionError, {__name__}.Halt)"
    assert repr(Retry(retry_on=causes)) == f"Retry(retry_on={causes!r})"
    assert repr(caused_by(ft.TimeoutException)) == "caused_by(TimeoutException)"
    assert Retry(retry_on=causes) == Retry(retry_on=[causes])
    assert pickle.loads(pickle.dumps(CircuitBreaker(fail_on=causes))) == CircuitBreaker(fail_on=causes)


def test_explain_shows_it_and_formatting_writes_a_text_that_can_be_read_back() -> None:
    """Rule T2: both have the classes' names."""

    @retry(retry_on=(OSError, caused_by(ft.TimeoutException, KeyError)))
    def service() -> None: ...

    written = formatted((OSError, caused_by(ft.TimeoutException, KeyError)))
    assert written == "OSError,caused_by(faulttolerance.exceptions.TimeoutException,KeyError)"
    assert f"retryOn = {written} " in explain(service)
    with configured({"Retry/retryOn": written}):
        assert f"retryOn = {written} " in explain(service)


def test_check_knows_the_classes_that_it_names() -> None:
    """Rule T2: the classes of a set are those that are named inside."""
    assert issubclass(ft.BulkheadException, caused_by(ft.RefusedException))  # type: ignore[arg-type]
    assert not issubclass(OSError, caused_by(ConnectionError))  # type: ignore[arg-type]
