"""The set of changes that the tests have to notice does not rot."""

from __future__ import annotations

import ast
from functools import lru_cache

import pytest

from kit import mutation, planted
from kit.pin import Pin

MUTANTS = mutation.mutants()


@lru_cache(maxsize=64)
def statements(text: str) -> list[tuple[str, ast.stmt]]:
    """The statements of a module, each with the lines from the end of the one before it to its own."""
    lines, found, end = text.splitlines(), [], 0
    for node in ast.parse(text).body:
        begin, end = end, node.end_lineno or 0
        found.append(("\n".join(lines[begin:end]), node))
    return found


def is_another(changed: str, text: str) -> bool:
    """Whether the module is another one, whatever its layout; statements that are written alike need no look."""
    one, other = statements(changed), statements(text)
    return len(one) != len(other) or any(
        lines != before and ast.dump(node) != ast.dump(was)
        for (lines, node), (before, was) in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_change_can_be_made_in_one_place(mutant: mutation.Mutant) -> None:
    """The code to be changed is there once, a module that comes out is Python and another one, the tests exist."""
    text = (mutation.ROOT / mutant.path).read_text(encoding="utf-8")

    changed = mutant.applied_to(text)

    assert changed != text
    if mutant.path.endswith(".py"):
        assert is_another(changed, text)
    assert [test for test in mutant.tests if not (mutation.ROOT / "tck" / test).exists()] == []


@pytest.mark.parametrize("defect", mutation.mutants("kit/defects.toml"), ids=lambda defect: defect.name)
def test_a_planted_defect_can_be_made_in_one_place(defect: mutation.Mutant) -> None:
    """Whoever renames something is told before the tests under stress plant it."""
    text = (mutation.ROOT / defect.path).read_text(encoding="utf-8")

    assert is_another(defect.applied_to(text), text)


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
    """Quotes, spaces, lines and comments do not count; what does not stand there is refused."""
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
    """The text to be changed is there once, and what comes out is Python."""
    text = (planted.ROOT / planted.HOME / "attempt.py").read_text(encoding="utf-8")

    assert ast.dump(ast.parse(mistake.planted_in(text))) != ast.dump(ast.parse(text))
