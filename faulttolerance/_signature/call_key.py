"""The key that distinguishes calls of one function, for coalescing, partitions and remembered results.

The key function is compiled once per guarded function, with the parameters of that function. So the interpreter itself
binds the arguments and fills in defaults, which is the fastest way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from inspect import Parameter, Signature
from types import MethodType
from typing import Any, Self
from weakref import WeakKeyDictionary, ref

from .._parameters import signature_of
from .._shown import did_you_mean, shown
from ..typing import Key
from .kind import is_coroutine_function

_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NOT_PASSED = object()
_UNKNOWN = Signature([Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)])
"""The signature of a function that has none."""


class UnsuitableKeyError(TypeError):
    """The arguments of a call do not identify it: no failure of its function, which never runs."""


class IdentityReference(ref[Any]):
    """A weak reference to an object, which equals only other references to the same object."""

    __slots__ = ("_ident",)
    _ident: int

    def __new__(cls, target: object) -> Self:
        try:
            self = super().__new__(cls, target)
        except TypeError as error:
            problem = f"{error}; identify calls by key=, or add the slot `__weakref__` to the class"
            raise UnsuitableKeyError(problem) from None
        self._ident = id(target)
        return self

    def __hash__(self) -> int:
        return hash(self._ident)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, IdentityReference) and (target := self()) is not None and target is other()
        )


def key_function(
    key: Key, function: Callable[..., Any], *, takes_self: bool, identity: Callable[[Any], Hashable] = id
) -> Callable[..., Hashable]:
    """Return the function that returns the key of a call of *function*, called with the arguments of that call.

    Args:
        key: The declaration of the key; ``mismatches`` has found no fault in it.
        function: The guarded function.
        takes_self: Whether its first argument is its instance or class, which takes part by its *identity*.
        identity: Returns the identity of the instance or class: ``id`` is enough while the call lasts,
            ``IdentityReference`` also works if the key outlives the object.
    """
    signature = signature_of(function) or _UNKNOWN
    if signature is _UNKNOWN and callable(key):
        return key
    parameters = list(signature.parameters.values())
    longest = max((len(parameter.name) for parameter in parameters), default=0)
    if hasattr(function, "__wrapped__"):
        parameters = _of_wrapper(parameters, "_" * (longest + 4), are_all_in_key=key is None)
    call, identify, order = ("_" * (longest + more) for more in (1, 2, 3))  # differs from every parameter
    parts = {parameter.name: _part(parameter, order) for parameter in parameters}
    if takes_self and parameters:
        name, is_variadic = parameters[0].name, parameters[0].kind is Parameter.VAR_POSITIONAL
        parts[name] = f"(*map({identify}, {name}[:1]), *{name}[1:])" if is_variadic else f"{identify}({name})"
    if callable(key):
        leaves_out_first = takes_self and not _takes_self(key, signature)
        body = f"{call}({', '.join(_passed(parameters, leaves_out_first=leaves_out_first))})"
    elif isinstance(key, str):
        body = parts[key]
    else:
        body = f"({''.join(f'{parts[name]}, ' for name in (parts if key is None else key))})"
    names = {call: key, identify: identity, order: sorted}
    made: Any = eval(f"lambda {_declared(parameters)}: {body}", names)  # contains only names of parameters
    made.__defaults__ = tuple(p.default for p in parameters if p.kind in _POSITIONAL and p.default is not p.empty)
    made.__kwdefaults__ = {
        p.name: p.default for p in parameters if p.kind is Parameter.KEYWORD_ONLY and p.default is not p.empty
    }
    # This function is the first to raise an error about wrong arguments.
    made.__name__ = getattr(function, "__name__", made.__name__)
    made.__qualname__ = getattr(function, "__qualname__", made.__qualname__)
    return made  # type: ignore[no-any-return]


def key_function_for_any(key: Key, name: str, identity: Callable[[Any], Hashable] = id) -> Callable[..., Hashable]:
    """Return the function that returns the key of a call of any function, which is its first argument.

    By default the function is part of the key; for a bound method, the function of its class is.

    Raises:
        TypeError: At a call, if *key* does not fit the function; *name* is the guard, for the message.
    """
    known: WeakKeyDictionary[Callable[..., Any], Callable[..., Hashable]] = WeakKeyDictionary()

    def key_of(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Hashable:
        behind: Any = function.__func__ if isinstance(function, MethodType) else function
        try:
            made = known.get(behind)
        except TypeError:
            made = None
        if made is None:
            for problem, allowed in mismatches(key, behind, takes_self=behind is not function):
                raise TypeError(f"{name}: key= {problem}; allowed: {allowed}")
            made = key_function(key, behind, takes_self=behind is not function, identity=identity)
            with suppress(TypeError):
                known[behind] = made
        value = made(function.__self__, *args, **kwargs) if isinstance(function, MethodType) else made(*args, **kwargs)
        return (identity(behind), value) if key is None else value

    return key_of


def mismatches(key: Key, function: Callable[..., Any], *, takes_self: bool) -> Iterator[tuple[str, str]]:
    """Yield the reasons why *key* does not fit *function*, each with the allowed values."""
    signature = signature_of(function)
    if callable(key):
        if is_coroutine_function(key):
            name = getattr(key, "__qualname__", key)
            yield f"is {name}, a coroutine function, which nothing awaits", "a synchronous function"
        elif signature is not None and not any(
            _accepts(key, signature, leaves_out_first=leaves_out_first)
            for leaves_out_first in ((False, True) if takes_self else (False,))
        ):
            name, own = getattr(key, "__qualname__", None) or shown(key), signature_of(key)
            allowed = f"a callable with the parameters of the function: {signature}"
            yield f"is {name}, whose parameters are {own}", allowed
    elif key is not None:
        known = list(signature.parameters) if signature is not None else []
        for name in (key,) if isinstance(key, str) else key:
            if name not in known:
                allowed = f"names of its parameters: {', '.join(known) or 'none are known'}"
                problem = f"names {shown(name)}, which is no parameter of the function"
                yield problem + did_you_mean(name, known), allowed


def refuse_unhashable(name: str, key: object) -> None:
    """Raise ``TypeError`` if *key*, of a call of the guarded function *name*, has no hash."""
    try:
        hash(key)
    except TypeError as error:
        raise UnsuitableKeyError(
            f"{name}: the key {shown(key)} of this call is not hashable; identify calls by key=: {error}"
        ) from None


def _of_wrapper(parameters: list[Parameter], others: str, *, are_all_in_key: bool) -> list[Parameter]:
    """Return *parameters* of a function for its wrapper, which may provide some of them, and take *others*.

    A name says nothing about an argument by position: the wrapper may provide one in front of it.
    """
    optional = (Parameter.KEYWORD_ONLY, *(_POSITIONAL if are_all_in_key else ()))
    taken = [p.replace(default=_NOT_PASSED) if p.kind in optional and p.default is p.empty else p for p in parameters]
    is_open = any(p.kind is Parameter.VAR_KEYWORD for p in parameters)
    return taken if is_open else [*taken, Parameter(others, Parameter.VAR_KEYWORD)]


def _part(parameter: Parameter, order: str) -> str:
    name = parameter.name
    # Sorted by its names, and not hashed here: the caller reports what has no hash.
    return f"(*{order}({name}.items()),)" if parameter.kind is Parameter.VAR_KEYWORD else name


def _declared(parameters: list[Parameter]) -> str:
    """Return *parameters* as text for a ``lambda``; their defaults are set afterwards."""
    bare = [
        parameter.replace(
            annotation=Parameter.empty, default=parameter.default if parameter.default is Parameter.empty else None
        )
        for parameter in parameters
    ]
    return str(Signature(bare))[1:-1]


def _passed(parameters: list[Parameter], *, leaves_out_first: bool) -> Iterator[str]:
    """Yield the text of each passed argument, by position if possible."""
    for at, parameter in enumerate(parameters):
        name = parameter.name
        if parameter.kind is Parameter.VAR_POSITIONAL:
            yield f"*{name}[1:]" if leaves_out_first and at == 0 else f"*{name}"
        elif leaves_out_first and at == 0:
            pass
        elif parameter.kind is Parameter.VAR_KEYWORD:
            yield f"**{name}"
        else:
            yield f"{name}={name}" if parameter.kind is Parameter.KEYWORD_ONLY else name


def _takes_self(key: Callable[..., Any], signature: Signature) -> bool:
    """Return whether *key* takes the instance or class; if both are possible, the name of its parameter decides."""
    if not _accepts(key, signature, leaves_out_first=True):
        return True
    own, others = signature_of(key), signature.parameters
    first = next(iter(own.parameters.values()), None) if own is not None else None
    names = ("self", "cls", next(iter(others), ""))
    is_named_so = first is not None and (first.kind is Parameter.VAR_POSITIONAL or first.name in names)
    return is_named_so and _accepts(key, signature, leaves_out_first=False)


def _accepts(key: Callable[..., Any], signature: Signature, *, leaves_out_first: bool) -> bool:
    """Return whether *key* accepts the passed arguments, as far as its signature is known."""
    own = signature_of(key)
    if own is None:
        return not leaves_out_first
    parameters = list(signature.parameters.values())
    if all(parameter.kind in _VARIADIC for parameter in parameters[:2]) and len(parameters) == 2:
        return True  # the function passes on all its arguments, and nothing is known about them
    if leaves_out_first and parameters and parameters[0].kind in _POSITIONAL:
        del parameters[0]
    args = [None for parameter in parameters if parameter.kind in _POSITIONAL]
    kwargs = {parameter.name: None for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY}
    try:
        own.bind(*args, **kwargs)
    except TypeError:
        return False
    takes = {parameter.kind for parameter in own.parameters.values()}
    return all(one.kind in takes for one in parameters if one.kind in _VARIADIC) or inspect.isbuiltin(key)
