"""Learning that the application imports a module, without importing it.

An exporter that comes after the first guarded call must find the counts complete at its first collection.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["Arrival", "is_here"]


def is_here(name: str) -> bool:
    """Whether the module is imported to its end."""
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


class Arrival:
    """Stands among the finders of ``sys.meta_path`` until every module of *names* came; finds nothing itself.

    Args:
        names: The modules to wait for.
        arrived: Told the name of a module right after it ran, on the thread that imports it.
    """

    def __init__(self, names: Iterable[str], arrived: Callable[[str], object]) -> None:
        self._names = set(names)
        self._arrived = arrived
        if self._names:
            sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Wait no longer."""
        self._names.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Let the other finders find *name*; where it is one of ours, see to it that its end is reported."""
        if name not in self._names:
            return None
        self._names.discard(name)
        if not self._names:
            self.end()
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                self._report_end_of(spec)
                return spec
        return None

    def _report_end_of(self, spec: ModuleSpec) -> None:
        loader, name = spec.loader, spec.name
        execute = getattr(loader, "exec_module", None)
        if loader is None or execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._arrived(name)

        try:
            loader.exec_module = exec_module  # type: ignore[method-assign]  # of this loader, which has one module
        except AttributeError:
            return
