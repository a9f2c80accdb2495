"""Values and errors from outside, formatted for messages: short, on one line, harmless to a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def escaped(text: str) -> str:
    """Replace line breaks, control characters, surrogates and marks of the writing direction by escapes."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text)


def brief(text: str) -> str:
    """Cut the middle of a long *text*."""
    return text if len(text) <= 200 else f"{text[:100]}...{text[-20:]}"


def shown(value: object) -> str:
    """Format *value* as code, shortened; never raise an error, whatever the value is."""
    try:
        return brief(repr(value))
    except Exception as error:  # noqa: BLE001  # a message about a wrong value must not fail
        return f"a {type(value).__qualname__} (its repr fails with {type(error).__name__})"


def nearest(name: object, among: Iterable[str], likeness: float = 0.6) -> str:
    """Return the name in *among* that is most similar to *name*; empty if none is similar, or *name* is no text."""
    from difflib import get_close_matches  # for a mistake only

    return next(iter(get_close_matches(name, list(among), 1, likeness)), "") if isinstance(name, str) else ""


def did_you_mean(name: object, among: Iterable[str]) -> str:
    """Return the end of a message that suggests the most similar name; empty if none is similar."""
    near = nearest(name, among)
    return f"; did you mean {near!r}?" if near else ""


def one_or_several(given: object) -> tuple[Any, ...]:
    """Return the elements of an iterable argument; a text or any other single value is one element."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        return (given,)
    return tuple(given)


def install(extra: str) -> str:
    """Return the command that installs an *extra*."""
    return f'pip install "faulttolerance[{extra}]"'


def error_text(error: BaseException) -> str:
    """Format *error* with its class, on one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  # the class name alone must do
        text = ""
    return brief(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def class_name_for_code(kind: Any) -> str:
    """Return the name of a class or function as code spells it, with its module unless it is a built-in or ours."""
    name: str = kind.__qualname__
    return name if kind.__module__.partition(".")[0] in ("builtins", "faulttolerance") else f"{kind.__module__}.{name}"


def ends_the_caller(error: BaseException) -> bool:
    """Return whether *error* ends the caller, and not only its own code: Ctrl-C, a deadline, the end of a greenlet.

    A script ends its program by ``SystemExit``, which must not end ours.
    """
    return not isinstance(error, (Exception, SystemExit))
