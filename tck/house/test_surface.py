"""The interface for users: the names of the package, each with its documentation."""

from __future__ import annotations

import inspect

import pytest

import faulttolerance
from faulttolerance import exceptions, instrumentation, policies
from kit.program import output_of

PROMISED = {
    "the specification's annotations": "retry timeout circuit_breaker bulkhead fallback asynchronous",
    "the specification's types": """
        FallbackHandler ExecutionContext ChronoUnit FaultToleranceException TimeoutException
        CircuitBreakerOpenException BulkheadException FaultToleranceDefinitionException""",
    "beyond the specification": """
        Guard apply_guard rate_limit RateLimitException RefusedException adaptive_throttle
        asynchronous_non_blocking exponential_backoff fibonacci_backoff custom_backoff retry_when before_retry
        degradations fail_when last_good circuit_breaker_name circuit_breakers around_invoke coalesce caused_by
        partition_by hedge deadline honor_retry_after retry_budget fleet_wide RedisFleet recommended""",
    "how much it matters": "criticality",
    "running it": """
        configure reload validate guards explain unguarded uninterruptible Interrupted
        remaining sleep Future completed_future shutdown on_deadline health fingerprint veto_retries""",
}
"""The public names by group; a name is added here when it is promised."""

NAMES = sorted(name for group in PROMISED.values() for name in group.split())
MOST = 60
"""The number of names that a user learns in the first hour."""

_VALUES = """
    AdaptiveThrottle BeforeRetry Bulkhead CircuitBreaker CircuitBreakerName Coalesce Criticality CustomBackoff Deadline
    ExponentialBackoff FailWhen Fallback FibonacciBackoff FleetWide Hedge HonorRetryAfter PartitionBy RateLimit
    RateLimitType Retry RetryBudget RetryWhen Timeout"""
VALUES = _VALUES.split()
"""The names of ``faulttolerance.policies``."""

FORMER = {
    **dict.fromkeys(VALUES, policies),
    **dict.fromkeys(["MillisecondsWarning", "ThrottleException"], exceptions),
    "Degradation": instrumentation,
}
"""Names that programs import from the package, though they live in the module."""


def test_all_has_the_promised_names_and_no_others() -> None:
    """A user would rely on any other name without a promise."""
    assert sorted(faulttolerance.__all__) == NAMES


def test_all_is_sorted() -> None:
    """Branches that add names merge without a conflict, and a reader finds a name by the alphabet."""
    assert list(faulttolerance.__all__) == sorted(faulttolerance.__all__)


def test_every_other_name_of_the_package_is_a_module_or_private() -> None:
    """No import adds a name to the interface: `__all__` is complete."""
    seen = {
        name
        for name, value in vars(faulttolerance).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and name not in ("Any", "TYPE_CHECKING", "annotations")
    }

    assert seen <= set(faulttolerance.__all__)


def test_dir_lists_also_names_that_are_imported_at_their_first_use() -> None:
    """An interactive user finds every name by completion, and `help` shows it."""
    assert set(NAMES) <= set(dir(faulttolerance))
    assert set(VALUES) <= set(dir(policies))


def test_the_names_of_the_package_can_be_learnt_in_an_hour() -> None:
    assert len(faulttolerance.__all__) <= MOST


def test_the_values_of_all_policies_are_in_one_module() -> None:
    assert list(policies.__all__) == sorted(VALUES)
    assert all(len((inspect.getdoc(getattr(policies, name)) or "").split()) >= 4 for name in VALUES)


def test_a_name_of_another_module_is_importable_from_the_package_too() -> None:
    for name, home in FORMER.items():
        assert getattr(faulttolerance, name) is getattr(home, name), name


@pytest.mark.outside
def test_names_of_other_modules_are_neither_listed_nor_warned_about() -> None:
    program = f"""
import warnings
warnings.simplefilter("error")
import faulttolerance
for name in {list(FORMER)!r}:
    exec(f"from faulttolerance import {{name}}")
print({set(FORMER)!r} & {{*dir(faulttolerance), *faulttolerance.__all__}})
"""
    assert output_of(program) == "set()"


def test_every_name_is_there_and_documented() -> None:
    """`help(faulttolerance.name)` tells its purpose."""
    lengths = {name: len((inspect.getdoc(getattr(faulttolerance, name)) or "").split()) for name in NAMES}

    assert {name: words for name, words in lengths.items() if words < 4} == {}


def test_a_class_or_function_says_that_it_lives_in_the_package() -> None:
    """A name in a traceback or a repr can be imported as it is written, or from a module of ours."""
    homes = {name: getattr(getattr(faulttolerance, name), "__module__", "faulttolerance") for name in NAMES}

    assert {name: home for name, home in homes.items() if home.split(".")[0] != "faulttolerance"} == {}


def test_parameters_are_annotated() -> None:
    """An editor can show the types."""
    functions = {name: thing for name in NAMES if inspect.isfunction(thing := getattr(faulttolerance, name))}

    bare = [
        (name, one.name)
        for name, function in functions.items()
        for one in inspect.signature(function).parameters.values()
        if one.annotation is one.empty
    ]

    assert bare == []


def test_the_package_ships_its_types() -> None:
    """Type checkers read the annotations of an installed package only beside `py.typed`."""
    package = inspect.getfile(faulttolerance).removesuffix("__init__.py")

    with open(package + "py.typed", encoding="utf-8") as marker:
        assert marker.read() == ""
