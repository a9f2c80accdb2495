"""What is declared, and its keys: the spellings of a parameter in each kind of source. Nothing is read here."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

from .._policy import Chaos, Policy, parameters
from .._record import Record
from .._shown import PROMPTS

ANNOTATIONS: Mapping[str, type[Policy]] = {
    policy.annotation: policy for policy in Policy.__subclasses__() if policy.is_configurable
}
"""The policies that can be configured, by the names in their keys."""
REACHED: Mapping[str, type[Policy]] = {**ANNOTATIONS, Chaos.annotation: Chaos}
"""All that keys can reach: the policies, and what nothing declares."""

ENABLED = "enabled"
MODE = "mode"
"""Whether a policy is enforced, or only observed; the key of those that can be."""
IGNORE = "Check/ignore"
"""Names the codes of doubts that ``check`` shall not tell of."""
SETTINGS = frozenset((ENABLED, MODE))
"""What can be set of a policy beside its parameters, and is read without pydantic."""
SWITCHES = (
    "MP_Fault_Tolerance_NonFallback_Enabled",
    "MP_Fault_Tolerance_Metrics_Enabled",
    "mp.fault.tolerance.interceptor.priority",
)
ORDINAL = "config_ordinal"
CONFIG_VARIABLE = "FAULTTOLERANCE_CONFIG"
"""Names files to read, separated as in ``PATH``."""
TRACING_VARIABLE = "FAULTTOLERANCE_TRACING"
CHAOS_VARIABLE = "FAULTTOLERANCE_CHAOS_ALLOWED"
"""Says ``true`` where keys may ask for chaos."""
FLEET_VARIABLES = "FAULTTOLERANCE_FLEET_"
"""So begin those that name the server of a fleet; they are read when the first guard is used that shares."""
PREFIX = "FAULTTOLERANCE_"
"""Stands before a key without a class in an upper-case variable: ``RETRY_DELAY`` is a common name of other things."""

_OTHER = re.compile(r"[^A-Za-z0-9_]")
_FOLDED = re.compile(r"[^A-Za-z0-9]")


def folded(name: str) -> str:
    """Reduce a key to what all its spellings have in common; other keys may share it."""
    return _FOLDED.sub("", name).upper()


class Key(Record):
    """One thing that can be set.

    Args:
        name: The specification's spelling, as in ``acme.Client/charge/Retry/maxRetries``.
        others: Further names in files and properties, such as ``max_retries`` for ``maxRetries``; *name* goes first.
        has_class: Whether a class, module or guard stands before the annotation.
    """

    name: str
    others: tuple[str, ...] = ()
    has_class: bool = True

    @cached_property
    def names(self) -> tuple[str, ...]:
        """In files and properties, the preferred one first."""
        return (self.name, *self.others)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """In the environment (MicroProfile Config: exact, other characters to ``_``, that in upper case)."""
        mapped = [_OTHER.sub("_", name) for name in self.names]
        upper = [(name if self.has_class else PREFIX + name).upper() for name in mapped]
        return tuple(dict.fromkeys([*self.names, *mapped, *upper]))

    @property
    def variable(self) -> str:
        """The one to recommend: upper case, which every shell can set."""
        mapped = _OTHER.sub("_", self.name).upper()
        return mapped if self.has_class else PREFIX + mapped

    @cached_property
    def folds(self) -> tuple[str, ...]:
        """``folded`` of every spelling."""
        names = self.names if self.has_class else (*self.names, PREFIX + self.name)
        return tuple(dict.fromkeys(map(folded, names)))


class Declared(NamedTuple):
    """One policy as it is declared for one guarded method.

    Args:
        policy: The declared value.
        level: Where the annotation stands: on the method (or plain function) or on the class (or ``Guard``), or in the
            configuration alone.
        owner: The ``<class>`` of its keys: module, dot and ``__qualname__`` of the class that declares the annotation;
            the module alone for a plain function; the name of a ``Guard``, empty if it has none.
        method: The ``<method>``: the method's name; ``__qualname__`` of a plain function; empty for a ``Guard``.
        enabled_owners: The ``<class>`` of its ``enabled`` keys, the nearest first: the concrete class, the class that
            declares the method, the class that declares the annotation. Empty stands for *owner* alone.
    """

    policy: Policy
    level: Literal["method", "class", "configuration"]
    owner: str
    method: str
    enabled_owners: tuple[str, ...] = ()


def parameter_keys(declared: Declared, name: str) -> list[Key]:
    """Give the keys by which the parameter *name* may be set, the strongest first.

    Specification: a method key reaches annotations on methods only, a class key annotations on classes only.
    """
    parameter = parameters(declared.policy)[name]
    if not (declared.policy.is_configurable and parameter.is_configurable):
        return []
    annotation = declared.policy.annotation
    leaves = tuple(f"{annotation}/{leaf}" for leaf in dict.fromkeys((parameter.key, name)))
    if declared.level == "configuration":
        return _keys_of_owners(declared, *leaves)
    path = f"{declared.owner}/{declared.method}" if declared.level == "method" else declared.owner
    return [*_keys(path, leaves), Key(leaves[0], leaves[1:], has_class=False)]


def enabled_keys(declared: Declared) -> list[Key]:
    """Give the keys that switch the policy, the strongest first; the level of the declaration does not count."""
    if not declared.policy.is_configurable:
        return []
    return _keys_of_owners(declared, f"{declared.policy.annotation}/{ENABLED}")


def mode_keys(declared: Declared) -> list[Key]:
    """Give the keys that say whether the policy is enforced or observed, which are found as ``enabled`` is."""
    if not declared.policy.is_observable:
        return []
    return _keys_of_owners(declared, f"{declared.policy.annotation}/{MODE}")


def ignore_keys(declared: Declared) -> list[Key]:
    """Give the keys that name doubts of ``check`` which are none here."""
    return _keys_of_owners(declared, IGNORE)


def _keys_of_owners(declared: Declared, *leaves: str) -> list[Key]:
    owners = declared.enabled_owners or (declared.owner,)
    keys = [key for owner in owners if declared.method for key in _keys(f"{owner}/{declared.method}", leaves)]
    keys += [key for owner in owners for key in _keys(owner, leaves)]
    return [*dict.fromkeys(keys), Key(leaves[0], leaves[1:], has_class=False)]


def looks_like_a_switch(name: str) -> bool:
    """Whether *name* is meant for a global switch, rightly spelled or not."""
    return folded(name).startswith("MPFAULT")  # no more of it, for TOLERENCE is a likely mistake


@cache
def switch_key(name: str) -> Key:
    """Make the key of one of ``SWITCHES``, which need no prefix: they carry one of their own."""
    return Key(name)


def _keys(path: str, leaves: tuple[str, ...]) -> Iterator[Key]:
    if path:
        names = tuple(f"{owner}/{leaf}" for owner in _also_known_as(path) for leaf in leaves)
        yield Key(names[0], names[1:])


def _also_known_as(path: str) -> tuple[str, ...]:
    """Give all names of *path*: a module run with ``python -m`` is ``__main__``, too, and that of a package both."""
    spec: Any = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is None or spec.name in PROMPTS:
        return (path,)
    names = (spec.name.removesuffix(".__main__"), "__main__", spec.name)
    for name in sorted(names, key=len, reverse=True):
        rest = path.removeprefix(name)
        if rest != path and rest[:1] in ("", ".", "/"):
            return tuple(dict.fromkeys(other + rest for other in names))
    return (path,)
