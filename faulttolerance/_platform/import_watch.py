"""Notification when the application imports a module, without an import by the library.

An exporter that comes after the first guarded call must find the counts complete at its first collection. A mere
look-up of a module, with which libraries check for installed modules, has no effect, and neither has a failed import.
Only a module that ran to its end counts.

The hooks of wrapt are no alternative. They are called once, so they miss a reload and a repeated import. They treat a
lazily imported module as run before it has run. And metrics do not depend on wrapt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from threading import get_ident
from types import MappingProxyType, ModuleType
from typing import Any, TypeAlias

Callback: TypeAlias = Callable[[str], object]


def is_here(name: str) -> bool:
    """Return whether the module was imported completely."""
    module = sys.modules.get(name)
    return module is not None and not _is_lazy(module) and not getattr(_spec_of(module), "_initializing", False)


def _is_lazy(module: object) -> bool:
    """Return whether the module is of ``importlib.util.LazyLoader``, and runs when it is first used."""
    return type(module).__name__ == "_LazyModule"


def _spec_of(module: object) -> Any:
    try:
        # Not by the attribute look-up of the module, which loads a lazy module.
        return object.__getattribute__(module, "__dict__").get("__spec__")
    except AttributeError:
        return None


class ImportWatch:
    """A finder in ``sys.meta_path`` as long as it waits for a module; it finds nothing itself.

    Args:
        callbacks: The callback for each module to wait for, as with ``add``.
        once: Whether a module is reported only once; otherwise its reloads are reported, too.
    """

    def __init__(self, callbacks: Mapping[str, Callback] = MappingProxyType({}), *, once: bool = True) -> None:
        self._callbacks: dict[str, list[Callback]] = {}
        self._once = once
        self._asking: set[tuple[int, str]] = set()
        for name, callback in callbacks.items():
            self.add(name, callback)

    def add(self, name: str, callback: Callback) -> None:
        """Call *callback* with the *name* of a module right after it ran, on the thread that imports it.

        Hooks that others have installed by now are called before. The import raises the exceptions of the callback.
        """
        if sys.meta_path[:1] != [self]:
            sys.meta_path.insert(0, self)  # no removal from a later place: an import under way would skip a finder
        self._callbacks.setdefault(name, []).append(callback)
        self._watch_under_way(name)

    def discard(self, name: str, callback: Callback) -> None:
        """Remove *callback* for the module *name*."""
        callbacks = self._callbacks.get(name, [])
        if callback in callbacks:
            callbacks.remove(callback)
        if not callbacks:
            self._forget(name)

    def end(self) -> None:
        """Stop waiting for modules."""
        for name in list(self._callbacks):
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._callbacks.pop(name, None)
        while not self._callbacks and self in sys.meta_path:
            sys.meta_path.remove(self)

    @property
    def is_overdue(self) -> bool:
        """Whether a module was imported unseen, for example because an earlier finder found it."""
        return any(map(is_here, list(self._callbacks)))

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec that the other finders find for *name*; watch its loader if *name* is a watched module."""
        asking = (get_ident(), name)
        if name not in self._callbacks or asking in self._asking:
            return None
        self._asking.add(asking)  # another finder may itself query all finders
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = find(name, path, target) if find is not None and finder is not self else None
                if spec is not None:
                    self._watch(spec)
                    return spec
        finally:
            self._asking.discard(asking)
        return None

    def _watch_under_way(self, name: str) -> None:
        """Watch the end of an import that started before the module was watched."""
        module = sys.modules.get(name)
        spec = _spec_of(module)
        if spec is None:
            return
        if _is_lazy(module):
            self._watch(spec)
        elif getattr(spec, "_initializing", False):
            spec.__class__ = _watched(type(spec), lambda: self._report(name))

    def _watch(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is not None and hasattr(loader, "exec_module"):
            spec.loader = _Loader(loader, lambda: self._report(spec.name))  # type: ignore[assignment]

    def _report(self, name: str) -> None:
        if name in sys.modules:
            callbacks = list(self._callbacks.get(name, ()))
            if self._once:
                self._forget(name)
            for callback in callbacks:
                callback(name)


class _Loader:
    """A loader that reports when its module has run; otherwise it behaves as the loader that it replaces."""

    def __init__(self, loader: Any, done: Callable[[], object]) -> None:
        self._loader = loader
        self._done = done

    @property  # type: ignore[misc]  # it appears as the loader that it replaces
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return type(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        # The module must find the loader that it would have without the watch.
        spec = _spec_of(module)
        if getattr(spec, "loader", None) is self:
            spec.loader = self._loader
        if vars(module).get("__loader__") is self:
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._done()


def _watched(kind: type[ModuleSpec], done: Callable[[], object]) -> type[ModuleSpec]:
    """Return the class of a spec that reports the end of its import, which ``importlib`` records in the spec."""

    def is_over(spec: Any, value: bool) -> None:
        spec.__class__ = kind
        spec._initializing = value
        if not value:
            done()

    under_way = property(lambda spec: spec.__dict__["_initializing"], is_over)
    return type(kind.__name__, (kind,), {"_initializing": under_way})
