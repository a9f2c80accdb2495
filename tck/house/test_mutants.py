"""The set of changes that the tests have to notice does not rot."""

from __future__ import annotations

import ast

import pytest

from kit import mutation, planted

MUTANTS = mutation.mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_change_can_be_made_in_one_place(mutant: mutation.Mutant) -> None:
    """The text to be changed is there once, a module that comes out is Python and another one, the tests exist."""
    text = (mutation.ROOT / mutant.path).read_text(encoding="utf-8")

    changed = mutant.applied_to(text)

    assert changed != text
    if mutant.path.endswith(".py"):
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    assert [test for test in mutant.tests if not (mutation.ROOT / "tck" / test).exists()] == []


@pytest.mark.parametrize("mistake", planted.MISTAKES, ids=lambda mistake: mistake.wrong)
def test_mistake_for_type_checkers_can_be_planted_in_one_place(mistake: planted.Mistake) -> None:
    """The text to be changed is there once, and what comes out is Python."""
    text = (planted.ROOT / planted.HOME / "attempt.py").read_text(encoding="utf-8")

    assert ast.dump(ast.parse(mistake.planted_in(text))) != ast.dump(ast.parse(text))


def test_page_has_every_change() -> None:
    """What is committed of the last run is about the changes that there are, and none survived it."""
    page = mutation.PAGE.read_text(encoding="utf-8")

    assert [one.name for one in MUTANTS if f"| {one.name} |" not in page] == []
    assert "**survived**" not in page
