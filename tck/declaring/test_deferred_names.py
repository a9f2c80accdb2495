"""Names in annotations that are known later, or to type checkers only, and names that are imported lazily."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    asynchronous,
    before_retry,
    circuit_breaker,
    coalesce,
    fallback,
    hedge,
    partition_by,
    retry,
)
from kit.program import python

ARE_DEFERRED = sys.version_info >= (3, 14)
ARE_LAZY = sys.version_info >= (3, 15)
needs_lazy_imports = pytest.mark.skipif(not ARE_LAZY, reason="lazy imports are new in Python 3.15")


def module_of(source: str) -> ModuleType:
    """Return a module whose annotations have no value yet, as they are by default from Python 3.14 on."""
    module = ModuleType("shop")
    future = "" if ARE_DEFERRED else "from __future__ import annotations\n"
    exec(compile(future + source, "shop.py", "exec", dont_inherit=True), vars(module))
    return module


SHOP = """
from concurrent.futures import Future
from functools import partialmethod
from faulttolerance import fallback

class Client:
    pass

def charge(order: Order, client: Client[bytes] = None, *, more: dict[str, Order] | None = None) -> Receipt | None:
    raise ConnectionError

def substitute(order: Order, client: Client[bytes] = None, *, more: dict[str, Order] | None = None) -> Receipt | None:
    return "substitute"

def told(order: Order, client: Client[bytes] = None, *, error: Refusal | OSError, more: Missing = None) -> Reply:
    return f"told of {type(error).__name__}"

def later(order: Order, client: Client[bytes] = None) -> Future[Receipt]:
    future = Future()
    future.set_result(order)
    return future

async def soon(order: Order, client: Client[bytes] = None) -> Receipt:
    return order

class Till:
    def pay(self, order: Order, times: int) -> Receipt:
        return order * times

    pay_twice = partialmethod(pay, times=2)

    def substitute(self, when: str, order: Order, error: Refusal | OSError) -> Receipt:
        return f"{order} {when}"

    pay_later = partialmethod(substitute, "later")

    @fallback(fallback_method="pay_later")
    def fail(self, order: Order) -> Receipt:
        raise ConnectionError
"""


async def awaited(function: Callable[..., Any], *args: Any) -> Any:
    return await function(*args)


@pytest.mark.parametrize(
    ("decorator", "returned"),
    [
        (fallback(lambda context: context.parameters), ("one", None, None)),
        (fallback(fallback_method="substitute"), "substitute"),
        (fallback(fallback_method="told"), "told of ConnectionError"),
        (fallback(lambda _: "handled"), "handled"),
    ],
    ids=["parameters", "method", "method for the error", "handler"],
)
def test_a_fallback_fits_annotations_without_a_value(decorator: Any, returned: object) -> None:
    """They are compared as far as they are known, and nothing raises."""
    shop = module_of(SHOP)

    assert decorator(before_retry(lambda _: None)(retry(delay=0, jitter=0)(shop.charge)))("one") == returned


@pytest.mark.parametrize(
    "decorate",
    [
        coalesce,
        hedge(delay=1000),
        lambda function: circuit_breaker(partition_by("order")(function)),
        lambda function: circuit_breaker(partition_by(lambda order, *_: order)(function)),
    ],
    ids=["coalesce", "hedge", "key", "key function"],
)
def test_a_call_later_fits_annotations_without_a_value(decorate: Callable[[Any], Any]) -> None:
    shop = module_of(SHOP)

    assert asynchronous(decorate(shop.later))("one").result() == "one"
    assert asyncio.run(awaited(asynchronous(decorate(shop.soon)), "one")) == "one"


def test_a_method_without_all_arguments_fits_annotations_without_a_value() -> None:
    """In a class that is guarded, and as a fallback for some failures."""
    shop = module_of(SHOP)

    assert retry(shop.Till)().pay_twice("one") == "oneone"
    assert shop.Till().fail("one") == "one later"


def test_a_name_without_a_value_is_shown_as_it_is_written() -> None:
    shop = module_of("def charge() -> dict[str, Order]: ...")

    with pytest.raises(FaultToleranceDefinitionException, match=r"returns dict\[str, Order\]; allowed"):
        asynchronous(shop.charge)


def test_assigned_annotations_are_those_of_the_guard() -> None:
    """As ``typing.get_type_hints`` reads them, of functions that a framework or a compiler has made."""

    def charge(amount):  # type: ignore[no-untyped-def]
        return amount

    charge.__annotations__ = {"amount": int}

    assert retry(charge).__annotations__ == {"amount": int}


# Lazy imports


def lazily(directory: Path, source: str, **modules: str) -> str:
    """Return the output of the program *source*, which imports the *modules*."""
    for name, text in modules.items():
        directory.joinpath(f"{name}.py").write_text(f"{text}\nprint('{name} is imported')\n")
    program = directory / "program.py"
    program.write_text(f"import sys\nsys.path.append({str(directory)!r})\nfrom faulttolerance import *\n{source}")
    done = python(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    assert done.stderr == ""
    return str(done.stdout)


@needs_lazy_imports
@pytest.mark.outside
@pytest.mark.parametrize("future", ["", "from __future__ import annotations"], ids=["deferred", "text"])
def test_no_annotation_causes_an_import(future: str, tmp_path: Path) -> None:
    """A name that is imported lazily is one that only type checkers know, until the application has used it."""
    shop = f"""{future}
from concurrent.futures import Future
from faulttolerance import *
lazy from orders import Order, Refusal as Refused
lazy import orders as o

def wrapped(function):
    return function

try:
    import wrapt
except ImportError:
    pass
else:
    wrapped = wrapt.decorator(lambda function, target, args, kwargs: function(*args, **kwargs))

def substitute(order: Order) -> o.Order:
    return "substitute"

def told(order: Order, error: Refused) -> o.Order:
    return "told"

@fallback(fallback_method="substitute")
def charge(order: Order) -> o.Order:
    raise ConnectionError

@fallback(fallback_method="told")
def order(order: Order) -> o.Order:
    raise Refused if order == "refused" else KeyError

@asynchronous
def later(order: Order) -> Future[o.Order]:
    raise ConnectionError

class Till:
    @fallback(lambda _: "handled")
    @wrapped
    def pay(self, order: Order) -> o.Order:
        raise ConnectionError
"""
    source = """
import shop
print(shop.charge(1), shop.Till().pay(1))
try:
    shop.order(1)
except KeyError:
    print("raised")
print(shop.order("refused"))
"""
    printed = lazily(tmp_path, source, shop=shop, orders="class Order: pass\nclass Refusal(Exception): pass")

    assert printed.splitlines() == [
        "shop is imported",
        "substitute handled",
        "raised",
        "orders is imported",
        "told",
    ]


@needs_lazy_imports
@pytest.mark.outside
def test_a_fallback_that_is_imported_lazily_is_found(tmp_path: Path) -> None:
    """Its module is imported with the first call."""
    source = """
lazy from answers import substitute

@fallback(fallback_method="substitute")
def charge(amount):
    raise ConnectionError

print("declared")
print(charge(1), charge(2))
"""
    printed = lazily(tmp_path, source, answers="def substitute(amount): return f'substitute {amount}'")

    assert printed.splitlines() == ["declared", "answers is imported", "substitute 1 substitute 2"]


@needs_lazy_imports
@pytest.mark.outside
@pytest.mark.parametrize("methods", ["substitute", "sub*"])
def test_a_port_of_a_module_guards_the_functions_that_it_imports_lazily(methods: str, tmp_path: Path) -> None:
    source = f"""
import client
from faulttolerance.policies import Retry
print(Guard(retry=Retry(delay=0, jitter=0)).port(client, methods={methods!r}).substitute([OSError, OSError]))
"""
    answers = """
def substitute(failures):
    if failures:
        raise failures.pop()
    return "substitute"
"""
    printed = lazily(tmp_path, source, client="lazy from answers import substitute", answers=answers)

    assert printed.splitlines() == ["client is imported", "answers is imported", "substitute"]
