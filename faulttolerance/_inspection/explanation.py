"""Explanations of guarded functions: each guard from the outside inward, each value and its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, cast

from .._call.core import is_detached
from .._call.state import conditions_of
from .._config import Declared, Effective, parameter_keys, settings
from .._config.formatting import formatted, plain
from .._guard.declare.declaration import FUNCTION, Declaration, accessors, declaration_of, unbound
from .._guard.resolve.assembly import code_of
from .._guard_value.guard import Guard, finder_of
from .._policy import Parameter, Policy, parameters
from .._shown import escaped
from .._signature.kind import is_coroutine_function
from .._signature.naming import class_name

if TYPE_CHECKING:
    from .._guard.declare.registry import AnyResolver
    from .._guard.resolve.effective import EffectivePolicies
    from .._strategy.condition import Condition


class Explanation(str):
    """The result of ``explain``: a text, which consoles show as it is, and values for programs by ``as_dict``."""

    __slots__ = ("_guards",)

    _guards: tuple[dict[str, Any], ...]

    def __new__(cls, text: str, guards: tuple[dict[str, Any], ...] = ()) -> Self:
        explanation = super().__new__(cls, text)
        explanation._guards = guards
        return explanation

    def __repr__(self) -> str:
        return str(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as values for JSON, including the values that the text omits.

        ``{"name": ..., "policies": [{"annotation": "Retry", "enabled": True, "declared_on": ..., "parameters":
        {"maxRetries": {"value": 2, "source": "decorator", "default": 3, "variable": ...}, ...}}, ...], "wrong": []}``,
        in the order in which policies nest. ``"now"`` describes the condition of a policy that has state, and
        ``"inside"`` contains the next guard in the same form, if several guards wrap each other.
        """
        from copy import deepcopy

        explained: dict[str, Any] = {}
        for guard in reversed(self._guards):
            explained = deepcopy(guard) | ({"inside": explained} if explained else {})
        return explained


def explain(target: Any, name: str = "", *, all: bool = False, source: bool = False) -> Explanation:  # noqa: A002
    """Return the policies that hold for a guarded function, with each value and its source.

    Values that differ from the default come first, with the environment variable that would change them. Policies that
    have state show their current condition, as in ``3 of 10 running`` (rule X10).

    Args:
        target: A guarded function, a bound method (explained for its object's class), a class together with *name*, or
            a ``Guard``. If several guards wrap each other, all are explained, the outermost first.
        name: The method's name if *target* is a class.
        all: Whether to show default values too.
        source: Whether to add the code that a call runs through, reduced to these policies.

    Raises:
        ValueError: If *target* is not guarded, or is a class and *name* is missing.
        KeyError: If no guard has the name that ``apply_guard`` gave to *target*.
    """
    cls: type | None = None
    if isinstance(target, Guard):
        parts = [GuardExplanation(target._resolver, None, False)]
    else:
        if isinstance(target, type):
            if not name:
                raise ValueError(
                    f"{class_name(target)} is a class: name the method, as in explain({target.__name__}, 'call')"
                )
            cls, target = target, getattr(target, name)
        elif getattr(target, "__self__", None) is not None:
            owner = target.__self__
            cls = owner if isinstance(owner, type) else type(owner)
        parts = [part for function in accessors(target) or (target,) for part in explanations_of(function, cls)]
    if not parts:
        raise ValueError(f"{target!r} is not guarded")
    return Explanation("\n".join(part.text(all, source) for part in parts), tuple(part.as_dict() for part in parts))


def explain_alone(resolver: AnyResolver, cls: type | None, *, all: bool) -> Explanation:  # noqa: A002
    """Explain one guard, without the guards around it."""
    part = GuardExplanation(resolver, cls, False)
    return Explanation(part.text(all, False), (part.as_dict(),))


def explanations_of(function: Any, cls: type | None) -> Iterator[GuardExplanation]:
    """Yield each guard of *function*, outermost first: the policy decorators are one guard, each ``Guard`` another."""
    while True:
        function = unbound(function)
        if (find := finder_of(function)) is not None:
            where = Declaration(function, {}, FUNCTION).where
            yield GuardExplanation(find(), None, is_coroutine_function(function), where)
            function = function.__wrapped__
        elif (declaration := declaration_of(function)) is not None:
            of_class = declaration.owner if declaration.binding == FUNCTION else cls or declaration.owner
            yield GuardExplanation(declaration.resolver, of_class, declaration.is_coroutine)
            function = declaration.template
        else:
            return


class GuardExplanation:
    """The explanation of one of the guards that wrap each other."""

    def __init__(self, resolver: AnyResolver, cls: type | None, asynchronous: bool, where: str = "") -> None:
        self.effective, faults = resolver.effective_policies(cls)
        self._asynchronous = asynchronous
        self._where = where
        self._wrong = [*map(str, faults)]
        self._conditions = conditions_of(resolver.state(cls), self.effective.values)

    @property
    def title(self) -> str:
        """The guarded function, and the guard that guards it."""
        by_guard = self._where and self._where != self.effective.name
        return f"{self._where}, by the guard {self.effective.name}" if by_guard else self.effective.name

    def text(self, all: bool, source: bool) -> str:  # noqa: A002
        effective = self.effective
        lines = [self.title]
        if not effective.declared and not self._wrong:
            lines.append("  runs without policies: none is in force")
        for value, declared in zip(effective.values, effective.declared, strict=True):
            state = "" if value.enabled else f", switched off by {value.sources.get('enabled', 'configuration')}"
            if value.enabled and value.observed:
                state = f", observed by {value.sources['mode']}"
            condition = self._conditions.get(type(value.policy))
            now = f", now {condition.words}" if condition is not None else ""
            place = "by configuration" if declared.level == "configuration" else f"declared on {_place(declared)}"
            lines.append(f"  {value.policy.annotation} ({place}{state}){now}")
            lines += _lines_of(value, declared, all, condition.live if condition is not None else {})
        lines += [f"  wrong: {problem}" for problem in self._wrong]
        lines = [*map(escaped, lines)]  # names and values of the application keep to their lines
        if source and effective.policies:
            lines.append(code_of(effective, self._asynchronous or is_detached(effective.policies)))
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        explained: dict[str, Any] = dict_of(self.effective, self._conditions) | {"wrong": self._wrong}
        return {"name": self._where, "guard": self.effective.name, **explained} if self._where else explained


def _place(declared: Declared) -> str:
    if declared.level == "configuration":
        return "nothing"
    return "the method" if declared.level == "method" else declared.owner or "the guard"


def _lines_of(value: Effective, declared: Declared, all: bool, live: Mapping[str, str]) -> Iterator[str]:  # noqa: A002
    """Yield the lines of values that differ from the default, then, with *all*, the lines of the others."""
    sources = value.sources
    named = parameters(value.policy)
    by_default = [one for name, one in named.items() if sources[name] == "default"]
    for one in [*(one for one in named.values() if one not in by_default), *(by_default if all else ())]:
        now = f"; {live[one.name]}" if one.name in live else ""
        yield f"    {one.key} = {formatted(one.formatted_value(value.policy)) or 'none'}  [{sources[one.name]}]{now}"
        if variable := _variable(one, declared):
            yield f"      variable {variable}"
    if by_default and not all:
        yield f"    [{len(by_default)} at the default]"


def _variable(parameter: Parameter, declared: Declared) -> str:
    """Return the environment variable with the narrowest reach; empty if no variable would change the value."""
    keys, snapshot = parameter_keys(declared, parameter.name), settings.basis().snapshot
    is_effective = keys and (snapshot is None or snapshot.is_variable_effective(keys[0]))
    return keys[0].variable if is_effective else ""


def dict_of(effective: EffectivePolicies, conditions: Mapping[type[Policy], Condition]) -> dict[str, Any]:
    """Return the values and conditions of one guard, ready for JSON."""
    now = {kind: {"now": condition.in_full} for kind, condition in conditions.items()}
    return {
        "name": effective.name,
        "policies": [
            {
                "annotation": value.policy.annotation,
                "enabled": value.enabled,
                **({"mode": value.mode} if value.policy.is_observable else {}),
                "declared_on": _place(declared),
                "parameters": _parameters(value, declared),
                **now.get(type(value.policy), {}),
            }
            for value, declared in zip(effective.values, effective.declared, strict=True)
        ],
    }


def _parameters(value: Effective, declared: Declared) -> dict[str, dict[str, Any]]:
    sources, defaults = value.sources, cast("Any", type(value.policy))
    return {
        one.key: {
            "value": plain(one.formatted_value(value.policy)),
            "source": sources[name],
            "default": plain(one.formatted_value(defaults)) if one.has_default else None,
            "variable": _variable(one, declared),
        }
        for name, one in parameters(value.policy).items()
    }
