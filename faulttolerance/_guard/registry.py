"""The guards that live, and what each of them remembers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias
from weakref import ref

from .._metrics.ledger import ledger
from .._runtime.fork import Section, at_fork
from .._runtime.native import get_ident
from .._telemetry.connect import telemetry

if TYPE_CHECKING:
    from .._call.state import State
    from .guard_resolver import GuardResolver
    from .method_resolver import MethodResolver

    AnyResolver: TypeAlias = MethodResolver | GuardResolver


class _Resolving(Section):
    def _left(self) -> None:
        telemetry.connect_if_due()


resolving = _Resolving()
"""Where call paths are found or replaced: at first calls, and when the configuration changes. Keeps out forks only.

When a thread has left, exporters are connected if that is due."""

_resolvers: dict[ref[AnyResolver], None] = {}
_forget: Callable[[ref[AnyResolver]], None] = _resolvers.pop  # one for all: each look at it makes another


def add(resolver: AnyResolver) -> None:
    """Remember a guard as long as it lives."""
    _resolvers[ref(resolver, _forget)] = None


def resolvers() -> Iterator[AnyResolver]:
    """Give all guards that live, in the order in which they were made."""
    for reference in list(_resolvers):
        resolver = reference()
        if resolver is not None:
            yield resolver


def every_state() -> Iterator[State]:
    """Give what every guard that was called remembers."""
    for resolver in resolvers():
        yield from resolver.states()


def follow_all() -> None:
    """Let every breaker, bulkhead and rate window take the values that are in force."""
    for state in every_state():
        state.follow()


def nothing_named(kind: str, name: str, names: Iterable[str]) -> KeyError:
    """Say that nothing of *kind* has the *name*, and which of *names* may be meant."""
    from difflib import get_close_matches

    near = get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return KeyError(f"no {kind} is named {name!r}{hint}")


def _in_child() -> None:
    for state in every_state():
        state.keep_only(get_ident())
    ledger.begin_anew()


at_fork(child=_in_child)
