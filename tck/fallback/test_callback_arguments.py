"""A callback is checked against its function, and called with the arguments of the function's call (rule R6)."""

from __future__ import annotations

import gc
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from functools import cached_property, partial, partialmethod, singledispatchmethod, update_wrapper, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pytest

from faulttolerance import FaultToleranceDefinitionException, before_retry, fallback, retry
from faulttolerance._guard.declare.checks.definition import callback_faults
from faulttolerance._guard.declare.declaration import CLASS, FUNCTION, INSTANCE, Declaration, unbound
from faulttolerance._guard.resolve.callback import ExecutionContext, bind_callback
from faulttolerance._guard.resolve.resolver import MethodResolver
from faulttolerance._policy import BeforeRetry, Fallback
from kit.interpreter import drops_classes

if TYPE_CHECKING:
    from elsewhere import Refusal

T = TypeVar("T")


def declared(cls: type, name: str = "method") -> Declaration:
    """Return the declaration of a method, as it is once its class is created."""
    value = next(vars(base)[name] for base in cls.__mro__ if name in vars(base))
    binding = CLASS if isinstance(value, classmethod) else FUNCTION if isinstance(value, staticmethod) else INSTANCE
    declaration = Declaration(unbound(value), {}, binding)
    declaration.owner = cls
    declaration.mark(unbound(value), MethodResolver(declaration))
    return declaration


def faults_of(cls: type, name: str = "substitute", *, asynchronous: bool | None = None) -> list[str]:
    declaration = declared(cls)
    is_asynchronous = declaration.is_coroutine if asynchronous is None else asynchronous
    final = asynchronous is not None
    policy = Fallback(fallback_method=name)
    found = callback_faults(policy, declaration, "shop.Cart.method", is_asynchronous, final=final)
    return [str(fault) for fault in found]


def substitute_for(
    cls: type, *args: Any, failure: BaseException | None = None, name: str = "substitute", **kwargs: Any
) -> Any:
    """Return the result of the fallback for a call that failed."""
    call = bind_callback(Fallback(fallback_method=name), declared(cls))
    return call(args, kwargs, failure or ValueError("down"), 1)


# Looking the method up


class Printed:
    def price(self, a: int) -> str:
        return f"printed {a}"


class Cart:
    def method(self, a: int) -> str:
        raise ValueError

    def substitute(self, a: int) -> str:
        return f"{type(self).__name__} {a}"

    def __private(self, a: int) -> str:
        return f"private {a}"

    @staticmethod
    def static(a: int) -> str:
        return f"static {a}"

    @classmethod
    def of_class(cls, a: int) -> str:
        return f"{cls.__name__} {a}"

    def numbered(self, number: int, a: int) -> str:
        return f"{number}: {a}"

    first = partialmethod(numbered, 1)
    of_another = Printed().price
    of_parts = partial(Printed().price)
    attribute: ClassVar[int] = 1

    @property
    def getter(self) -> str:
        return ""

    @cached_property
    def cached(self) -> str:
        return ""


class GiftCart(Cart):
    pass


def test_a_method_of_the_class_is_found_and_called() -> None:
    """It gets the arguments of the guarded method's call."""
    assert faults_of(Cart) == []
    assert substitute_for(Cart, Cart(), 1) == "Cart 1"
    assert substitute_for(Cart, Cart(), a=1) == "Cart 1"


def test_a_method_of_a_base_is_found_and_the_override_is_called() -> None:
    """The specification: the same class or a superclass."""
    assert faults_of(GiftCart) == []
    assert substitute_for(Cart, GiftCart(), 1) == "GiftCart 1"


def test_a_private_name_belongs_to_the_class_that_declares_the_guarded_method() -> None:
    """Python mangles `__name` in code only; in the string it is done here."""
    assert faults_of(Cart, "__private") == []
    assert substitute_for(Cart, GiftCart(), 1, name="__private") == "private 1"
    assert "does not define" in faults_of(GiftCart, "__private")[0]


@pytest.mark.filterwarnings("ignore:functools.partial will be a method descriptor")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("static", "static 1"),
        ("of_class", "GiftCart 1"),
        ("first", "1: 1"),
        ("of_another", "printed 1"),
        pytest.param("of_parts", "printed 1", marks=pytest.mark.skipif(sys.version_info >= (3, 14), reason="it binds")),
    ],
)
def test_methods_of_every_kind_stand_in_for_an_instance_method(name: str, expected: str) -> None:
    """All of them can be called on the instance."""
    assert faults_of(Cart, name) == []
    assert substitute_for(Cart, GiftCart(), 1, name=name) == expected


def test_a_name_that_is_not_there_is_refused_with_the_nearest() -> None:
    """The error says what is wrong, where, which value it got, and what is allowed."""
    [fault] = faults_of(Cart, "substitude")

    assert fault.startswith("shop.Cart.method @Fallback(fallback_method) names 'substitude', which ")
    assert "Cart does not define (did you mean 'substitute'?); allowed: the name of a function there" in fault


@pytest.mark.parametrize("name", ["attribute", "getter", "cached"])
def test_an_attribute_that_is_no_method_is_refused(name: str) -> None:
    """A property or a number cannot be called; its own name is no suggestion."""
    assert "does not define;" in faults_of(Cart, name)[0]


def test_the_guarded_method_is_not_its_own_fallback() -> None:
    """It would call itself for ever; with class-level fallbacks that is easily written."""
    [fault] = faults_of(Cart, "method")

    assert "which is the guarded function itself" in fault
    assert "@unguarded" in fault


class Offers:
    @classmethod
    def method(cls, a: int) -> str:
        raise ValueError

    def substitute(self, a: int) -> str:
        return ""

    @classmethod
    def of_class(cls, a: int) -> str:
        return f"{cls.__name__} {a}"

    @staticmethod
    def static(a: int) -> str:
        return f"static {a}"


class StaticOffers(Offers):
    @staticmethod
    def method(a: int) -> str:  # type: ignore[override]
        raise ValueError


@pytest.mark.parametrize("cls", [Offers, StaticOffers])
def test_class_and_static_methods_need_a_fallback_without_an_instance(cls: type) -> None:
    """There is no instance to call it on."""
    assert "needs an instance" in faults_of(cls)[0]
    assert faults_of(cls, "of_class") == []
    assert faults_of(cls, "static") == []


def test_class_and_static_methods_fall_back() -> None:
    """A class method on the class that was called, a static one on the class that declares it."""

    class Cheap(Offers):
        pass

    assert substitute_for(Offers, Cheap, 1, name="of_class") == "Cheap 1"
    assert substitute_for(Offers, Cheap, 1, name="static") == "static 1"
    assert substitute_for(StaticOffers, 1, name="of_class") == "StaticOffers 1"
    assert substitute_for(StaticOffers, 1, name="static") == "static 1"


def test_a_fallback_method_is_checked_once_its_class_is_there() -> None:
    """While the class body runs, the fallback may not be written yet."""
    declaration = Declaration(Cart.method, {}, INSTANCE)

    assert callback_faults(Fallback(fallback_method="nothing"), declaration, "shop.Cart.method", False) == []


def test_a_fallback_declared_by_a_subclass_is_looked_up_there() -> None:
    """A class-level fallback covers inherited methods."""

    class Own(Cart):
        def of_own(self, a: int) -> str:
            return "own"

    policy = Fallback(fallback_method="of_own")

    assert callback_faults(policy, declared(Cart), "Own.method", False, Own) == []
    assert callback_faults(policy, declared(Cart), "Own.method", False) != []
    assert bind_callback(policy, declared(Cart), Own)((Own(), 1), {}, ValueError(), 1) == "own"


# Functions of the module


def charge(order: str, amount: int = 1) -> str:
    raise ValueError


def charge_later(order: str, amount: int) -> str:
    return f"{order} {amount}"


def charge_wrongly(order: str) -> str:
    return order


def function_of(function: Callable[..., Any]) -> Declaration:
    declaration = Declaration(function, {}, FUNCTION)
    declaration.mark(function, MethodResolver(declaration))
    return declaration


def test_a_function_names_a_function_of_its_module() -> None:
    """Rule R6."""
    policy, declaration = Fallback(fallback_method="charge_later"), function_of(charge)

    assert callback_faults(policy, declaration, "shop.charge", False, final=True) == []
    assert bind_callback(policy, declaration)(("a",), {}, ValueError(), 1) == "a 1"


@pytest.mark.parametrize(
    ("name", "words"), [("charge_latr", "did you mean 'charge_later'"), ("charge_wrongly", "parameters (order")]
)
def test_a_function_is_looked_up_when_it_is_first_used(name: str, words: str) -> None:
    """It may be defined below the guarded one."""
    policy = Fallback(fallback_method=name)

    assert callback_faults(policy, function_of(charge), "shop.charge", False) == []
    assert words in str(callback_faults(policy, function_of(charge), "shop.charge", False, final=True)[0])
    with pytest.raises(FaultToleranceDefinitionException, match="fallback_method"):
        bind_callback(policy, function_of(charge))(("a",), {}, ValueError(), 1)


# Kinds and count


def methods(guarded: str, substitute: str) -> type:
    """Return a class with two methods of these parameters; the fallback returns all its arguments, by name."""
    names: dict[str, Any] = {}
    exec(
        f"class Made:\n"
        f"    def method({guarded}): raise ValueError\n"
        f"    def substitute({substitute}): return {{k: v for k, v in locals().items() if k != 'self'}}\n",
        globals(),
        names,
    )
    return names["Made"]  # type: ignore[no-any-return]


FITTING = [
    ("self, a, b=2", "self, x, y", (1,), {}, {"x": 1, "y": 2}),
    ("self, a, b=2", "self, x, y=5", (1,), {}, {"x": 1, "y": 2}),
    ("self, a, b", "self, b, a", (1,), {"b": 2}, {"b": 1, "a": 2}),
    ("self, a, /, b", "self, x, y, /", (1, 2), {}, {"x": 1, "y": 2}),
    ("self, *a", "self, *x", (1, 2), {}, {"x": (1, 2)}),
    ("self, a=1, *b", "self, x, *y", (), {}, {"x": 1, "y": ()}),
    ("self, *, k=3", "self, *, k", (), {}, {"k": 3}),
    ("self, *, k, l=1", "self, *, l, k=9", (), {"k": 2}, {"k": 2, "l": 1}),
    ("self, a, **more", "self, b, **rest", (1,), {"c": 3}, {"b": 1, "rest": {"c": 3}}),
    (
        "self, a, *b, c, **d",
        "self, x, *y, c, **z",
        (1, 2),
        {"c": 3, "e": 4},
        {"x": 1, "y": (2,), "c": 3, "z": {"e": 4}},
    ),
    ("self, a, b=2", "self, *args, **kwargs", (1,), {}, {"args": (1, 2), "kwargs": {}}),
    ("self, a, *, k=2", "self, *args, **kwargs", (1,), {}, {"args": (1,), "kwargs": {"k": 2}}),
    ("*args", "self, *rest", (1, 2), {}, {"rest": (1, 2)}),
]


@pytest.mark.parametrize(("guarded", "substitute", "args", "kwargs", "expected"), FITTING)
def test_arguments_are_bound_to_the_guarded_signature_and_passed_on(
    guarded: str, substitute: str, args: tuple[Any, ...], kwargs: dict[str, Any], expected: dict[str, Any]
) -> None:
    """They are passed by position, keyword-only ones by name, with the guarded method's defaults."""
    cls = methods(guarded, substitute)

    assert faults_of(cls) == []
    assert substitute_for(cls, cls(), *args, **kwargs) == expected


ERROR = ValueError("down")
TAKING_THE_FAILURE = [
    ("self, a", "self, a, error", {"a": 1, "error": ERROR}),
    ("self, a", "self, a, error: ValueError", {"a": 1, "error": ERROR}),
    ("self, a", "self, a, error: ValueError | KeyError", {"a": 1, "error": ERROR}),
    ("self, a", "self, a, error: Exception | None = None", {"a": 1, "error": ERROR}),
    ("self, a", "self, a, error=None", {"a": 1, "error": ERROR}),
    ("self, a", "self, a, error: Any", {"a": 1, "error": ERROR}),
    ("self, a", "self, a, /, error", {"a": 1, "error": ERROR}),
    ("self, *a", "self, *a, error", {"a": (1,), "error": ERROR}),
    ("self, a, *, k=2", "self, a, error, *, k", {"a": 1, "error": ERROR, "k": 2}),
    ("self, a, *, k=2", "self, a, *, k, error", {"a": 1, "error": ERROR, "k": 2}),
    ("self, a, **more", "self, a, error, **more", {"a": 1, "error": ERROR, "more": {}}),
]


@pytest.mark.parametrize(("guarded", "substitute", "expected"), TAKING_THE_FAILURE)
def test_a_further_parameter_at_the_end_takes_the_failure(
    guarded: str, substitute: str, expected: dict[str, Any]
) -> None:
    """As in SmallRye; the arguments are bound as without it."""
    cls = methods(guarded, substitute)

    assert faults_of(cls) == []
    assert substitute_for(cls, cls(), 1, failure=ERROR) == expected


MISFITS = [
    ("self, a, b", "self, a"),
    ("self, a", "self"),
    ("self", "self, a, b"),
    ("self, a", "self, a, b, c"),
    ("self, a", "self, a, limit=3"),
    ("self, a", "self, a, limit: int"),
    ("self, a", "self, a, error: int | Exception"),
    ("self, a", "self, *a"),
    ("self, *a", "self, a"),
    ("self, *a", "self, error, *a"),
    ("self, a", "self, *, a"),
    ("self, *, a", "self, a"),
    ("self, *, a", "self, *, b"),
    ("self, **a", "self, a"),
    ("self, a", "self, a, **more"),
    ("self, a", "self, a, error, *, other"),
    ("self, a", ""),
]


@pytest.mark.parametrize(("guarded", "substitute"), MISFITS)
def test_parameters_of_another_kind_or_count_are_refused(guarded: str, substitute: str) -> None:
    """The error comes when the class is defined, not when the first failure comes."""
    [fault] = faults_of(methods(guarded, substitute))

    assert "names 'substitute', whose parameters (" in fault
    assert "are not those of the guarded function; allowed: (" in fault
    assert "and optionally a last parameter for the exception" in fault


def test_an_override_may_take_the_failure_too() -> None:
    """The call goes to the instance's method and follows its signature."""

    class Telling(Cart):
        def substitute(self, a: int, error: Exception | None = None) -> str:
            return f"{a} {error}"

    call = bind_callback(Fallback(fallback_method="substitute"), declared(Cart))

    assert call((Cart(), 1), {}, ERROR, 1) == "Cart 1"
    assert call((Telling(), 1), {}, ERROR, 1) == "1 down"
    assert call((Cart(), 1), {}, ERROR, 1) == "Cart 1"


class Logged:
    """A decorator that is a descriptor, and binds by a function that looks like the function which it wraps."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __get__(self, target: Any, cls: type) -> Callable[..., Any]:
        @wraps(self.function)
        def bound(*args: Any) -> Any:
            return self.function(target, *args)

        return bound


class LoggedBound(Logged):
    """The same, and the function looks like the bound method."""

    def __get__(self, target: Any, cls: type) -> Callable[..., Any]:
        bound = self.function.__get__(target, cls)
        return wraps(bound)(lambda *args: bound(*args))


class Cached(Logged):
    """A decorator that binds by an object, as that of async_lru does."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __get__(self, target: Any, cls: type) -> Any:
        return self if target is None else update_wrapper(Cached(partial(self.function, target)), self, updated=())


@pytest.mark.parametrize("decorator", [Logged, LoggedBound, Cached, singledispatchmethod])
def test_a_method_that_a_descriptor_binds_gets_the_arguments_that_it_shows(decorator: Callable[..., Any]) -> None:
    """The parameter that its signature shows for its object is none for the failure."""

    class Plain(Cart):
        @decorator
        def substitute(self, a: int) -> str:
            return f"{type(self).__name__} {a}"

    class Telling(Cart):
        @decorator
        def substitute(self, a: int, error: Exception) -> str:
            return f"{a} {error}"

    class WithAttribute(Plain):
        def __init__(self) -> None:
            vars(self)["substitute"] = wraps(Cart.static)(lambda a: Cart.static(a))

    call = bind_callback(Fallback(fallback_method="substitute"), declared(Plain))

    assert faults_of(Plain) == faults_of(Telling) == []
    assert call((Plain(), 1), {}, ERROR, 1) == "Plain 1"
    assert call((Telling(), 1), {}, ERROR, 1) == "1 down"
    assert call((WithAttribute(), 1), {}, ERROR, 1) == "static 1"


def with_a_rate(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that provides an argument."""
    return wraps(function)(lambda *args, **kwargs: function(*args, rate=2, **kwargs))


def test_a_method_answers_whose_decorator_provides_an_argument_as_that_of_the_guarded_method_does() -> None:
    """Arguments of a call that a decorator completes are passed on as they are."""

    class Rated:
        @fallback(fallback_method="substitute")
        @with_a_rate
        def price(self, a: int, b: int = 3, *, rate: int) -> int:
            raise ERROR

        @with_a_rate
        def substitute(self, a: int, b: int = 3, *, rate: int) -> int:
            return (a + b) * rate

    assert (Rated().price(1), Rated().price(a=1, b=2)) == (8, 6)  # type: ignore[call-arg]


def test_a_handler_may_have_a_decorator_that_provides_an_argument() -> None:
    """A call of the handler needs the context alone."""

    @with_a_rate
    def handler(context: ExecutionContext, *, rate: int) -> int:
        return rate

    @retry(max_retries=1, jitter=0)
    @before_retry(handler)
    @fallback(handler)
    def price() -> int:
        raise ERROR

    assert price() == 2


def test_an_override_that_does_not_fit_is_refused_when_it_is_needed() -> None:
    """A subclass may be defined long after the guard."""

    class Wrong(Cart):
        def substitute(self) -> str:  # type: ignore[override]
            return ""

    with pytest.raises(FaultToleranceDefinitionException, match=r"leads to .*Wrong.substitute, whose parameters"):
        substitute_for(Cart, Wrong(), 1)


def test_a_call_with_wrong_arguments_fails_as_it_did() -> None:
    """Arguments that the guarded method did not take cannot be handed on."""
    failure = TypeError("missing a required argument")

    with pytest.raises(TypeError) as raised:
        substitute_for(Cart, Cart(), failure=failure)

    assert raised.value is failure


# Generic bases


class Abstract(ABC, Generic[T]):
    def method(self, a: T) -> str:
        raise ValueError

    @abstractmethod
    def substitute(self, a: T) -> str: ...


class Concrete(Abstract[int]):
    def substitute(self, a: int) -> str:
        return f"concrete {a}"


def test_an_abstract_method_counts_and_the_implementation_is_called() -> None:
    """The base class promises that there will be one."""
    assert faults_of(Abstract) == []
    assert substitute_for(Abstract, Concrete(), 1) == "concrete 1"


# Exceptions that the fallback does not take


class Choosy:
    def method(self) -> str:
        raise ValueError

    def substitute(self, error: OSError | KeyError) -> str:
        return type(error).__name__

    def of_type_checkers(self, error: Refusal) -> str:
        return type(error).__name__


@pytest.mark.parametrize("failure", [ConnectionError(), KeyError()])
def test_an_annotated_exception_parameter_takes_failures_of_its_class(failure: Exception) -> None:
    """Also failures of its subclasses."""
    assert substitute_for(Choosy, Choosy(), failure=failure) == type(failure).__name__


def test_failures_of_other_classes_are_raised_on() -> None:
    """They come out as they are."""
    failure = ValueError()

    with pytest.raises(ValueError) as raised:
        substitute_for(Choosy, Choosy(), failure=failure)

    assert raised.value is failure
    assert failure.__context__ is None


def test_an_exception_that_is_imported_for_type_checkers_is_known_by_name() -> None:
    """`Refusal` does not exist at run time."""
    refusal = type("Refusal", (Exception,), {})
    assert faults_of(Choosy, "of_type_checkers") == []
    assert substitute_for(Choosy, Choosy(), failure=refusal(), name="of_type_checkers") == "Refusal"
    with pytest.raises(ValueError):
        substitute_for(Choosy, Choosy(), failure=ValueError(), name="of_type_checkers")


def test_a_handler_is_made_for_each_call_and_told_about_it() -> None:
    """The context holds the call as it was made."""
    seen: list[ExecutionContext] = []
    made: list[object] = []

    class Handler:
        def __init__(self) -> None:
            made.append(self)

        def handle(self, context: ExecutionContext) -> str:
            seen.append(context)
            return "handled"

    declaration, cart = declared(Cart), Cart()
    call = bind_callback(Fallback(Handler), declaration)

    results = [call((cart, 1), {}, ERROR, 3), call((cart,), {"a": 2}, ERROR, 1)]

    assert results == ["handled", "handled"]
    assert len(made) == 2
    first, second = seen
    assert (first.method, first.target, first.args, first.kwargs) == (Cart.method, cart, (1,), {})
    assert (first.failure, first.attempt, first.parameters) == (ERROR, 3, (1,))
    assert (second.args, second.kwargs, second.parameters) == ((), {"a": 2}, (2,))


# The context


def test_parameters_are_the_values_in_the_order_of_the_signature() -> None:
    """Defaults are filled in; the target is no parameter."""

    def method(self: Any, a: int, b: int = 2, *c: int, k: int = 4, **d: int) -> None: ...

    target = object()

    assert ExecutionContext(method, target, (1,), {}).parameters == (1, 2, (), 4, {})
    assert ExecutionContext(method, target, (1, 5, 6, 7), {"k": 8, "e": 9}).parameters == (1, 5, (6, 7), 8, {"e": 9})
    assert ExecutionContext(charge, None, (), {"amount": 3, "order": "a"}).parameters == ("a", 3)
    assert ExecutionContext(lambda *every: None, target, (1, 2)).parameters == ((1, 2),)
    with pytest.raises(TypeError):
        _ = ExecutionContext(charge).parameters


def test_the_text_of_a_context_describes_the_call() -> None:
    """It serves a line of a log, or a breakpoint."""
    context = ExecutionContext(charge, None, ("a",), {}, ERROR, 2)

    assert repr(context) == "<ExecutionContext of charge: attempt 2, failure ValueError('down')>"


# Failures of the fallback


def fall_back(failure: BaseException, error: BaseException, *, asynchronous: bool = False) -> None:
    """Call a function that raises *failure*, with a fallback that raises *error*."""

    def handler(context: ExecutionContext) -> None:
        raise error

    async def asynchronous_handler(context: ExecutionContext) -> None:
        raise error

    def service() -> None:
        raise failure

    async def asynchronous_service() -> None:
        raise failure

    if asynchronous:
        run(fallback(asynchronous_handler)(asynchronous_service)())
    else:
        fallback(handler)(service)()


def run(coroutine: Any) -> Any:
    """Run a coroutine that never waits."""
    steps = coroutine.__await__()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_error_of_the_fallback_tells_of_the_failure(asynchronous: bool) -> None:
    """The traceback shows both."""
    failure, error = ValueError("down"), KeyError("no copy")

    with pytest.raises(KeyError) as raised:
        fall_back(failure, error, asynchronous=asynchronous)

    assert raised.value is error
    assert error.__context__ is failure


def test_a_context_that_is_there_already_stays() -> None:
    """It is a nearer cause than the failure."""
    nearer, error = OSError(), KeyError()
    error.__context__ = nearer

    with pytest.raises(KeyError):
        fall_back(ValueError(), error)

    assert error.__context__ is nearer


def test_chains_of_errors_have_no_cycle() -> None:
    """A fallback may raise the failure itself, or its cause."""
    cause, failure = OSError(), ValueError()
    failure.__cause__ = cause

    with pytest.raises(ValueError):
        fall_back(failure, failure)
    with pytest.raises(OSError):
        fall_back(failure, cause)

    assert failure.__context__ is None
    assert cause.__context__ is None


def test_a_coroutine_of_a_fallback_can_be_cancelled_and_closed() -> None:
    """Code that awaits it can treat it as any coroutine."""
    seen = []

    class Pause:
        def __await__(self) -> Iterator[str]:
            yield "waiting"

    async def handler(context: ExecutionContext) -> str:
        try:
            await Pause()
        except GeneratorExit:
            seen.append("closed")
            raise
        except KeyError:
            return "caught"
        return "done"

    call = bind_callback(Fallback(handler), function_of(charge))
    driven, thrown, closed = (call(("a",), {}, ERROR, 1) for _ in range(3))

    assert isinstance(driven, Coroutine)
    assert (driven.send(None), run(driven)) == ("waiting", "done")
    assert thrown.send(None) == "waiting"
    with pytest.raises(StopIteration, match="caught"):
        thrown.throw(KeyError())
    assert closed.send(None) == "waiting"
    closed.close()
    assert seen == ["closed"]


def test_a_failure_is_not_kept_by_the_guard() -> None:
    """Neither by the fallback that took it, nor in a cycle with the frame that raised it again."""

    class Failure(Exception):
        pass

    def fail(call: Any, *args: Any) -> weakref.ref[Failure]:
        failure = Failure()
        reference = weakref.ref(failure)
        try:
            call(args, {}, failure, 1)
        except Failure:
            pass
        del failure
        return reference

    taken = bind_callback(Fallback(lambda context: ""), function_of(charge))
    raised_on = bind_callback(Fallback(fallback_method="substitute"), declared(Choosy))
    gc.collect()
    gc.disable()
    try:
        assert fail(taken, "a")() is None
        assert fail(raised_on, Choosy())() is None
    finally:
        gc.enable()


@drops_classes
def test_a_class_that_is_dropped_is_not_kept() -> None:
    """Rule L4: neither as the home of a fallback, nor through an override that refers to it by `super()`."""

    class Own(Cart):
        def substitute(self, a: int) -> str:
            return f"own {super().substitute(a)}"

    home = bind_callback(Fallback(fallback_method="substitute"), declared(Cart), Own)
    override = bind_callback(Fallback(fallback_method="substitute"), declared(Cart))
    hook = bind_callback(BeforeRetry(method_name="substitute"), declared(Cart), Own)

    assert home((Own(), 1), {}, ERROR, 1) == override((Own(), 1), {}, ERROR, 1) == "own Own 1"
    reference = weakref.ref(Own)
    del Own
    gc.collect()
    assert reference() is None
    assert hook is not None


# Before a retry


class Session:
    def __init__(self) -> None:
        self.log: list[str] = []

    def method(self, a: int) -> str:
        raise ValueError

    def reconnect(self) -> None:
        self.log.append("reconnected")

    def __login(self) -> None:
        self.log.append("logged in")

    async def login_later(self) -> None:
        self.log.append("logged in later")

    def with_parameter(self, a: int) -> None: ...

    def interrupted(self) -> None:
        raise KeyboardInterrupt


def before(name: str) -> Any:
    return bind_callback(BeforeRetry(method_name=name), declared(Session))


def faults_before(asynchronous: bool = False, **values: Any) -> list[str]:
    found = callback_faults(BeforeRetry(**values), declared(Session), "shop.Session.method", asynchronous)
    return [str(fault) for fault in found]


def test_a_method_or_a_callable_runs_before_a_retry() -> None:
    """A method runs on the same object; a callable gets a context of the call."""
    session = Session()
    seen: list[ExecutionContext] = []

    before("reconnect")((session, 1), {}, ERROR, 2)
    before("__login")((session, 1), {}, ERROR, 2)
    bind_callback(BeforeRetry(seen.append), declared(Session))((session, 1), {}, ERROR, 2)
    run(before("login_later")((session, 1), {}, ERROR, 2))

    assert session.log == ["reconnected", "logged in", "logged in later"]
    assert [(one.target, one.attempt, one.failure) for one in seen] == [(session, 2, ERROR)]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"method_name": "recconnect"}, "@BeforeRetry(method_name) names 'recconnect', which "),
        ({"method_name": "recconnect"}, "did you mean 'reconnect'?"),
        ({"method_name": "with_parameter"}, "whose parameters are (self, a: "),
        ({"method_name": "login_later"}, "which is a coroutine function"),
    ],
)
def test_a_callback_that_cannot_run_before_a_retry_is_refused(values: dict[str, Any], words: str) -> None:
    """The error comes when the class is defined."""
    [fault] = faults_before(**values)

    assert words in fault


def test_a_callback_that_can_run_before_a_retry_is_not_refused() -> None:
    """A coroutine function can where the guarded function is asynchronous."""
    assert faults_before(method_name="reconnect") == []
    assert faults_before(method_name="__login") == []
    assert faults_before(value=print) == []
    assert faults_before(asynchronous=True, method_name="login_later") == []


def test_control_flow_before_a_retry_passes() -> None:
    """An interruption is no failure of the hook."""
    with pytest.raises(KeyboardInterrupt):
        before("interrupted")((Session(), 1), {}, ERROR, 2)
