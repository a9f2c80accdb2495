"""The page on overload shows what the simulation finds: `nox -s simulate` makes its tables and pictures anew."""

from __future__ import annotations

import sys

import pytest

from simulation.page import PAGE, filled, names, shown
from simulation.pictures import PICTURES
from simulation.tables import TABLES

TEXT = PAGE.read_text(encoding="utf-8")
LONG = {"busy", "estimators", "hedges", "limits", "queues", "storm", "throttles"}
"""The tables whose quickest rows take more than half a second."""
QUICK = [
    pytest.param(name, row, marks=pytest.mark.stress if name in LONG else ())
    for name, table in TABLES.items()
    for row in sorted(table.quick)
]


def test_the_page_has_each_table_once() -> None:
    assert sorted(names(TEXT)) == sorted(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_rows_that_are_simulated(name: str) -> None:
    """The rows have the same names, in the same order."""
    heads, _, *rows = shown(TEXT, name)

    assert heads == f"| {' | '.join(TABLES[name].heads)} |"
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(TABLES[name].rows)


@pytest.mark.skipif(
    sys.platform != "linux", reason="the last digits of logarithms differ from one C library to another"
)
@pytest.mark.parametrize(("table", "row"), QUICK)
def test_the_page_shows_the_present_results(table: str, row: str) -> None:
    """The test compares the rows that cost little; `nox -s simulate` makes all of them."""
    assert TABLES[table].line(row) in shown(TEXT, table)


def test_a_table_that_is_made_anew_from_the_same_rows_is_the_same() -> None:
    _, is_new = filled(TEXT, "storm", shown(TEXT, "storm"))

    assert not is_new


def test_the_page_shows_each_picture() -> None:
    for name in PICTURES:
        assert f"]({name})" in TEXT
        assert PAGE.with_name(name).read_text(encoding="utf-8").startswith("<svg ")
