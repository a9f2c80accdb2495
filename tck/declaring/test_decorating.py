"""Rules P1 to P7: targets of decorators, their arguments, and what other tools still see."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import datetime
import functools
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest

import faulttolerance
from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    FaultToleranceException,
    Guard,
    Interrupted,
    RateLimitException,
    TimeoutException,
    adaptive_throttle,
    apply_guard,
    asynchronous,
    bulkhead,
    circuit_breaker,
    explain,
    fallback,
    rate_limit,
    retry,
    timeout,
    unguarded,
)
from faulttolerance.policies import RateLimit, RateLimitType, Retry
from kit import Clock, Invoke
from kit.definition import refused

twice = retry(max_retries=1, jitter=0)

executions: list[object] = []


@pytest.fixture(autouse=True)
def no_executions() -> None:
    executions.clear()


def fail(*args: Any) -> None:
    """Record the call, and raise."""
    executions.append(args)
    raise OSError


async def fail_async(*args: Any) -> None:
    """Record the call, and raise."""
    fail(*args)


def failing(call: Callable[..., Any], *args: Any) -> int:
    """Return how often the body runs in one call."""
    executions.clear()
    with pytest.raises(OSError):
        outcome(call(*args))
    return len(executions)


def outcome(result: Any) -> Any:
    """Return the result of a call, awaited where that is needed."""
    if not inspect.isawaitable(result):
        return result

    async def main() -> Any:
        return await result

    return asyncio.run(main())


# P1: the targets of a decorator and its forms


@pytest.mark.parametrize("decorator", [retry, retry(), retry(max_retries=3)])
def test_retry_needs_no_parentheses(decorator: Any) -> None:
    """P1: ``@retry``, ``@retry()`` and ``@retry(...)`` are the same decorator."""
    guarded = decorator(lambda: 7)

    assert guarded() == 7
    assert "Retry" in explain(guarded)


def test_a_lambda_of_a_comprehension_is_a_function() -> None:
    """P1: its qualified name has a scope that is no class."""
    calls = []

    def fail(name: str) -> None:
        calls.append(name)
        raise OSError

    in_a_generator, *_ = tuple(retry(lambda: fail("generator"), max_retries=1, jitter=0) for _ in range(1))
    [in_a_list] = [retry(lambda: fail("list"), max_retries=1, jitter=0) for _ in range(1)]
    for function in (in_a_generator, in_a_list):
        with pytest.raises(OSError):
            function()

    assert calls == ["generator", "generator", "list", "list"]


@pytest.mark.parametrize(
    ("decorator", "shown"),
    [
        (timeout(400), "value = 400"),
        (bulkhead(5), "value = 5"),
        (timeout, "value = 1s"),
        (bulkhead, "value = 10"),
        (circuit_breaker, "requestVolumeThreshold = 20"),
        (rate_limit, "RateLimit"),
        (adaptive_throttle, "minRequests = 10"),
        (fallback(lambda context: 1), "Fallback"),
    ],
)
def test_every_policy_has_its_short_form(decorator: Any, shown: str) -> None:
    """P1: the first parameter by position, and none at all where there are defaults."""
    assert shown in explain(decorator(lambda: 7), all=True)


class Methods:
    """A class with every way of binding, and the decorator on either side."""

    @twice
    def method(self) -> None:
        fail(self)

    @staticmethod
    @twice
    def static_above() -> None:
        fail()

    @twice
    @staticmethod
    def static_below() -> None:
        fail()

    @classmethod
    @twice
    def of_class_above(cls) -> None:
        fail(cls)

    @twice
    @classmethod
    def of_class_below(cls) -> None:
        fail(cls)

    @twice
    async def coroutine(self) -> None:
        fail(self)

    @twice
    @staticmethod
    async def static_coroutine() -> None:
        fail()

    @classmethod
    @twice
    async def of_class_coroutine(cls) -> None:
        fail(cls)


@pytest.mark.parametrize("name", [name for name in vars(Methods) if not name.startswith("_")])
def test_every_kind_of_method_is_guarded(name: str) -> None:
    """P1: on an object, and on its class where that can be."""
    assert failing(getattr(Methods(), name)) == 2
    if isinstance(vars(Methods)[name], (staticmethod, classmethod)):
        assert failing(getattr(Methods, name)) == 2
    else:
        assert failing(getattr(Methods, name), Methods()) == 2


class CallableObject:
    """An object that can be called."""

    def __call__(self) -> None:
        fail()

    def method(self) -> None:
        fail()


class AsyncCallable:
    """An object whose call is a coroutine."""

    async def __call__(self) -> None:
        fail()

    async def method(self) -> None:
        fail()


@functools.wraps(fail_async)
def wrapping(*args: Any) -> Any:
    """Return the coroutine of another function."""
    return fail_async(*args)


def wrapt_wrapper() -> Any:
    wrapt = pytest.importorskip("wrapt")

    @wrapt.decorator
    def through(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        return wrapped(*args, **kwargs)

    return through(fail_async)


def mocked(call: Any, mock: Any) -> Any:
    """Return *mock*, which calls *call*."""
    mock.side_effect = call
    return mock


def marked_for_asyncio() -> Any:
    """Return a function that asyncio takes for a coroutine function, as Django's views are marked."""

    def view() -> Any:
        return fail_async()

    view._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # as asgiref does it on 3.11
    return view


COROUTINES: dict[str, Callable[[], Any]] = {
    "async def": lambda: fail_async,
    "partial": lambda: functools.partial(fail_async, 1),
    "partial of partial": lambda: functools.partial(functools.partial(fail_async, 1), 2),
    "object": AsyncCallable,
    "bound method": lambda: AsyncCallable().method,
    "functools.wraps": lambda: wrapping,
    "partial of functools.wraps": lambda: functools.partial(wrapping, 1),
    "wrapt": wrapt_wrapper,
    "guard": lambda: bulkhead(3)(fail_async),
    "mark of asyncio": marked_for_asyncio,
    "partial of a mark": lambda: functools.partial(marked_for_asyncio()),
    "mock": lambda: AsyncMock(side_effect=fail_async),
    "mock of a function": lambda: mocked(fail_async, create_autospec(fail_async)),
    "mock of a method": lambda: mocked(fail_async, create_autospec(AsyncCallable, instance=True).method),
}
FUNCTIONS: dict[str, Callable[[], Any]] = {
    "def": lambda: fail,
    "lambda": lambda: lambda: fail(),
    "partial": lambda: functools.partial(fail, 1),
    "object": CallableObject,
    "bound method": lambda: CallableObject().method,
    "mock of a function": lambda: mocked(fail, create_autospec(fail)),
    "mock of a method": lambda: mocked(fail, create_autospec(CallableObject, instance=True).method),
}


@pytest.mark.parametrize("kind", COROUTINES)
def test_coroutine_functions_are_recognised_however_they_are_built(kind: str) -> None:
    """P6, B37: the guard is a coroutine function, awaits the failure, and retries."""
    guarded = twice(COROUTINES[kind]())

    assert inspect.iscoroutinefunction(guarded)
    assert failing(guarded) == 2


def noting(seen: list[object]) -> Callable[[Any], Any]:
    """Return a decorator of wrapt that appends the object or class of each call to *seen*."""
    wrapt = pytest.importorskip("wrapt")

    @wrapt.decorator
    def noted(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        seen.append(instance)
        return wrapped(*args, **kwargs)

    return noted  # type: ignore[no-any-return]


def test_a_wrapper_of_wrapt_between_two_decorators_stays() -> None:
    """It equals the guard that it wraps, and is another function: a lock, or a span, of the application."""
    seen: list[object] = []
    noted = noting(seen)

    class Service:
        @twice
        @noted
        @timeout(60_000)
        def method(self) -> None:
            fail()

    @twice
    @noted
    @timeout(60_000)
    def function() -> None:
        fail()

    service = Service()
    for call in (service.method, function):
        with pytest.raises(OSError):
            call()

    assert seen == [service, service, None, None]


@pytest.mark.parametrize("is_outermost", [True, False])
@pytest.mark.parametrize(("kind", "told"), [(staticmethod, False), (classmethod, True)])
def test_a_wrapper_of_wrapt_around_a_guard_stays_in_static_and_class_methods(
    kind: Callable[[Any], Any], told: bool, is_outermost: bool
) -> None:
    """The guard learns its kind when its class is there, and stays the function that the wrapper wraps."""
    seen: list[object] = []
    noted = noting(seen)

    class Service:
        @(noted if is_outermost else kind)
        @(kind if is_outermost else noted)
        @twice
        def method(*args: Any) -> None:
            fail(*args)

    with pytest.raises(OSError):
        Service.method(1)  # type: ignore[call-arg]

    # From 3.13 on, a class method binds nothing inside it.
    assert seen == [Service if told and (is_outermost or sys.version_info < (3, 13)) else None]
    assert executions == [(Service, 1) if told else (1,)] * 2
    assert "Service.method" in explain(Service.method).splitlines()[0]


def test_a_wrapper_of_wrapt_around_the_guard_of_a_base_stays_for_a_subclass_that_was_guarded_before() -> None:
    """Instrumentation wraps methods late, and records the calls of all classes."""
    seen: list[object] = []

    class Base:
        def method(self) -> None:
            fail()

    class Service(Base):
        pass

    twice(Service)
    timeout(60_000)(Base)
    Base.method = noting(seen)(vars(Base)["method"])  # type: ignore[method-assign]
    service = Service()
    with pytest.raises(OSError):
        service.method()

    assert seen == [service, service]


def test_a_static_method_stays_the_function_that_its_class_body_refers_to() -> None:
    """A table of functions in the class body calls the same guard, with the same counts."""

    class Service:
        @twice
        def method() -> None:  # type: ignore[misc]
            fail()

        table = (method,)
        method = staticmethod(method)

    for call in (Service.table[0], Service.method):
        with pytest.raises(OSError):
            call()

    assert Service.table[0] is Service.method
    assert len(executions) == 4


@pytest.mark.parametrize("level", ["method", "class", "guard"])
def test_wrappers_of_wrapt_are_told_the_instance(level: str) -> None:
    """P1, P6: below a decorator of ours, or in a class that has one, they run, and are bound as Python binds them."""
    wrapt = pytest.importorskip("wrapt")
    seen: list[object] = []

    @wrapt.decorator
    def noted(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        seen.append((instance, args))
        return wrapped(*args, **kwargs)

    on_method = {"method": twice, "class": lambda function: function, "guard": Guard(retry=Retry())}[level]

    class Service:
        @on_method
        @noted
        def own(self, value: str) -> str:
            return value

        @on_method
        @noted
        @classmethod
        def of_class(cls, value: str) -> tuple[type, str]:
            return cls, value

        @on_method
        @noted
        @staticmethod
        def static(value: str) -> str:
            return value

    if level == "class":
        twice(Service)
    service = Service()
    answers = [service.own("a"), service.of_class("b"), Service.of_class("c"), service.static("d"), Service.static("e")]

    assert answers == ["a", (Service, "b"), (Service, "c"), "d", "e"]
    assert seen == [(service, ("a",)), (Service, ("b",)), (Service, ("c",)), (None, ("d",)), (None, ("e",))]


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_other_callables_are_guarded_as_functions(kind: str) -> None:
    """P1, P6: a partial or an object is called on this thread."""
    guarded = twice(FUNCTIONS[kind]())

    assert not inspect.iscoroutinefunction(guarded)
    assert failing(guarded) == 2


def test_built_in_functions_are_guarded() -> None:
    """P1: a function without a Python signature takes the same arguments as before."""
    numbers = iter([1, 2])
    following = twice(next)

    assert [following(numbers), following(numbers), following(numbers, 3)] == [1, 2, 3]


def test_class_that_cannot_be_changed_is_refused() -> None:
    """P7: ``retry(int)`` is no guarded conversion."""
    with refused("builtins.int cannot be changed"):
        twice(int)


# Forms of a duration and of a set


def test_duration_is_a_number_or_a_timedelta(invoke: Invoke, clock: Clock) -> None:
    """P2: a timedelta needs no unit."""

    @timeout(datetime.timedelta(seconds=2))
    @invoke.body
    async def by_timedelta() -> None:
        await invoke.sleep(10)

    @timeout(2000.0)
    @invoke.body
    async def by_number() -> None:
        await invoke.sleep(10)

    for method in (by_timedelta, by_number):
        began = clock.monotonic()

        assert invoke.outcome(method) is TimeoutException
        assert clock.monotonic() - began == pytest.approx(2, abs=0.01)


@pytest.mark.parametrize(
    "given", [OSError, (OSError,), [OSError, KeyError], {OSError}, frozenset({OSError}), iter([OSError])]
)
def test_exception_set_is_a_class_or_an_iterable(given: Any) -> None:
    """P2: also one that can be read only once, and a list that is changed later."""
    guarded = retry(max_retries=1, jitter=0, retry_on=given)(fail)
    if isinstance(given, list):
        given.clear()

    assert failing(guarded) == 2


# P3: the view of other tools


def charge(order: int, /, *items: str, amount: float = 1.0, **rest: object) -> dict[str, object]:
    """Charge an order."""
    return {"order": order, "items": items, "amount": amount, **rest}


charge.team = "billing"  # type: ignore[attr-defined]
guarded_charge = retry(timeout(1000)(charge))


@pytest.mark.parametrize("decorator", [retry, asynchronous, lambda target: retry(timeout(bulkhead(target)))])
def test_guard_looks_like_its_function(decorator: Any) -> None:
    """P3: name, module, docstring, signature, annotations, attributes."""
    guarded = decorator(charge) if decorator is not asynchronous else asynchronous(_unannotated(charge))

    assert (guarded.__name__, guarded.__module__) == ("charge", __name__)
    assert guarded.__doc__ == "Charge an order."
    assert list(inspect.signature(guarded).parameters) == ["order", "items", "amount", "rest"]
    assert guarded.__qualname__ == "charge"


def test_a_guard_and_its_calls_have_the_name_of_a_mock_that_has_no_qualified_name() -> None:
    """P3: a report on a coroutine that was never awaited names the function for which the mock stands."""
    fetch = AsyncMock(return_value="fetched")
    fetch.__name__ = "fetch"
    guarded = retry(fetch)
    call = guarded()

    assert (guarded.__qualname__, call.__qualname__) == ("fetch", "fetch")
    assert asyncio.run(call) == "fetched"


def _unannotated(function: Any) -> Any:
    made = copy.copy(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return made(*args, **kwargs)

    wrapper.__annotations__ = {}
    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(annotation=one.empty) for one in inspect.signature(function).parameters.values()]
    )
    del wrapper.__wrapped__
    return wrapper


def test_signature_and_attributes_are_those_of_the_function() -> None:
    """P3: for ``inspect.signature``, ``get_type_hints`` and code that sets attributes."""
    import typing

    assert inspect.signature(guarded_charge) == inspect.signature(charge)
    assert typing.get_type_hints(guarded_charge) == typing.get_type_hints(charge)
    assert guarded_charge.team == "billing"  # type: ignore[attr-defined]
    assert inspect.unwrap(guarded_charge) is charge
    assert inspect.getsource(guarded_charge) == inspect.getsource(charge)


def test_wrong_arguments_are_refused_as_the_function_refuses_them(invoke: Invoke) -> None:
    """P3: ``TypeError``, for every convention."""

    @retry(max_retries=0)
    @invoke.body
    async def function(order: int) -> None: ...

    with pytest.raises(TypeError, match=r"order|argument"):
        invoke(function)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_guards_pickle_by_reference(protocol: int) -> None:
    """P3, B39: functions, static and class methods, bound methods, and partial objects of them."""
    methods = Methods()
    through = [
        pickle.loads(pickle.dumps(one, protocol))
        for one in (billed, Methods.static_above, Methods.static_below, Methods.method)
    ]
    bound = pickle.loads(pickle.dumps(methods.method, protocol))
    of_class = pickle.loads(pickle.dumps(Methods.of_class_below, protocol))
    partial = pickle.loads(pickle.dumps(functools.partial(billed, 1, amount=2.0), protocol))

    assert through == [billed, Methods.static_above, Methods.static_below, Methods.method]
    assert failing(bound) == 2
    assert of_class == Methods.of_class_below
    assert partial() == (1, 2.0)


def test_guards_are_copied_as_functions_are() -> None:
    """P3: ``copy`` and ``deepcopy`` give the guard itself."""
    assert copy.copy(guarded_charge) is guarded_charge
    assert copy.deepcopy(guarded_charge) is guarded_charge


def test_framework_that_looks_at_the_wrapper_and_the_wrapped_function_sees_one_kind() -> None:
    """P3, B37: FastAPI decides by the unwrapped callable, or by the wrapper: both are of the same kind."""
    for function in (fail, fail_async):
        guarded: Any = retry(bulkhead(function))

        assert inspect.iscoroutinefunction(guarded) == inspect.iscoroutinefunction(inspect.unwrap(guarded))
        assert inspect.isfunction(guarded)
        assert not inspect.isgeneratorfunction(guarded)
        assert not inspect.isasyncgenfunction(guarded)


def test_wrapper_around_a_guard_works_as_around_a_function() -> None:
    """P3: ``functools.wraps``, ``lru_cache``, ``contextlib`` and ``singledispatch`` take a guard."""

    @functools.singledispatch
    @twice
    def kind(value: object) -> str:
        return "object"

    @kind.register
    @twice
    def _(value: int) -> str:
        fail()
        return "int"

    cached = functools.lru_cache(twice(lambda value: executions.append(value) or value))

    assert kind("x") == "object"
    assert failing(kind, 1) == 2
    executions.clear()
    assert [cached(5), cached(5)] == [5, 5]
    assert executions == [5]


@retry
@timeout(1000)
def billed(order: int, amount: float = 1.0) -> tuple[int, float]:
    return order, amount


# Streams


@contextlib.contextmanager
def managed() -> Any:
    yield 1


def test_generator_functions_are_refused_with_advice() -> None:
    """P4: synchronous and asynchronous ones, and partials of them; a context manager made of one is fine."""

    def stream() -> Any:
        yield 1

    async def astream() -> Any:
        yield 1

    for function in (stream, astream, functools.partial(stream), staticmethod(stream)):
        with refused("generator function", "body of the loop"):
            retry(function)


# Exceptions


EXCEPTIONS = [
    FaultToleranceException("x"),
    TimeoutException("late"),
    CircuitBreakerOpenException("open", 2.5),
    RateLimitException("limited", 1.5),
    BulkheadException("full"),
    FaultToleranceDefinitionException(faulttolerance.exceptions.Fault("m.f @Retry(delay)", "is -1", -1, ">= 0")),
]


@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda error: type(error).__name__)
def test_exceptions_pickle_and_copy(error: Exception) -> None:
    """P5, B39: with all their attributes."""
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        for name in ("retry_after", "where", "got", "allowed", "source", "faults"):
            assert getattr(other, name, None) == getattr(error, name, None)


@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda error: type(error).__name__)
def test_an_exception_is_created_empty_where_another_process_restores_it(error: Exception) -> None:
    """P5: tblib does so, by which Dask and Django's parallel tests send exceptions."""
    other = type(error).__new__(type(error))
    other.args = error.args
    assert str(other) == str(error)


def test_an_exception_of_the_library_keeps_its_arguments_whatever_else_it_is() -> None:
    """P5: as an ``OSError`` it has no number, and an exception of a client that it is, too, runs no code for it."""
    late = TimeoutException("late", 2.5)
    assert (late.args, late.errno, late.strerror, str(late)) == (("late", 2.5), None, None, "('late', 2.5)")

    class ClientError(Exception):
        def __init__(self, message: str) -> None:
            super().__init__(message)
            self.code = message

    for kind, arguments in ((TimeoutException, ("late",)), (BulkheadException, ("full", 2.5, "waited"))):
        error = type("Of a client", (kind, ClientError), {})(*arguments)
        assert (error.args, vars(error)) == (arguments, {})


def test_hierarchy_of_exceptions() -> None:
    """P5: one base, which is a ``RuntimeError``; two are built-in errors as well; the interruption is none of them."""
    for error in EXCEPTIONS:
        assert isinstance(error, FaultToleranceException)
        assert isinstance(error, RuntimeError)

    assert issubclass(TimeoutException, TimeoutError)
    assert issubclass(FaultToleranceDefinitionException, ValueError)
    assert issubclass(Interrupted, BaseException)
    assert not issubclass(Interrupted, Exception)


@pytest.mark.parametrize("kind", ["circuit", "rate"])
def test_refusals_say_when_to_come_back(invoke: Invoke, clock: Clock, kind: str) -> None:
    """P5: ``retry_after`` in seconds, as of the refusal, also where the exception has been pickled."""
    policy = (
        circuit_breaker(request_volume_threshold=1, delay=4000)
        if kind == "circuit"
        else rate_limit(1, window=datetime.timedelta(seconds=4))
    )

    @policy
    @invoke.body
    async def service() -> None:
        raise OSError

    assert invoke.outcome(service) is OSError
    clock.sleep(1)
    with pytest.raises((CircuitBreakerOpenException, RateLimitException)) as raised:
        invoke(service)

    assert raised.value.retry_after == pytest.approx(3, abs=0.01)
    assert pickle.loads(pickle.dumps(raised.value)).retry_after == raised.value.retry_after


# P7: right, or a definition error


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: retry(fail, max_retries="5"), ["@Retry(max_retries)", "'5'"]),
        (lambda: retry(retry_on="OSError")(fail), ["'OSError'"]),
        (lambda: retry(retry_on=OSError())(fail), ["OSError()"]),
        (lambda: retry(retry_on=[int])(fail), ["int"]),
        (lambda: retry(max_retries=None)(fail), ["None"]),
        (lambda: retry(max_retries=1.5)(fail), ["1.5"]),
        (lambda: retry(max_retries=True)(fail), ["True"]),
        (lambda: retry(delay=float("nan"))(fail), ["nan"]),
        (lambda: retry(delay_unit="fortnights")(fail), ["'fortnights'"]),
        (lambda: timeout(None)(fail), ["None"]),
        (lambda: timeout("soon")(fail), ["'soon'"]),
        (lambda: timeout(float("inf"))(fail), ["inf"]),
        (lambda: bulkhead(0)(fail), ["0"]),
        (lambda: bulkhead(2.0)(fail), ["2.0"]),
        (lambda: circuit_breaker(failure_ratio="0.5")(fail), ["'0.5'"]),
        (lambda: circuit_breaker(fail_on=None)(fail), ["None"]),
        (lambda: fallback("no name")(fail), ["'no name'"]),
        (lambda: retry("fail"), ["@Retry"]),
        (lambda: retry(3), ["@Retry"]),
        (lambda: timeout(400)(), ["@Timeout"]),
        (lambda: timeout(400)(400), ["@Timeout"]),
    ],
)
def test_a_wrong_declaration_is_refused(declare: Callable[[], Any], words: list[str]) -> None:
    """P7, B17, B25: no argument is silently taken for something else."""
    with pytest.raises(FaultToleranceDefinitionException) as raised:
        declare()

    for word in words:
        assert word in str(raised.value)


def test_function_and_parameters_in_one_call_are_right(invoke: Invoke) -> None:
    """P7, B25: ``retry(f, max_retries=5)`` guards ``f`` with these parameters."""
    guarded = retry(fail, max_retries=4, jitter=0)

    assert failing(guarded) == 5


def test_explicit_zero_is_not_absent(invoke: Invoke, clock: Clock) -> None:
    """P7, R9, B17: 0 means none: no time-out, no limit of the duration, no retry, no delay, no jitter."""

    @timeout(0)
    @invoke.body
    async def patient() -> str:
        await invoke.sleep(3600)
        return "served"

    @retry(max_retries=0)
    @invoke.body
    async def once() -> None:
        fail()

    @retry(max_retries=2, max_duration=0, delay=200_000, jitter=0)
    @invoke.body
    async def long() -> None:
        fail()

    assert invoke(patient) == "served"
    assert invoke.outcome(once) is OSError
    assert len(executions) == 1
    assert invoke.outcome(long) is OSError
    assert len(executions) == 4


def test_unguarded_and_apply_guard_return_functions() -> None:
    """P1, P3: also a decorator that is no policy keeps its function."""
    assert unguarded(charge) is charge
    assert inspect.signature(apply_guard("nobody")(charge)) == inspect.signature(charge)


@pytest.mark.parametrize("arguments", [(), (1,)])
def test_a_function_that_wraps_a_bound_method_is_guarded_as_a_function(arguments: tuple[int, ...]) -> None:
    """It has the name of a method, and is called without an instance: its first argument is no instance."""
    calls = []

    class Client:
        def charge(self, amount: int = 1) -> None:
            calls.append(amount)
            raise OSError

    method = Client().charge

    @retry(max_retries=2, jitter=0)
    @functools.wraps(method)
    def charge(*args: int) -> None:
        return method(*args)

    with pytest.raises(OSError):
        charge(*arguments)

    assert len(calls) == 3


@pytest.mark.parametrize("written", ["rolling", "ROLLING", "Rolling", RateLimitType.ROLLING])
def test_the_type_of_a_rate_limit_is_named_as_in_the_configuration(written: Any) -> None:
    """By the enumeration, or by its name in letters of any case."""
    limited = rate_limit(5, type=written)(lambda: 1)

    assert "type = ROLLING" in explain(limited)
    assert RateLimit(type=written) == RateLimit(type=RateLimitType.ROLLING)


@pytest.mark.parametrize("wrong", ["sliding", "", None, 1, b"rolling"])
def test_another_type_of_a_rate_limit_is_refused(wrong: Any) -> None:
    """The error lists the existing names."""
    with refused("@RateLimit(type)", "'fixed', 'rolling', 'smooth'"):
        rate_limit(5, type=wrong)(lambda: 1)
