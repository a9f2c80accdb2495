"""Declared policies and their keys: the spellings of a parameter in each kind of source. Reads no source."""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

from .._policy import Policy, Values, parameters
from .._record import Record

ANNOTATIONS: Mapping[str, type[Policy]] = {
    policy.annotation: policy
    for policy in sorted(Policy.__subclasses__(), key=lambda policy: policy.annotation)
    if policy.is_configurable
}
"""The policies that can be configured, by the names in their keys."""
UNDECLARED: Any = [kind for kind in Values.__subclasses__() if kind.permission]
"""The policies that configuration alone declares."""
CONFIGURABLE: Mapping[str, type[Policy]] = {**ANNOTATIONS, **{kind.annotation: kind for kind in UNDECLARED}}
"""All policies that keys can reach."""

ENABLED = "enabled"
MODE = "mode"
"""The key that enforces a policy or only observes it; policies that can be observed have it."""
IGNORE = "Check/ignore"
"""The key that names the codes of lints which ``check`` must not report."""
SWITCHES = (
    "MP_Fault_Tolerance_NonFallback_Enabled",
    "MP_Fault_Tolerance_Metrics_Enabled",
    "mp.fault.tolerance.interceptor.priority",
)
ORDINAL = "config_ordinal"
CONFIG_VARIABLE = "FAULTTOLERANCE_CONFIG"
"""The variable that names files to read, separated as in ``PATH``."""
TRACING_VARIABLE = "FAULTTOLERANCE_TRACING"
PERMISSIONS = [kind.permission for kind in UNDECLARED]
"""The variables that allow policies by keys if they are ``true``."""
FLEET_VARIABLES = "FAULTTOLERANCE_FLEET_"
"""The prefix of variables that name the server of a fleet; they are read when a guard that shares is first used."""
PREFIX = "FAULTTOLERANCE_"
"""The prefix of a key without a class in an upper-case variable: other programs use names such as ``RETRY_DELAY``."""

_OTHER = re.compile(r"[^A-Za-z0-9_]")
_FOLDED = re.compile(r"[^A-Za-z0-9]")


def folded(name: str) -> str:
    """Reduce a key to the part that all its spellings have in common; other keys may share the result."""
    return _FOLDED.sub("", name).upper()


class Key(Record):
    """One key that can be set.

    Args:
        name: The specification's spelling, as in ``acme.Client/charge/Retry/maxRetries``.
        others: Further names in files and properties, such as ``max_retries`` for ``maxRetries``; *name* has
            precedence.
        has_class: Whether a class, module or guard precedes the annotation.
    """

    name: str
    others: tuple[str, ...] = ()
    has_class: bool = True

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names in files and properties, the preferred name first."""
        return (self.name, *self.others)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The names in the environment (MicroProfile Config: exact, other characters as ``_``, then in upper case).

        On Windows the exact names are in upper case, too.
        """
        mapped = [_OTHER.sub("_", name) for name in self.names]
        upper = [(name if self.has_class else PREFIX + name).upper() for name in mapped]
        return tuple(dict.fromkeys([*self.names, *mapped, *upper, *map(str.upper, self.names)]))

    @property
    def variable(self) -> str:
        """The recommended variable: in upper case, which every shell can set."""
        return ("" if self.has_class else PREFIX) + _OTHER.sub("_", self.name).upper()


class Declared(NamedTuple):
    """One policy as it is declared for one guarded method.

    Args:
        policy: The declared value.
        level: The place of the annotation: on the method (or plain function), on the class (or ``Guard``), or only in
            the configuration.
        owner: The ``<class>`` of its keys: module, dot and ``__qualname__`` of the class that declares the annotation;
            the module alone for a plain function; the name of a ``Guard``, empty if it has none.
        method: The ``<method>``: the method's name; ``__qualname__`` of a plain function; empty for a ``Guard``.
        enabled_owners: The ``<class>`` of its ``enabled`` keys, the nearest first: the concrete class, the class that
            declares the method, the class that declares the annotation. Empty means *owner* alone.
    """

    policy: Policy
    level: Literal["method", "class", "configuration"]
    owner: str
    method: str
    enabled_owners: tuple[str, ...] = ()


def parameter_keys(declared: Declared, name: str) -> list[Key]:
    """Return the keys that can set the parameter *name*, ``ENABLED`` or ``MODE``, the strongest first.

    Specification: a method key reaches annotations on methods only, a class key annotations on classes only. The level
    of the declaration does not matter to keys that switch or observe the policy.
    """
    policy, annotation = declared.policy, declared.policy.annotation
    if name in (ENABLED, MODE):
        is_known = policy.is_configurable if name == ENABLED else policy.is_observable
        return _keys_of_owners(declared, f"{annotation}/{name}") if is_known else []
    parameter = parameters(policy)[name]
    if not (policy.is_configurable and parameter.kind.is_configurable):
        return []
    leaves = tuple(f"{annotation}/{leaf}" for leaf in dict.fromkeys((parameter.key, name)))
    if declared.level == "configuration":
        return _keys_of_owners(declared, *leaves)
    path = f"{declared.owner}/{declared.method}" if declared.level == "method" else declared.owner
    return [*_keys(path, leaves), Key(leaves[0], leaves[1:], has_class=False)]


def ignore_keys(declared: Declared) -> list[Key]:
    """Return the keys that name lints which ``check`` must not report for the guard."""
    return _keys_of_owners(declared, IGNORE)


def _keys_of_owners(declared: Declared, *leaves: str) -> list[Key]:
    owners = declared.enabled_owners or (declared.owner,)
    keys = [key for owner in owners if declared.method for key in _keys(f"{owner}/{declared.method}", leaves)]
    keys += [key for owner in owners for key in _keys(owner, leaves)]
    return [*dict.fromkeys(keys), Key(leaves[0], leaves[1:], has_class=False)]


def looks_like_a_switch(name: str) -> bool:
    """Return whether *name* is meant as a global switch, even if misspelt."""
    return folded(name).startswith("MPFAULT")  # only this part, because TOLERENCE is a likely mistake


@cache
def switch_key(name: str) -> Key:
    """Return the key of one of ``SWITCHES``, which need no prefix: they have their own."""
    return Key(name)


def _keys(path: str, leaves: tuple[str, ...]) -> Iterator[Key]:
    if path:
        names = tuple(f"{owner}/{leaf}" for owner in _also_known_as(path) for leaf in leaves)
        yield Key(names[0], names[1:])


def _also_known_as(path: str) -> tuple[str, ...]:
    """Return all names of *path*: a module run by ``python -m`` is also ``__main__``, and a package has both names."""
    for module in ("__main__", "__mp_main__"):  # the latter in workers that multiprocessing spawns
        run: str = getattr(getattr(sys.modules.get(module), "__spec__", None), "name", "")
        imported = run.removesuffix(".__main__")
        for name in (run, imported) if run else ():
            rest = path.removeprefix(name)
            if rest != path and rest[:1] in ("", ".", "/"):
                return tuple(dict.fromkeys(other + rest for other in (imported, "__main__", run)))
    return (path,)
