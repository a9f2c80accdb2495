"""Values and errors from outside, as messages show them: in short, on one line, harmless to a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

PROMPTS = ("_pyrepl.__main__", "asyncio.__main__")
"""The prompts of Python 3.13 and of asyncio: they run as by ``python -m``, and what is typed there is not theirs."""
_CONTAINERS = (list, tuple, set, frozenset, dict)


def escaped(text: str) -> str:
    """Put escapes in place of line breaks, control characters, surrogates and what turns the writing round."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text)


def brief(text: str) -> str:
    """Leave out the middle of a long *text*."""
    return text if len(text) <= 200 else f"{text[:100]}...{text[-20:]}"


def shown(value: object) -> str:
    """Spell *value* as code would, in short, whatever it is."""
    try:
        if isinstance(value, (str, bytes)) and len(value) > 400:
            return f"{repr(value[:100])[:100]}...{repr(value[-20:])[-20:]}"
        return brief(_nested(value) if type(value) in _CONTAINERS else repr(value))
    except Exception as error:  # noqa: BLE001  # a message about a wrong value is no place for another error
        return f"a {type(value).__qualname__} (its repr fails with {type(error).__name__})"


def one_or_several(given: object) -> tuple[Any, ...]:
    """Give the elements of an argument that is one, as a text is, or several."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        return (given,)
    return tuple(given)


def install(extra: str) -> str:
    """Say how to get what an *extra* brings."""
    return f'pip install "faulttolerance[{extra}]"'


def told(error: BaseException) -> str:
    """Spell *error* with its class, on one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  # it is told of as far as it can be
        text = ""
    return brief(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def class_name_for_code(kind: Any) -> str:
    """Name a class or function as an application would type it, with the name of its module where it is not ours."""
    name: str = kind.__qualname__
    return name if kind.__module__.partition(".")[0] in ("builtins", "faulttolerance") else f"{kind.__module__}.{name}"


def ends_the_caller(error: BaseException) -> bool:
    """Whether *error* ends the caller, and not only the code that raised it: Ctrl-C, or a deadline of this library.

    Everything else is a failure of that code: a script ends its program by ``SystemExit``, which must not end ours.
    """
    is_ours = type(error).__module__.partition(".")[0] == __name__.partition(".")[0]
    return isinstance(error, KeyboardInterrupt) or (is_ours and not isinstance(error, Exception))


def _nested(value: object) -> str:
    """Spell a container to some depth: aliases of YAML are short to write, and may be endless to read."""
    from reprlib import Repr

    short = Repr()
    short.maxlevel = 4
    short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = short.maxdict = 8
    short.maxstring = short.maxlong = short.maxother = 100
    return short.repr(value)
