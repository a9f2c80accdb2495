"""The causes of a failure: a member of an exception set that also matches causes, contexts and groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, final

from ._record import Record
from ._shown import class_name_for_code, shown
from .exceptions import definition_error

Links: TypeAlias = Sequence[tuple[BaseException, BaseException | None]]
"""The exceptions of a chain, each with its context."""


@final
class CausedBy(Record):
    """A member of an exception set, created by ``caused_by``; ``isinstance`` treats it like a class.

    Args:
        classes: The classes that the failure, or an exception behind it, must match.
    """

    classes: tuple[type[BaseException], ...]

    def __instancecheck__(self, error: object) -> bool:
        if isinstance(error, Exception):
            return any(isinstance(one, self.classes) for one in _behind(error))
        # Control flow counts by its own class, not by its cause or its group (rule R0); ``BaseException`` does not
        # match it.
        return any(one is not BaseException and isinstance(error, one) for one in self.classes)

    def __subclasscheck__(self, kind: type) -> bool:
        return issubclass(kind, self.classes)

    def __repr__(self) -> str:
        return f"caused_by({', '.join(map(class_name_for_code, self.classes))})"


def caused_by(*classes: type[BaseException]) -> CausedBy:
    """Return a member of exception sets that matches failures of *classes*, and failures caused by them.

    The exceptions behind a failure are: its ``__cause__``, else its ``__context__`` unless ``raise ... from None``
    suppressed it, the members of an exception group, and the exceptions behind all these, as a traceback shows them.

    Raises:
        FaultToleranceDefinitionException: If *classes* is empty, or contains anything but classes of exceptions.

    >>> from faulttolerance import caused_by, retry
    >>> @retry(retry_on=(TimeoutError, caused_by(ConnectionError)))
    ... def load() -> str: ...
    """
    wrong = [one for one in classes if not (isinstance(one, type) and issubclass(one, BaseException))]
    if wrong or not classes:
        problem = f"got {shown(wrong[0])}" if wrong else "got no arguments"
        got, allowed = wrong[0] if wrong else None, "one or more exception classes"
        raise definition_error("caused_by", problem, got, allowed)
    return CausedBy(tuple(dict.fromkeys(classes)))


def _behind(error: BaseException) -> Iterator[BaseException]:
    """Yield *error* and the exceptions behind it, each once: chains may be circular."""
    found, seen = [error], {id(error)}
    for one in found:
        yield one
        suppressed = one.__cause__ is not None or one.__suppress_context__
        behind = [one.__cause__ if suppressed else one.__context__]
        if isinstance(one, BaseExceptionGroup):
            behind += one.exceptions
        for each in behind:
            if each is not None and id(each) not in seen:
                seen.add(id(each))
                found.append(each)


def links_of(failure: BaseException, handled: BaseException | None) -> Links:
    """Return the part of *failure*'s chain that a call created, without the exception that its caller *handled*."""
    links: list[tuple[BaseException, BaseException | None]] = []
    link: BaseException | None = failure
    while link is not None and all(link is not seen for seen, _ in links):
        context = link.__context__ if link.__context__ is not handled else None
        links.append((link, context))
        link = context
    return links
