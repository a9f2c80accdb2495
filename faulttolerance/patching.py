"""Decorators for code of others, applied where they would stand if you could edit that code.

>>> import textwrap
>>> from faulttolerance import retry, timeout
>>> with patch(textwrap, "dedent", retry(max_retries=1, retry_on=OSError), timeout("500ms")):
...     textwrap.dedent("  guarded")
'guarded'
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import update_wrapper
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple, Self

from ._shown import install, shown

try:
    import wrapt
except ImportError as error:
    raise ImportError(f"patching needs wrapt: {install('patch')}", name=error.name, path=error.path) from error

from ._control import configure as control
from ._guard.declare.creation_site import application_frames
from ._guard.declare.declaration import declaration_of, declared_on, subclasses_of
from ._guard.decorate import apply
from ._guard.decorate.decorator import Decorator
from ._guard.decorate.interceptor import Interceptor
from ._platform.import_watch import imports
from ._signature.method import as_real_method
from ._signature.naming import class_name
from .exceptions import Fault, FaultToleranceDefinitionException, definition_error, raise_faults

__all__ = ["Patch", "patch"]

_ABSENT: Any = object()


def patch(target: object, path: str, /, *decorators: Callable[[Any], Any]) -> Patch:
    """Apply *decorators* to a function, method or class of a module that is not yours.

    Earlier patches of others, for example instrumentation, stay in place, inside the guard: they see each attempt. A
    class gets the decorators as your own class would, and so do the classes that inherit from it. An inherited
    attribute is overridden in the class that *path* names. Calls through references that were taken before are not
    guarded.

    Args:
        target: The name of a module, patched now or as soon as it is imported; or a module, a class, an object. The
            packages that contain a module are imported at once.
        path: The path from *target* to the attribute, as in ``"Client.send"``.
        *decorators: Decorators of this library, a ``Guard``, ``apply_guard(...)``, results of ``around_invoke``: as if
            they were written above the function, the first one uppermost.

    Returns:
        The patch; ``undo()`` or the end of a ``with`` block removes it.

    Raises:
        FaultToleranceDefinitionException: If there is no such attribute, it cannot be guarded, or has one of the
            decorators already. For a module that is imported later, each import raises it until ``undo()``.
        ModuleNotFoundError: If there is no such module, so that nothing would ever be guarded.
    """
    return Patch(target, path, decorators)


class _Change(NamedTuple):
    """One attribute that was replaced, with its old and new value."""

    holder: Any
    attribute: str
    before: Any
    after: Any

    def take_back(self) -> None:
        if self.before is _ABSENT:
            delattr(self.holder, self.attribute)
        else:
            setattr(self.holder, self.attribute, self.before)


class Patch:
    """One call of ``patch``: decorators that are in place, or will be after the import of a module."""

    def __init__(self, target: object, path: str, decorators: tuple[Callable[[Any], Any], ...]) -> None:
        self._target = target
        self._path = path
        self._decorators = decorators
        self._changes: list[_Change] = []
        self._is_undone = False
        self._where = f"{_name_of(target)}.{path}"
        frame = next(application_frames(), None)
        self._source = f"patched at {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
        if not decorators or not all(map(callable, decorators)):
            raise self._refusal(f"got {shown(decorators)}", decorators, "decorators, such as retry(max_retries=2)")
        if not isinstance(target, str):
            self._apply()
            return
        imports.add(target, self._apply)  # first: a package may import the module
        try:
            if target not in sys.modules and find_spec(target) is None:
                problem = f"no module named {target!r}, which has to contain {self._where}"
                raise ModuleNotFoundError(problem, name=target)
            if target in sys.modules:
                self._apply()
        except BaseException:
            imports.discard(target, self._apply)
            _take_back(self._changes)
            raise

    @property
    def is_applied(self) -> bool:
        """Whether the decorators are in place; false before the module is imported, and after ``undo``."""
        return bool(self._changes)

    def undo(self) -> None:
        """Remove the whole patch. Calls under way finish as they started.

        Raises:
            FaultToleranceDefinitionException: If the attribute was replaced since: undo that replacement first.
        """
        for change in self._changes:
            value = _held(change.holder, change.attribute)
            if value is not change.after:
                state = "is gone" if value is _ABSENT else f"became {value!r}"
                raise self._refusal(f"was patched here, and {state} since", value, "to undo the later change first")
        self._is_undone = True
        if isinstance(self._target, str):
            imports.discard(self._target, self._apply)
        _take_back(self._changes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __repr__(self) -> str:
        state = "undone" if self._is_undone else "in place" if self.is_applied else "waits for the import"
        return f"<patch of {self._where}: {state}>"

    def _apply(self, _: str = "") -> None:
        if self._is_undone:
            return
        target = sys.modules[self._target] if isinstance(self._target, str) else self._target
        try:
            holder, attribute, value = wrapt.resolve_path(target, self._path)
        except AttributeError as error:
            raise self._refusal("does not exist", None, "the path to an attribute, as in 'Client.send'") from error
        if any(value is change.after or value is change.holder for change in self._changes):
            return  # the module ran again, but the attribute or class comes from another one
        self._changes = []  # those of an earlier run of the module went with that
        try:
            if isinstance(value, type):
                self._on_class(holder, attribute, _class_behind(value))
            else:
                self._on_callable(holder, attribute, value)
            control.reapply_declarations_in_use()
        except BaseException as error:
            _take_back(self._changes)
            if not isinstance(error, FaultToleranceDefinitionException):
                raise
            raise FaultToleranceDefinitionException(*map(self._with_source, error.faults)) from error

    def _on_callable(self, holder: Any, attribute: str, value: Any) -> None:
        if not callable(value) and not isinstance(value, (staticmethod, classmethod)):
            raise self._refusal("cannot be called", value, "a function, a method or a class")
        is_class = isinstance(holder, type)
        decorated = self._decorated_in_class(holder, attribute, value) if is_class else self._decorated(value)
        self._replace(holder, attribute, decorated)

    def _replace(self, holder: Any, attribute: str, value: Any) -> None:
        change = _Change(holder, attribute, _held(holder, attribute), value)
        try:
            wrapt.apply_patch(holder, attribute, value)
        except (AttributeError, TypeError) as error:
            raise self._refusal("cannot be changed", holder, "an object written in Python") from error
        self._changes.append(change)

    def _decorated_in_class(self, cls: type, attribute: str, value: Any) -> Any:
        is_inherited = _held(cls, attribute) is _ABSENT
        if is_inherited and not hasattr(super(cls, cls), attribute):
            raise self._refusal("comes from the metaclass", value, "to patch the metaclass")
        decorated = self._decorated(_overridden(cls, attribute, value) if is_inherited else _as_in_a_class(value))
        if (declaration := declaration_of(decorated)) is not None:
            declaration.name = attribute
        raise_faults(apply.assign_owner(cls, attribute, decorated))
        return decorated

    def _on_class(self, holder: Any, attribute: str, cls: type) -> None:
        before = {covered: dict(vars(covered)) for covered in (cls, *subclasses_of(cls))}
        try:
            decorated = self._decorated(cls)
            for heir in subclasses_of(cls):
                apply.guard_methods(heir)
        finally:
            self._changes += [
                _Change(covered, name, names.get(name, _ABSENT), value)
                for covered, names in before.items()
                for name, value in list(vars(covered).items())
                if value is not names.get(name, _ABSENT)
            ]
        if decorated is not cls:
            self._replace(holder, attribute, decorated)

    def _decorated(self, value: Any) -> Any:
        for decorator in reversed(self._decorators):
            if isinstance(decorator, Interceptor) and decorator in _interceptors_on(value):
                raise self._refusal(f"has {decorator!r} already", decorator, "each interceptor once")
            value = decorator(value)
            if isinstance(value, (Decorator, Interceptor)):
                name = getattr(decorator, "__name__", repr(decorator))
                raise self._refusal(f"got {name} as a decorator", decorator, f"{name}(...) with its arguments")
        return value

    def _with_source(self, fault: Fault) -> Fault:
        return fault._replace(source=", ".join(dict.fromkeys(filter(None, (fault.source, self._source)))))

    def _refusal(self, problem: str, got: object, allowed: str) -> FaultToleranceDefinitionException:
        return definition_error(self._where, problem, got, allowed, self._source)


def _take_back(changes: list[_Change]) -> None:
    while changes:
        changes.pop().take_back()
    control.reapply_declarations_in_use()


def _held(holder: Any, attribute: str) -> Any:
    return getattr(holder, "__dict__", {}).get(attribute, _ABSENT)


def _name_of(target: object) -> str:
    if isinstance(target, (str, ModuleType)):
        return getattr(target, "__name__", target)  # type: ignore[arg-type]
    return class_name(target if isinstance(target, type) else type(target))


def _class_behind(cls: Any) -> type:
    """Return the class itself, without the wrapper around it."""
    while not issubclass(type(cls), type):
        cls = cls.__wrapped__
    return cls  # type: ignore[no-any-return]


def _interceptors_on(value: Any) -> tuple[Any, ...]:
    if isinstance(value, type):
        return declared_on(value).interceptors
    declaration = declaration_of(value)
    return declaration.interceptors if declaration is not None else ()


def _as_in_a_class(value: Any) -> Any:
    """Return the value with which a class calls its function with the same arguments."""
    return as_real_method(value) if hasattr(type(value), "__get__") else staticmethod(value)


def _overridden(cls: type, attribute: str, inherited: Any) -> Any:
    """Return a function for *cls* that overrides an attribute only by calling ``super()``.

    The call follows the method resolution order: other bases of a subclass are respected.
    """
    is_static = isinstance(inherited, staticmethod) or not hasattr(type(inherited), "__get__")

    def bound(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(cls, self), attribute)(*args, **kwargs)

    def static(*args: Any, **kwargs: Any) -> Any:
        return getattr(super(cls, cls), attribute)(*args, **kwargs)

    override: Any = update_wrapper(static if is_static else bound, getattr(inherited, "__func__", inherited))
    override.__module__, override.__name__ = cls.__module__, attribute
    override.__qualname__ = f"{cls.__qualname__}.{attribute}"
    if is_static:
        return staticmethod(override)
    return classmethod(override) if isinstance(inherited, classmethod) else override
