"""The key that counts among many, against a model that follows the words of the specification."""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from unittest import mock

from hypothesis import strategies as st

from faulttolerance._config import Declared, Settings
from faulttolerance._policy import Fallback, Policy, Retry, Timeout
from kit.configuration import settings_of
from kit.examples import holds

OWNERS = ["acme.Base", "acme.Client"]
METHODS = ["charge", "refund"]
POLICIES: list[Policy] = [Retry(max_retries=1, delay=2), Timeout(3), Fallback(fallback_method="substitute")]
NUMBERS = {"Retry": {"maxRetries": "max_retries", "delay": "delay"}, "Timeout": {"value": "value"}}

PATHS = ["", *(f"{owner}/" for owner in OWNERS), *(f"{owner}/{method}/" for owner in OWNERS for method in METHODS)]
SWITCH = "MP_Fault_Tolerance_NonFallback_Enabled"


class Setting(NamedTuple):
    """One key in one source; the mapping to a variable is applied where the source is the environment."""

    source: str
    key: str
    value: Any
    python_spelling: bool
    upper_case: bool


ORDINALS = {"properties": 500, "environment": 300, "first": 120, "second": 110}


@st.composite
def a_setting(draw: st.DrawFn) -> Setting:
    path = draw(st.sampled_from(PATHS))
    annotation = draw(st.sampled_from([policy.annotation for policy in POLICIES]))
    parameter = draw(st.sampled_from([*NUMBERS.get(annotation, {}), "enabled"]))
    value = draw(st.booleans()) if parameter == "enabled" else draw(st.integers(0, 50))
    key = f"{path}{annotation}/{parameter}"
    if draw(st.integers(0, 15)) == 0:
        key, value = SWITCH, draw(st.booleans())
    return Setting(draw(st.sampled_from(list(ORDINALS))), key, value, draw(st.booleans()), draw(st.booleans()))


@st.composite
def a_declaration(draw: st.DrawFn) -> Declared:
    return Declared(
        draw(st.sampled_from(POLICIES)),
        draw(st.sampled_from(["method", "class"])),
        draw(st.sampled_from(OWNERS)),
        draw(st.sampled_from(METHODS)),
        tuple(draw(st.lists(st.sampled_from(OWNERS), unique=True))),
    )


def spelled(setting: Setting) -> str:
    *path, last = setting.key.split("/")
    annotation = path[-1] if path else ""
    last = NUMBERS.get(annotation, {}).get(last, last) if setting.python_spelling else last
    name = "/".join([*path, last])
    if setting.source != "environment":
        return name
    mapped = "".join(letter if letter.isalnum() else "_" for letter in name)
    if not setting.upper_case:
        return mapped
    return mapped.upper() if len(path) > 1 or not path else f"FAULTTOLERANCE_{mapped.upper()}"


def configured(chosen: list[Setting]) -> Settings:
    by_source: dict[str, dict[str, Any]] = {source: {} for source in ORDINALS}
    for setting in chosen:
        by_source[setting.source][spelled(setting)] = setting.value
    first = {**by_source["first"], "config_ordinal": 120}
    second = {**by_source["second"], "config_ordinal": 110}
    variables = {name: str(value).lower() for name, value in by_source["environment"].items()}
    with mock.patch.dict(os.environ, variables):
        return settings_of(properties=by_source["properties"], sources=[lambda: second, lambda: first])


def strongest(chosen: list[Setting], key: str) -> Any:
    """Return the value of *key*, or None: by ordinal, within a source by spelling, of one spelling the last one."""
    found = {(setting.source, spelled(setting)): setting for setting in chosen if setting.key == key}.values()

    def rank(setting: Setting) -> tuple[int, bool, bool]:
        python = setting.python_spelling and spelled(setting) != spelled(setting._replace(python_spelling=False))
        upper = setting.source == "environment" and setting.upper_case
        return -ORDINALS[setting.source], upper, python

    return min(found, key=rank).value if found else None


def expected(chosen: list[Setting], declared: Declared) -> tuple[bool, dict[str, Any]]:
    policy = declared.policy
    values: dict[str, Any] = {}
    for parameter, name in NUMBERS.get(policy.annotation, {}).items():
        own = f"{declared.owner}/{declared.method}" if declared.level == "method" else declared.owner
        # Specification: method before class before global, and only keys of the declaration's own level reach it.
        for key in (f"{own}/{policy.annotation}/{parameter}", f"{policy.annotation}/{parameter}"):
            if (value := strongest(chosen, key)) is not None:
                values[name] = value
                break
    owners = declared.enabled_owners or (declared.owner,)
    keys = [f"{owner}/{declared.method}/{policy.annotation}/enabled" for owner in owners]
    keys += [f"{owner}/{policy.annotation}/enabled" for owner in owners]
    keys += [f"{policy.annotation}/enabled"]
    # Specification: NonFallback_Enabled "has the lowest priority".
    answers = [value for key in keys if (value := strongest(chosen, key)) is not None]
    answers += [isinstance(policy, Fallback) or strongest(chosen, SWITCH) is not False]
    return answers[0], values


@holds(30, 300, st.lists(a_setting(), max_size=25), st.lists(a_declaration(), min_size=1, max_size=4))
def test_the_value_that_counts_is_the_one_the_specification_names(
    chosen: list[Setting], declared: list[Declared]
) -> None:
    """This holds for any keys, at any levels, in any sources and spellings."""
    effective, faults = configured(chosen).resolve(declared, "acme.Client.charge")

    assert faults == []
    for one, found in zip(declared, effective, strict=True):
        enabled, values = expected(chosen, one)
        assert found.enabled == enabled
        assert found.policy == type(one.policy)(**{**vars(one.policy), **values})
        assert {name for name, source in found.sources.items() if " in " in source} - {"enabled"} == set(values)
