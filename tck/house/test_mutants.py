"""The changes that the tests have to notice stay applicable."""

from __future__ import annotations

import ast
import textwrap
from functools import cache

import pytest

from kit import mutation, planted
from kit.pin import Pin

MUTANTS = mutation.mutants()


def is_change(mutant: mutation.Mutant) -> bool:
    """Return whether the new code is Python, has one place, and differs from the old one by more than layout."""
    text = (mutation.ROOT / mutant.path).read_text(encoding="utf-8")
    assert mutant.applied_to(text) != text
    old, new = (ast.dump(ast.parse(textwrap.dedent(code).strip())) for code in (mutant.old, mutant.new))
    return old != new


@pytest.mark.parametrize("subject", sorted({mutant.subject for mutant in MUTANTS}))
def test_change_can_be_made_in_one_place(subject: str) -> None:
    """The code to be changed is there once, the new one is Python and another one, and the tests exist."""
    for mutant in (mutant for mutant in MUTANTS if mutant.subject == subject):
        if mutant.path.endswith(".py"):
            assert is_change(mutant), mutant.name
        else:
            text = (mutation.ROOT / mutant.path).read_text(encoding="utf-8")
            assert mutant.applied_to(text) != text, mutant.name
        assert all((mutation.ROOT / "tck" / test).exists() for test in mutant.tests), mutant.name


@pytest.mark.parametrize("defect", mutation.mutants("kit/defects.toml"), ids=lambda defect: defect.name)
def test_a_planted_defect_can_be_made_in_one_place(defect: mutation.Mutant) -> None:
    """A rename breaks this test before the tests under stress plant the defect."""
    assert is_change(defect)


def test_each_change_has_a_name_of_its_own() -> None:
    """A survivor is found by its name."""
    names = [mutant.name for mutant in MUTANTS]

    assert len(set(names)) == len(names)


MODULE = """
class Shop:
    @staticmethod
    def buy(a, b):  # a comment
        if a and b:
            return f(
                a, "b"
            )
        elif a: return 'ä' + (a + b)
        def inner():
            return a + b

def sell():
    a = 1
    b = 2
"""


@pytest.mark.parametrize(
    ("function", "old", "new", "changed", "into"),
    [
        (
            "Shop.buy",
            "f(a, 'b')",
            "g()",
            """f(
                a, "b"
            )""",
            "(g())",
        ),
        ("Shop.buy", "a + b", "a - b", "(a + b)", "((a - b))"),
        ("Shop.buy.inner", "a+b", "a - b", "            return a + b", "            return (a - b)"),
        ("sell", "a = 1", "", "a = 1", "pass"),
        ("sell", "a = 1\nb = 2", "if b:\n    a = 3", "a = 1\n    b = 2", "if b:\n        a = 3"),
        ("Shop", "@staticmethod\ndef buy(a, b): ...", "", "", ""),
    ],
)
def test_code_is_found_by_function_and_syntax_and_replaced_in_place(
    function: str, old: str, new: str, changed: str, into: str
) -> None:
    """Quotes, spaces, lines and comments do not count; code that is not there is refused."""
    pin = Pin(function, old, new)

    if changed:
        assert pin.applied_to(MODULE) == MODULE.replace(changed, into)
    else:
        with pytest.raises(ValueError, match="0 times"):
            pin.applied_to(MODULE)


def test_code_that_stands_in_a_function_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="2 times"):
        Pin("f", "a", "b").applied_to("def f():\n    return a + a\n")


@pytest.mark.parametrize("mistake", planted.MISTAKES, ids=lambda mistake: mistake.wrong)
def test_mistake_for_type_checkers_can_be_planted_in_one_place(mistake: planted.Mistake) -> None:
    """The text to be changed is there once, and the changed file is Python."""
    text, tree = code_of_a_user()

    assert ast.dump(ast.parse(mistake.planted_in(text))) != tree


@cache
def code_of_a_user() -> tuple[str, str]:
    """Return the code in which mistakes are planted, and its syntax tree."""
    text = (planted.ROOT / planted.HOME / "attempt.py").read_text(encoding="utf-8")
    return text, ast.dump(ast.parse(text))
