"""The reference has every key that configuration can set, and the effects of the modes and switches."""

from __future__ import annotations

import re
from pathlib import Path

from faulttolerance._config import Declared
from faulttolerance._config.formatting import formatted
from faulttolerance._config.key import ANNOTATIONS, SWITCHES, parameter_keys, switch_key
from faulttolerance._config.resolution import Switches
from faulttolerance._policy import Policy, parameters

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
TEXT = (REFERENCE / "configuration.md").read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def is_given(default: object) -> bool:
    return "MISSING" not in repr(default)


def test_the_switches_are_documented_with_their_defaults() -> None:
    """They are few, and written by hand."""
    for name, default in zip(SWITCHES, Switches(), strict=True):
        assert f"| `{name}` | `{formatted(default)}` |" in TEXT
        assert switch_key(name).variable in (name.upper().replace(".", "_"), name.upper())


def test_the_effect_of_observing_each_policy_is_documented() -> None:
    """By rule X7: every policy that has a mode has a row that says what it does, and what it does not."""
    mode = section(TEXT, "Mode")
    rows = "\n".join(line.split("|")[1] for line in mode.splitlines() if line.startswith("| `"))
    observable = {name for name, policy in ANNOTATIONS.items() if policy.is_observable}

    assert set(re.findall("`([A-Z][A-Za-z]*)`", rows)) == observable
    assert observable <= set(re.findall("`([A-Z][A-Za-z]*)`", mode.partition("\n| |")[0]))


def test_the_page_of_a_policy_has_the_keys_that_are_looked_up_and_is_found() -> None:
    """Every annotation that can be made without arguments has such a page; the page on configuration leads to all."""
    looked_up = set[str]()
    for policy in ANNOTATIONS.values():
        if all(is_given(one.default) for one in parameters(policy).values()) and not contradicts_itself(policy):
            declared = Declared(policy(), "class", "", "")
            looked_up |= {key.name for name in parameters(policy) for key in parameter_keys(declared, name)[-1:]}
    pages = re.findall(r"\(([\w-]+\.md)#configuration-keys\)", section(TEXT, "Parameters"))
    keys = [section((REFERENCE / page).read_text(encoding="utf-8"), "Configuration keys") for page in pages]

    assert looked_up <= set(re.findall(r"`(\w+/\w+)`", "".join(keys)))
    assert len(looked_up) > 20
    assert sorted(pages) == sorted(
        page.name for page in REFERENCE.glob("*.md") if "<!-- table: keys of" in page.read_text(encoding="utf-8")
    )


def contradicts_itself(policy: type[Policy]) -> bool:
    return bool(list(policy.contradictions({name: one.default for name, one in parameters(policy).items()})))
