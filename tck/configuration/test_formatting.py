"""Values that are shown and written into templates can be read back."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from faulttolerance._config import Declared
from faulttolerance._config.formatting import formatted
from faulttolerance._policy import ChronoUnit, Policy, RateLimit, RateLimitType, Retry, Timeout
from kit.configuration import settings_of

durations = st.one_of(
    st.integers(0, 10**9),
    st.floats(0, 1e9, allow_nan=False),
    st.timedeltas(timedelta(), timedelta(days=4000)),
)
exceptions = st.lists(st.sampled_from([OSError, ValueError, KeyError, LookupError]), max_size=3)
policies = st.one_of(
    st.builds(
        Retry,
        max_retries=st.integers(-1, 100),
        delay=durations,
        max_duration=st.just(0),
        delay_unit=st.sampled_from(ChronoUnit),
        retry_on=exceptions,
    ),
    st.builds(Timeout, durations, st.sampled_from(ChronoUnit), interrupt=st.booleans()),
    st.builds(
        RateLimit,
        st.integers(1, 9),
        st.timedeltas(timedelta(seconds=1), timedelta(days=4000)),
        type=st.sampled_from(RateLimitType),
    ),
)


@given(policies)
def test_every_value_can_be_read_back(policy: Policy) -> None:
    """A template that holds the values in force changes nothing."""
    properties = {f"{policy.annotation}/{name}": formatted(value) for name, value in vars(policy).items()}

    effective, faults = settings_of(properties=properties).resolve([Declared(type(policy)(), "class", "", "")], "x")

    assert faults == []
    assert effective[0].policy == policy


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (True, "true"),
        (3, "3"),
        (0.5, "0.5"),
        (timedelta(), "0s"),
        (timedelta(minutes=90), "90m"),
        (timedelta(milliseconds=1500), "1500ms"),
        (ChronoUnit.HALF_DAYS, "HALF_DAYS"),
        ((OSError, json.JSONDecodeError), "OSError,json.decoder.JSONDecodeError"),
        ((), ""),
        (len, "len"),
        ("name", "name"),
    ],
)
def test_values_are_spelled_briefly(value: Any, expected: str) -> None:
    """They stand in the largest unit, without modules of built-ins."""
    assert formatted(value) == expected
