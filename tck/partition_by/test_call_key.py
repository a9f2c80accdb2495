"""Keys of calls: made from the arguments as the guarded function binds them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from faulttolerance._signature.call_key import IdentityReference, key_function, mismatches, refuse_unhashable


class Shop:
    def fetch(self, host: str, /, path: str = "/", *more: str, retries: int = 3, **headers: str) -> None: ...


def simple(host: str, path: str = "/") -> None: ...


def test_by_default_the_key_is_the_target_and_all_arguments_with_defaults_applied() -> None:
    """By default the target's identity and all arguments are the key, however they are written."""
    key, shop, other = key_function(None, Shop.fetch, takes_self=True), Shop(), Shop()

    assert key(shop, "a") == key(shop, "a", "/", retries=3)
    assert key(shop, "a", "/", "x", retries=3, b="1", c="2") == key(shop, "a", "/", "x", c="2", b="1")
    assert key(shop, "a", "/", "x") != key(shop, "a", "/")
    assert key(shop, "a") != key(other, "a")


@pytest.mark.parametrize(
    ("key", "args", "kwargs", "expected"),
    [
        ("host", ("a",), {}, "a"),
        ("path", ("a",), {}, "/"),
        ("path", (), {"host": "a", "path": "/x"}, "/x"),
        (("path", "host"), ("a",), {}, ("/", "a")),
        (lambda host, path: (path, host), ("a",), {}, ("/", "a")),
        (lambda *args: args, (), {"path": "p", "host": "h"}, ("h", "p")),
    ],
)
def test_a_key_is_a_callable_or_names(key: Any, args: Any, kwargs: Any, expected: object) -> None:
    """A key is the result of a callable with the function's parameters, one argument, or several."""
    assert key_function(key, simple, takes_self=False)(*args, **kwargs) == expected


@pytest.mark.parametrize(
    "key",
    [
        lambda self, host, path, *more, retries, **headers: (host, path, more, retries, headers["b"]),
        lambda host, path, *more, retries, **headers: (host, path, more, retries, headers["b"]),
    ],
)
def test_the_callable_of_a_method_may_leave_the_instance_out(key: Callable[..., Any]) -> None:
    """A callable for a method has all its parameters, with or without the instance."""
    made = key_function(key, Shop.fetch, takes_self=True)

    assert made(Shop(), "a", "/", "m", b="1") == ("a", "/", ("m",), 3, "1")
    assert list(mismatches(key, Shop.fetch, takes_self=True)) == []


def test_the_instance_in_variadic_arguments_is_known_by_its_identity() -> None:
    """A method that takes its instance by ``*args`` has the instance in the key like any other method."""

    def method(*args: Any, **kwargs: Any) -> None: ...

    shop = Shop()
    assert key_function(None, method, takes_self=True)(shop, [1].__len__()) == ((id(shop), 1), ())
    assert key_function(lambda *args: args, method, takes_self=True)(shop, 1) == (shop, 1)


def test_a_function_without_a_signature_has_a_key_all_the_same() -> None:
    """Without a signature, arguments count as they are written; names are refused."""
    assert key_function(None, dict.update, takes_self=False)(1, a=2) == ((1,), (("a", 2),))
    ((problem, allowed),) = mismatches("host", dict.update, takes_self=False)
    assert "'host'" in problem
    assert "none are known" in allowed


def in_session(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that provides the session, in front of the other arguments or by name."""

    @wraps(function)
    def wrapper(*args: Any, trace: str = "", **kwargs: Any) -> Any:
        return function("session", *args, **kwargs) if function is load else function(*args, session="x", **kwargs)

    return wrapper


def load(session: str, host: str, path: str = "/") -> None: ...


def store(host: str, path: str = "/", *, session: str) -> None: ...


def test_a_decorator_below_provides_arguments_and_takes_others() -> None:
    """All arguments of a call are a key though they are not those that the function's signature requires."""
    of_load, of_store = (key_function(None, in_session(each), takes_self=False) for each in (load, store))
    host = key_function("host", in_session(store), takes_self=False)

    assert of_load("a") == of_load("a")
    assert len({of_load("a"), of_load("a", "/x"), of_load("b"), of_load("a", None), of_load("a", trace="1")}) == 5
    assert of_store("a") == of_store(host="a", path="/") != of_store("b")
    assert host("a", trace="1") == "a"


def test_a_name_does_not_stand_for_an_argument_that_a_decorator_shifts() -> None:
    """A key by name is an error where the place of an argument is not known, and no wrong key."""
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'host'"):
        key_function("host", in_session(load), takes_self=False)("a")


def test_wrong_arguments_are_reported_as_by_the_function_itself() -> None:
    """A caller who forgets an argument reads the name of the guarded function."""
    with pytest.raises(TypeError, match=r"simple\(\) missing 1 required positional argument: 'host'"):
        key_function("host", simple, takes_self=False)()


def test_a_name_that_the_function_does_not_have_is_refused_with_the_nearest_one() -> None:
    """A name that is no parameter is a definition error that names the nearest one."""
    ((problem, allowed),) = mismatches(("host", "pth"), simple, takes_self=False)

    assert problem == "names 'pth', which is no parameter of the function; did you mean 'path'?"
    assert allowed == "names of its parameters: host, path"


async def never_awaited(host: str, path: str) -> str:
    return host


@pytest.mark.parametrize("key", [lambda: 1, lambda host: host, lambda host, path, more: host, never_awaited])
def test_a_callable_with_other_parameters_is_refused(key: Callable[..., Any]) -> None:
    """A callable with other parameters than the function is refused, and so is a coroutine function."""
    assert len(list(mismatches(key, simple, takes_self=False))) == 1


def test_a_key_that_outlives_its_call_does_not_keep_the_target() -> None:
    """A key made with ``IdentityReference`` does not keep the instance, and equals no key of a later instance."""
    made, shop = key_function(None, Shop.fetch, takes_self=True, identity=IdentityReference), Shop()
    key, again = made(shop, "a"), made(shop, "a")
    assert {key} == {again}

    gone = weakref.ref(shop)
    del shop
    gc.collect()

    assert gone() is None
    assert key != again
    assert len({key, key}) == 1


def test_the_error_for_a_key_without_a_hash_names_a_remedy() -> None:
    """It is a ``TypeError`` that names ``key=`` (rule CO5)."""
    with pytest.raises(TypeError, match="key="):
        refuse_unhashable("acme.fetch", ([1],))
    refuse_unhashable("acme.fetch", (1,))
