"""Saying what guards a function: each guard of it from the outside inward, each value and where it came from."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .._call.order import is_detached
from .._policy import parameters
from .._signature.kind import is_coroutine_function
from .._signature.naming import class_name
from .assembly import code_of
from .declaration import FUNCTION, Declaration, declaration_of, unbound
from .guard import Guard, finder_of

if TYPE_CHECKING:
    from .registry import AnyResolver


def explain(target: Any, name: str = "", *, source: bool = False) -> str:
    """Say which policies hold for a guarded function, each value and where it came from.

    Args:
        target: A guarded function, a bound method (then of its object's class), a class together with *name*, or a
            ``Guard``. Where several guards stand above one another, each is told of, the outermost first.
        name: The method's name where *target* is a class.
        source: Whether to add the code that a call runs through, cut down to these policies.

    Raises:
        ValueError: If *target* is not guarded, or is a class and no *name* is given.
    """
    cls: type | None = None
    if isinstance(target, Guard):
        return _explained(target._resolver, None, False, source)
    if isinstance(target, type):
        if not name:
            raise ValueError(
                f"{class_name(target)} is a class: name the method, as in explain({target.__name__}, 'call')"
            )
        cls, target = target, getattr(target, name)
    elif getattr(target, "__self__", None) is not None:
        owner = target.__self__
        cls = owner if isinstance(owner, type) else type(owner)
    parts = list(_layers(target, cls, source))
    if not parts:
        raise ValueError(f"{target!r} is not guarded")
    return "\n".join(parts)


def _layers(function: Any, cls: type | None, source: bool) -> Iterator[str]:
    """Explain each guard of *function*: decorators of policies are one, each ``Guard`` is another."""
    while True:
        function = unbound(function)
        if (find := finder_of(function)) is not None:
            where = Declaration(function, {}, FUNCTION).where
            try:
                resolver = find()
            except KeyError as error:
                yield f"{where}\n  wrong: {error.args[0]}"
            else:
                asynchronous = is_coroutine_function(function)
                yield f"{where}, by the guard {_explained(resolver, None, asynchronous, source)}"
            function = function.__wrapped__
        elif (declaration := declaration_of(function)) is not None:
            of_class = declaration.owner if declaration.binding == FUNCTION else cls or declaration.owner
            yield _explained(declaration.resolver, of_class, declaration.is_coroutine, source)
            function = declaration.template
        else:
            return


def _explained(resolver: AnyResolver, cls: type | None, asynchronous: bool, source: bool) -> str:
    effective, faults = resolver.effective_policies(cls)
    lines = [effective.name]
    if not effective.declared:
        lines.append("  runs plainly: no policy holds for it")
    for value, declared in zip(effective.values, effective.declared, strict=True):
        place = "the method" if declared.level == "method" else declared.owner or "the guard"
        state = "" if value.enabled else f", switched off by {value.sources.get('enabled', 'configuration')}"
        lines.append(f"  {value.policy.annotation} (declared on {place}{state})")
        for name, parameter in parameters(value.policy).items():
            lines.append(f"    {parameter.key} = {_shown(getattr(value.policy, name))}  [{value.sources[name]}]")
    lines += [f"  wrong: {fault}" for fault in faults]
    if source and effective.policies:
        lines.append(code_of(effective, asynchronous or is_detached(effective.policies)))
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, timedelta):
        from .._config.formatting import formatted

        return formatted(value)
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value)) or "none"
    if isinstance(value, type):
        return class_name(value).removeprefix("builtins.")
    if callable(value):
        return getattr(value, "__qualname__", repr(value))
    return str(getattr(value, "name", value))
