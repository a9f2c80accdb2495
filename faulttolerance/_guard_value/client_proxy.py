"""Clients whose methods run under a ``Guard`` (rule Y3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy, deepcopy
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from .._shown import did_you_mean, install, one_or_several, shown
from .._signature.kind import is_coroutine_function, is_generator_function
from ..exceptions import Fault, raise_faults

try:
    import wrapt
except ImportError as error:
    raise ImportError(f"a port needs wrapt: {install('patch')}", name=error.name, path=error.path) from error

if TYPE_CHECKING:
    from .guard import Guard


class ClientProxy(wrapt.ObjectProxy):  # type: ignore[type-arg]  # older ones take no argument
    """A proxy of *client* that runs the methods that match *patterns* under *guard*."""

    def __init__(self, client: Any, guard: Guard, patterns: tuple[str, ...] | None) -> None:
        super().__init__(client)
        self._self_guard = guard
        self._self_patterns = patterns

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        patterns = self._self_patterns
        if patterns is not None and not any(fnmatchcase(name, pattern) for pattern in patterns):
            return value
        return MethodProxy(value, self._self_guard) if _is_guarded(name, value) else value

    def __enter__(self) -> Any:
        return self._self_or(self.__wrapped__.__enter__())

    async def __aenter__(self) -> Any:
        return self._self_or(await self.__wrapped__.__aenter__())

    async def __aexit__(self, *details: object) -> Any:
        return await self.__wrapped__.__aexit__(*details)

    def _self_or(self, entered: Any) -> Any:
        return self if entered is self.__wrapped__ else entered

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __copy__(self) -> ClientProxy:
        return type(self)(copy(self.__wrapped__), self._self_guard, self._self_patterns)

    def __deepcopy__(self, memo: dict[int, Any]) -> ClientProxy:
        return type(self)(deepcopy(self.__wrapped__, memo), self._self_guard, self._self_patterns)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__wrapped__.__reduce_ex__(protocol)


class CallableClientProxy(ClientProxy):
    """A proxy of a callable client that also runs its own calls under *guard*, unless *patterns* name methods."""

    def __call__(*args: Any, **kwargs: Any) -> Any:  # any keyword is the client's
        self, *arguments = args
        client = self.__wrapped__
        is_plain = self._self_patterns is not None or isinstance(client, type) or is_generator_function(client)
        return (client if is_plain else MethodProxy(client, self._self_guard))(*arguments, **kwargs)


class MethodProxy(wrapt.CallableObjectProxy):  # type: ignore[type-arg]
    """A proxy of a method of a client that runs it under *guard*."""

    def __init__(self, method: Callable[..., Any], guard: Guard) -> None:
        super().__init__(method)
        self._self_guard = guard
        self._self_call = guard.call_async if is_coroutine_function(method) else guard.call

    def __call__(*args: Any, **kwargs: Any) -> Any:  # any keyword is the method's
        self, *arguments = args
        return self._self_call(self.__wrapped__, *arguments, **kwargs)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


def proxy_of(client: Any, guard: Guard, methods: str | Iterable[str] | None) -> Any:
    """Return the port of *client*; see ``Guard.port``."""
    patterns = None if methods is None else one_or_several(methods)
    if patterns is not None:
        raise_faults(_faults(client, guard, patterns))
    return (CallableClientProxy if callable(client) else ClientProxy)(client, guard, patterns)


def _faults(client: Any, guard: Guard, patterns: tuple[Any, ...]) -> Iterator[Fault]:
    where = f"Guard {guard.name}.port(methods)"
    if not patterns:
        yield Fault(where, "is empty", patterns, "names of methods or patterns, such as 'get_*'; None for all")
    for pattern in patterns:
        if not isinstance(pattern, str):
            yield Fault(where, f"is {shown(pattern)}", pattern, "names of methods or patterns, such as 'get_*'")
            continue
        names = [name for name in dir(client) if not name.startswith("_")]
        found = [name for name in (*names, pattern) if fnmatchcase(name, pattern)]  # others are created on access
        # The class is asked first, which runs no property: that might connect.
        values = ((name, getattr(client.__class__, name, None) or getattr(client, name, None)) for name in found)
        if not any(_is_guarded(*each) for each in values):
            problem = f"is {shown(pattern)}, which matches nothing{did_you_mean(pattern, {*names} - {pattern})}"
            allowed = f"names or patterns of public methods of {type(client).__qualname__} that return once"
            yield Fault(where, problem, pattern, allowed)


def _is_guarded(name: str, value: object) -> bool:
    is_public = callable(value) and not name.startswith("_")
    return is_public and not isinstance(value, type) and not is_generator_function(value)
