"""Notification when the application imports a module, without an import by the library.

A mere look-up of a module, with which libraries check for installed modules, has no effect, and neither has a failed
import. Only a module that ran to its end counts. The hooks of wrapt are no alternative: they are called once, so they
miss a reload and a repeated import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

Callback: TypeAlias = Callable[[str], object]


def is_here(name: str) -> bool:
    """Return whether the module was imported completely."""
    module = sys.modules.get(name)
    if module is None or type(module).__name__ == "_LazyModule":  # of ``importlib.util.LazyLoader``: not used yet
        return False
    return not getattr(getattr(module, "__spec__", None), "_initializing", False)


class ImportWatch:
    """A finder in ``sys.meta_path`` as long as it waits for a module; it finds nothing itself."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callback]] = {}
        self._asking: set[tuple[int, str]] = set()

    def add(self, name: str, callback: Callback) -> None:
        """Call *callback* with the *name* of a module each time after it ran, on the thread that imports it.

        Hooks that others have installed by now are called before. The import raises the exceptions of the callback.
        """
        if sys.meta_path[:1] != [self]:
            sys.meta_path.insert(0, self)  # no removal from a later place: an import under way would skip a finder
        self._callbacks.setdefault(name, []).append(callback)

    def discard(self, name: str, callback: Callback) -> None:
        """Remove *callback* for the module *name*."""
        callbacks = self._callbacks.get(name, [])
        if callback in callbacks:
            callbacks.remove(callback)
        if not callbacks:
            self._callbacks.pop(name, None)
        while not self._callbacks and self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec that the other finders find for *name*; watch its loader if *name* is a watched module."""
        asking = (get_ident(), name)
        if name not in self._callbacks or asking in self._asking:
            return None
        self._asking.add(asking)  # another finder may itself query all finders
        try:
            for finder in [*sys.meta_path]:
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = find(name, path, target) if find is not None and finder is not self else None
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader, self._report)  # type: ignore[assignment]
                    return spec
        finally:
            self._asking.discard(asking)
        return None

    def _report(self, name: str) -> None:
        for callback in [*self._callbacks.get(name, ())]:
            callback(name)


class _Loader:
    """A loader that reports when its module has run; otherwise it behaves as the loader that it replaces."""

    def __init__(self, loader: Any, report: Callback) -> None:
        self._loader = loader
        self._report = report

    @property  # type: ignore[misc]  # it appears as the loader that it replaces
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return type(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        # The module must find the loader that it would have without the watch.
        spec: Any = vars(module).get("__spec__")
        if getattr(spec, "loader", None) is self:
            spec.loader = self._loader
        if vars(module).get("__loader__") is self:
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        if module.__name__ in sys.modules:
            self._report(module.__name__)


imports = ImportWatch()
"""The finder that the whole library uses."""
