"""The pages of the policies agree with the package; run this file to write their tables anew."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from faulttolerance import exceptions
from faulttolerance._call.order import ROWS
from faulttolerance._config.formatting import formatted
from faulttolerance._config.key import ENABLED, Key
from faulttolerance._metrics.catalogue import Metric, every_metric
from faulttolerance._policy import Parameter, Policy, parameters

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
HOW_TO = REFERENCE.with_name("how-to")
PAGES = sorted(
    REFERENCE / f"{name}.md"
    for name in (
        "adaptive-throttle",
        "asynchronous",
        "bulkhead",
        "circuit-breaker",
        "coalesce",
        "deadline",
        "fallback",
        "fleet-wide",
        "hedge",
        "partition-by",
        "rate-limit",
        "retry",
        "retry-budget",
        "timeout",
    )
)
BEYOND_POLICIES = sorted(
    REFERENCE / f"{name}.md" for name in ("around-invoke", "guard", "inspection", "interruption", "testing")
)
HEADINGS = [
    "Meaning",
    "Parameters",
    "Interaction",
    "Configuration keys",
    "Metrics",
    "What differs in asynchronous calls",
]

POLICIES = Policy.__subclasses__()
TABLE = re.compile(r"(?P<mark><!-- table: (?P<what>\w+) of (?P<of>[\w. ]+) -->\n)(?:\n(?:[|`][^\n]*\n)+)?")
"""A table, or a line of keys, stands behind a comment that names its content."""

_FORMS = re.compile(r", (?:as in|or one of) .*$")
_RANGE = re.compile(r"[;:,] (?:at least [\d.]+|more than 0|(?:from )?\d to \d|[\d.]+ to [\d.]+)(?=\.$)")
"""A range at the end of a meaning, which the column of allowed values has, too."""


def page(path: Path) -> str:
    """Return the page with its tables as they have to be."""
    explained = dict[str, str]()

    def written(found: re.Match[str]) -> str:
        if found["what"] == "parameters":
            lines = parameter_rows(found["of"], explained)
        else:
            lines = {"keys": key_rows, "metrics": metric_rows}[found["what"]](found["of"])
        return "\n".join([found["mark"], *lines, ""])

    return TABLE.sub(written, path.read_text(encoding="utf-8"))


def parameter_rows(annotation: str, explained: dict[str, str]) -> Iterator[str]:
    """Yield a row for each parameter: name, default, range and meaning; long forms only where *explained* has none."""
    policy = named(annotation)
    meanings = meanings_of(policy)
    yield "| parameter | default | allowed | meaning |"
    yield "| --- | --- | --- | --- |"
    for one in parameters(policy).values():
        allowed = one.kind.allowed
        if forms := _FORMS.search(allowed):
            allowed = _FORMS.sub("", allowed) if forms[0] in explained else allowed
            explained.setdefault(forms[0], one.name)
        elif "caused_by" in allowed and explained.setdefault(allowed, one.name) != one.name:
            allowed = f"as `{explained[allowed]}`"
        meaning = _RANGE.sub("", meanings[one.name])
        meaning = meaning.replace("; 0 for no limit.", ".") if "(0:" in allowed else meaning
        yield f"| `{one.name}` | {default(one)} | {allowed} | {meaning} |"


def key_rows(annotations: str) -> Iterator[str]:
    """Return the global key of each parameter, in one line."""
    keys = [
        Key(f"{annotation}/{leaf}", has_class=False).name
        for annotation in annotations.split()
        for leaf in [*(one.key for one in parameters(named(annotation)).values() if one.kind.is_configurable), ENABLED]
    ]
    yield ", ".join(f"`{key}`" for key in keys)


def metric_rows(prefix: str) -> Iterator[str]:
    """Return the metrics whose names begin like this, in one line."""
    names = ", ".join(f"`{metric.name}`" for metric in every_metric() if f"{metric.name}.".startswith(f"{prefix}."))
    yield f"{names}: see [metrics](metrics.md#the-metrics)."


def named(annotation: str) -> type[Policy]:
    return next(policy for policy in POLICIES if policy.annotation == annotation)


def default(parameter: Parameter) -> str:
    if "MISSING" in repr(parameter.default):
        return "required"
    return f"`{formatted(parameter.default) or repr(parameter.default)}`"


def meanings_of(policy: type[Policy]) -> dict[str, str]:
    """Return the meaning of each parameter in the docstring."""
    arguments = inspect.cleandoc(policy.__doc__ or "").partition("Args:\n")[2]
    found = re.findall(r"^    (\w+): (.+(?:\n     .+)*)", arguments, re.MULTILINE)
    return {name: re.sub(r"\*(\w+)\*|``([^`]+)``", r"`\1\2`", " ".join(said.split())) for name, said in found}


def tags_of(metric: Metric) -> Iterator[tuple[str, set[str]]]:
    """Return each tag of a metric with the values that it can have."""
    for tag, *values in zip(metric.tags, *metric.facts.values(), *metric.readings, strict=True):
        yield tag, set(values)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_tables_are_up_to_date(path: Path) -> None:
    """A parameter or a metric that is added must be in the reference, or the build fails."""
    assert path.read_text(encoding="utf-8") == page(path), f"run python {Path(__file__).name}"


@pytest.mark.parametrize("path", [*PAGES, *BEYOND_POLICIES], ids=lambda path: path.stem)
def test_every_page_has_the_same_headings(path: Path) -> None:
    """A reader of one page knows where to look in the others."""
    assert re.findall(r"^## (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE) == HEADINGS


def test_every_policy_has_its_tables() -> None:
    """An annotation that is added must be in the reference, with its parameters and its keys."""
    shown = [found.groups() for path in PAGES for found in TABLE.finditer(path.read_text(encoding="utf-8"))]
    with_parameters = {annotation for _, what, of in shown if what == "parameters" for annotation in of.split()}
    with_keys = {annotation for _, what, of in shown if what == "keys" for annotation in of.split()}

    assert with_parameters == {policy.annotation for policy in POLICIES if parameters(policy)}
    assert with_keys == {policy.annotation for policy in POLICIES} - {"CircuitBreakerName"}  # no key reaches a name


@pytest.mark.parametrize("metric", every_metric(), ids=lambda metric: metric.name)
def test_every_metric_is_on_its_page(metric: Metric) -> None:
    """A metric stands there with its kind, its unit, and each tag with the values that it can have."""
    written = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    [row] = re.findall(rf"^\| `{re.escape(metric.name)}` \| (.*?) \|$", written, re.MULTILINE)
    kind, unit, tags, _ = (cell.strip() for cell in f" {row}".split(" |"))

    assert (kind, unit) == (metric.kind, metric.unit or "")
    for tag, values in tags_of(metric):
        assert f"`{tag}`" in tags
        assert not values or values <= set(re.findall("`([^`]+)`", tags))


def test_policies_that_no_block_can_have_are_on_the_page_about_blocks() -> None:
    """A guard that refuses blocks surprises nobody who has read there."""
    limits = (HOW_TO / "guard-a-block.md").read_text(encoding="utf-8").partition("## Limits")[2]
    rejected = [kind.annotation for kind, row in ROWS.items() if row.block_fault or row.needs_arguments]

    assert len(rejected) == 5
    assert [name for name in rejected if f"`{re.sub('(?<=[a-z])(?=[A-Z])', '_', name).lower()}`" not in limits] == []


def test_every_exception_is_on_its_page() -> None:
    """An exception has a row, with the built-in class that catches it too."""
    written = (REFERENCE / "exceptions.md").read_text(encoding="utf-8")
    classes = [getattr(exceptions, name) for name in exceptions.__all__]

    for one in classes:
        if issubclass(one, exceptions.FaultToleranceException):
            builtin = [base.__name__ for base in one.__bases__ if base.__module__ == "builtins"]
            row = re.search(rf"^\| `{one.__name__}` \|.*$", written, re.MULTILINE)
            assert row, f"{one.__name__} has no row"
            assert all(f"`{name}`" in row[0] for name in builtin)


if __name__ == "__main__":
    for one in PAGES:
        one.write_text(page(one), encoding="utf-8")
