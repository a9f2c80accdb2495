"""Whether a set of exception classes means an error: asked by retry, circuit breaker and fallback alike."""

from __future__ import annotations

__all__ = ["Classes", "contains", "matches", "never_match"]

Classes = tuple[type[BaseException], ...]

_control_flow: Classes = (KeyboardInterrupt, SystemExit, GeneratorExit)


def never_match(*classes: type[BaseException]) -> None:
    """Declare control flow: no set contains an error of these classes, not even one that names them.

    For whoever defines or first imports such a class; the three built-in ones need no declaration.
    """
    global _control_flow
    _control_flow = tuple(dict.fromkeys(_control_flow + classes))


def contains(classes: Classes, error: BaseException) -> bool:
    """Whether *error* is an instance of one of *classes*.

    An error that is no ``Exception`` is contained only where its own class is named, or a base of it that is no
    ``Exception`` either; ``BaseException`` names everything and therefore nothing.
    """
    if isinstance(error, Exception):
        return isinstance(error, classes)
    if isinstance(error, _control_flow):
        return False
    return any(one is not BaseException and isinstance(error, one) for one in classes)


def matches(error: BaseException, include: Classes, exclude: Classes = ()) -> bool:
    """Whether *include* contains *error* and *exclude* does not."""
    if isinstance(error, Exception):
        return isinstance(error, include) and not isinstance(error, exclude)
    return contains(include, error) and not contains(exclude, error)
