"""The distinction between frames of the application's own code and frames of installed code.

An exception may come in the middle of the application's code, as Ctrl-C does. Installed code is written by others, and
often takes something before it is able to release it: from a pool, from a queue, or a lock.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from functools import lru_cache
from types import FrameType

from ..._platform.frames import module_of
from .roles import is_ours

_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(threading.__file__)) + os.sep
_INSTALLED = ("site-packages", "dist-packages")

_guarding: dict[str, None] = {}
"""The packages that guard functions of their own; an installed package among them counts as an application, too."""
_interruptible: set[str] = set()
_uninterruptible: set[str] = set()


def add_modules(interruptible: Iterable[str], uninterruptible: Iterable[str]) -> None:
    """Add modules, with the modules inside them, that are interrupted or are not."""
    _interruptible.update(interruptible)
    _uninterruptible.update(uninterruptible)


def forget_modules() -> None:
    """Remove the modules that were added."""
    _interruptible.clear()
    _uninterruptible.clear()


def include_package_of(frame: FrameType | None) -> None:
    """Count the package of *frame* as part of the application, because it declares a guard."""
    if frame is not None:
        _guarding[module_of(frame).partition(".")[0]] = None


def is_application(frame: FrameType) -> bool:
    """Return whether *frame* runs the application's own code."""
    name = module_of(frame)
    if is_exempt(frame):
        return False
    if _is_among(name, _interruptible):
        return True
    if is_standard(frame):
        return False
    file, caller = frame.f_globals.get("__file__"), frame.f_back
    if not isinstance(file, str):
        # Code of no file, as that of a named tuple, belongs to the code that calls it, unless a user has entered it.
        return name == "__main__" or caller is None or is_ours(caller) or is_application(caller)
    return name.partition(".")[0] in _guarding or not _lies_among_installed(file, name)


def is_standard(frame: FrameType) -> bool:
    """Return whether *frame* runs code of the standard library, beside which a frozen program has all its modules."""
    file = frame.f_globals.get("__file__", _STANDARD_LIBRARY)
    name = module_of(frame).partition(".")[0]
    return name in sys.stdlib_module_names and str(file).startswith(_STANDARD_LIBRARY)


def is_exempt(frame: FrameType) -> bool:
    """Return whether *frame* runs code of a module that the application exempts; its callees are exempt, too."""
    return _is_among(module_of(frame), _uninterruptible)


def _is_among(name: str, modules: set[str]) -> bool:
    return any(f"{name}.".startswith(f"{module}.") for module in [*modules])


@lru_cache(4096)
def _lies_among_installed(file: str, name: str) -> bool:
    """Return whether the module *name* is of a distribution, by its place or by the record that an installer left."""
    if file.startswith(_STANDARD_LIBRARY) or any(f"{os.sep}{directory}{os.sep}" in file for directory in _INSTALLED):
        return True
    depth = name.count(".") + (os.path.basename(file).partition(".")[0] == "__init__")
    installed = _installed_in(os.path.normpath(os.path.join(file, *[".."] * (depth + 1))))
    return installed is None or name.partition(".")[0] in installed


@lru_cache(256)
def _installed_in(directory: str) -> frozenset[str] | None:
    """Return the names of the modules that distributions put into *directory*.

    ``None`` if one has no record, or the directory lies in an archive or nowhere.
    """
    names: set[str] = set()
    try:
        for folder in [entry for entry in os.listdir(directory) if entry.endswith(".dist-info")]:
            with open(os.path.join(directory, folder, "RECORD"), encoding="utf-8", errors="replace") as record:
                names.update(line.partition("/")[0].partition(".")[0] for line in record)
    except OSError:
        return None
    return frozenset(names)
