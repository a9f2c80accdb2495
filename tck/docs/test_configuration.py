"""The table of all parameters in the reference is what the package accepts; run this file to write it anew."""

from __future__ import annotations

import re
from pathlib import Path

from faulttolerance._config import Declared
from faulttolerance._config.formatting import formatted
from faulttolerance._config.key import ANNOTATIONS, SWITCHES, Key, parameter_keys, switch_key
from faulttolerance._config.resolution import Switches
from faulttolerance._policy import Policy, parameters

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "configuration.md"
MARK = "<!-- The table is written by tck/docs/test_configuration.py. -->\n"
_EXAMPLES = re.compile(r",? as in 1500.*$")
_CLASSES = "qualified names of exception classes, or caused_by(name), separated by commas"
_UNITS = "one of NANOS, MICROS, MILLIS, SECONDS, MINUTES, HOURS, HALF_DAYS, DAYS"
TABLE = re.compile(re.escape(MARK) + r"(?:\n\|[^\n]*)*\n*(?:\|[^\n]*\n)*", re.MULTILINE)


def table() -> str:
    """Every parameter's key of the lowest level, with its default and range."""
    lines = ["| key | default | allowed |", "| --- | --- | --- |"]
    for name, policy in ANNOTATIONS.items():
        for parameter in filter(lambda one: one.is_configurable, parameters(policy).values()):
            key = Key(f"{name}/{parameter.key}", has_class=False)
            default = formatted(parameter.default) if is_given(parameter.default) else "required"
            lines.append(row(key, default or "none", parameter.configurable))
    return "\n".join(lines) + "\n"


def is_given(default: object) -> bool:
    return "MISSING" not in repr(default)


def row(key: Key, default: str, allowed: str) -> str:
    return f"| `{key.name}` | `{default}` | {shortened(allowed)} |"


def shortened(allowed: str) -> str:
    """Leave out what the page's section on values says of each kind."""
    return _EXAMPLES.sub("", allowed).replace(_CLASSES, "exception classes").replace(_UNITS, "a unit")


def page() -> str:
    """The page with the table as it has to be."""
    return TABLE.sub(lambda _: f"{MARK}\n{table()}\n", PAGE.read_text(encoding="utf-8"), count=1)


def test_the_table_of_parameters_is_up_to_date() -> None:
    """A parameter that is added is in the reference, or the build fails."""
    assert PAGE.read_text(encoding="utf-8") == page(), f"run python {Path(__file__).name}"


def test_the_switches_are_documented_with_their_defaults() -> None:
    """They are few, and written by hand."""
    written = PAGE.read_text(encoding="utf-8")

    for name, default in zip(SWITCHES, Switches(), strict=True):
        assert f"| `{name}` | `{formatted(default)}` |" in written
        assert switch_key(name).variable in (name.upper().replace(".", "_"), name.upper())


def test_what_observing_each_policy_means_is_documented() -> None:
    """By rule X7: every policy that has a mode has a row that says what it does, and what it does not."""
    mode = page().partition("\n## Mode\n")[2].partition("\n## ")[0]
    rows = "\n".join(line.split("|")[1] for line in mode.splitlines() if line.startswith("| `"))
    observable = {name for name, policy in ANNOTATIONS.items() if policy.is_observable}

    assert set(re.findall("`([A-Z][A-Za-z]*)`", rows)) == observable
    assert observable <= set(re.findall("`([A-Z][A-Za-z]*)`", mode.partition("\n| |")[0]))


def test_the_keys_of_the_table_are_those_that_are_looked_up() -> None:
    """For every annotation that can be made without arguments."""
    looked_up = set[str]()
    for policy in ANNOTATIONS.values():
        if all(is_given(one.default) for one in parameters(policy).values()) and not contradicts_itself(policy):
            declared = Declared(policy(), "class", "", "")
            looked_up |= {key.name for name in parameters(policy) for key in parameter_keys(declared, name)[-1:]}

    assert looked_up <= set(re.findall(r"`(\w+/\w+)` \|", table()))
    assert len(looked_up) > 20


def contradicts_itself(policy: type[Policy]) -> bool:
    return bool(list(policy.contradictions({name: one.default for name, one in parameters(policy).items()})))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
