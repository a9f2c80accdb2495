"""What is declared on one function: which policies it asks for, before any configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any
from weakref import ref

from .._call.order import is_detached
from .._policy import Policy
from .._signature.kind import is_coroutine_function, own_attribute
from .._signature.naming import class_name, qualified_name_of

Policies = Mapping[type[Policy], Policy]

_RESOLVER = "__faulttolerance_resolver__"

FUNCTION, INSTANCE, CLASS = "function", "instance", "class"
"""Whose state a call uses: the function's own (static methods too), that of ``type(self)``, that of ``cls``."""


class Declaration:
    """One guarded function: what runs, and the policies written on it.

    Args:
        function: What runs in the end. ``None`` for a method that a class-level decorator covers but a base class
            defines: what runs is then whatever follows in the method resolution order.
        policies: The method-level ones.
        binding: ``FUNCTION``, ``INSTANCE`` or ``CLASS``.
        interceptors: Those written on the function, the uppermost first.
        template: The function whose signature and name the guard shows, where that is not *function*.
    """

    __slots__ = (
        "__weakref__",
        "_guard",
        "_policies",
        "binding",
        "fallback_fits",
        "function",
        "interceptors",
        "is_coroutine",
        "name",
        "owner",
        "template",
    )

    def __init__(
        self,
        function: Callable[..., Any] | None,
        policies: Policies,
        binding: str,
        *,
        interceptors: tuple[Any, ...] = (),
        template: Callable[..., Any] | None = None,
    ) -> None:
        self.function = function
        self.template: Callable[..., Any] = function or template  # type: ignore[assignment]
        self._policies = tuple(policies.values())
        self.interceptors = interceptors
        self.binding = binding
        # Weak: a guard that another decorator superseded goes at once, not when garbage is collected.
        self._guard: ref[Any] | None = None
        self.owner: type | None = None
        """The class in whose namespace the guard was found when the class was created."""
        self.name: str = qualified_name_of(self.template).method.rpartition(".")[2]
        self.is_coroutine = is_coroutine_function(self.template)
        self.fallback_fits: bool | None = None
        """Whether the handler of its own fallback fits asynchronous calls, or others, for good; ``None``: not known."""

    def __getstate__(self) -> dict[str, Any]:
        """Serve what pickles functions by value, as cloudpickle does; it comes here from the guard."""
        kept = {name: getattr(self, name) for name in self.__slots__ if name not in ("__weakref__", "_guard")}
        return {**kept, "guard": self.guard}

    def __setstate__(self, state: dict[str, Any]) -> None:
        guard = state.pop("guard")
        for name, value in state.items():
            setattr(self, name, value)
        self._guard = ref(guard) if guard is not None else None

    @property
    def policies(self) -> dict[type[Policy], Policy]:
        """Those that are written on the function, by kind."""
        return {type(policy): policy for policy in self._policies}

    @property
    def where(self) -> str:
        """The guarded function's qualified name, as in messages."""
        if self.owner is not None:
            return f"{class_name(self.owner)}.{self.name}"
        return str(qualified_name_of(self.template))

    def is_asynchronous(self, policies: Mapping[type[Policy], object]) -> bool:
        """Tell whether calls under *policies* return before they are over (rules R7, R8)."""
        return self.is_coroutine or is_detached(policies)

    @property
    def guard(self) -> Any:
        """The function that stands where the guarded one stood."""
        return self._guard() if self._guard is not None else None

    @property
    def resolver(self) -> Any:
        """The ``MethodResolver``, which the guard keeps."""
        return getattr(self.guard, _RESOLVER, None)

    def mark(self, guard: Callable[..., Any], resolver: object) -> None:
        """Let *guard*, which keeps *resolver*, be known as the guard of this declaration."""
        self._guard = ref(guard)
        setattr(guard, _RESOLVER, resolver)


def declaration_of(candidate: object) -> Declaration | None:
    """Find the declaration behind a guard, or behind the static or class method that holds one.

    A guard knows itself by identity: ``functools.wraps`` copies attributes onto wrappers that are no guards.
    """
    candidate = unbound(candidate)
    resolver = getattr(candidate, _RESOLVER, None) if isinstance(candidate, FunctionType) else None
    declaration = getattr(resolver, "declaration", None)
    return declaration if isinstance(declaration, Declaration) and declaration.guard is candidate else None


def binding_by_name(function: Any) -> str:
    """Tell by its qualified name how *function*, decorated outside a class body, is bound.

    What wraps a bound method has its name, too, and is called without the instance.
    """
    scope = own_attribute(function, "__qualname__", "").rpartition(".")[0]
    # No class is called <locals>, nor <genexpr> or <listcomp>, in which lambdas are made.
    is_class = bool(scope) and not scope.rpartition(".")[2].startswith("<")
    if not is_class or not isinstance(function, FunctionType):
        return FUNCTION
    wrapped = own_attribute(function, "__wrapped__")
    while isinstance(wrapped, FunctionType):
        wrapped = own_attribute(wrapped, "__wrapped__")
    return FUNCTION if isinstance(wrapped, MethodType) else INSTANCE


def unbound(candidate: object) -> Any:
    """Give the function in a static method, a class method or a bound method; else *candidate*."""
    return candidate.__func__ if isinstance(candidate, (staticmethod, classmethod, MethodType)) else candidate
