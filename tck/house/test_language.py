"""The language of the house: plain openings of docstrings, and one meaning for each word."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from kit.source import FILES, nodes_of

TCK = Path(__file__).resolve().parents[1]
GLOSSARY = TCK.parent / "docs" / "explanation" / "glossary.md"

PRIVATE_VERBS = {"Give", "Tell", "Let", "Say", "Take", "Note", "Hear", "Know", "Have", "Be", "See", "Go", "Come"}
"""Verbs that leave open what a function does, where *Return*, *Record* or *Send* would say it."""

QUESTION_WORDS = {"What", "Who", "Whose", "How", "Which", "Whoever", "Whatever"}
"""Words that replace the noun of which a docstring speaks."""

MOST_PRIVATE = 0.02
"""The share of functions of the package whose docstrings may open with a private verb."""

PRONOUNS = {"what", "who", "whose", "whoever", "whatever", "whichever", "one", "those", "how"}
"""Words that replace the noun with which the name of a test begins."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

Openings = Callable[..., Iterator[tuple[str, str]]]

_DEFINITION = re.compile(
    r'''
    ^(?P<indent>[ ]*)(?P<kind>class|(?:async[ ])?def)[ ](?P<name>\w+)
    (?:.*|.*\((?:\n(?P=indent)[ ]+.*)+\n(?P=indent)\).*):  # parameters on the same line, or on lines of their own
    (?:[ ]*\#.*)?\n
    (?:\s*r?"""(?P<word>\S+))?
    ''',
    re.MULTILINE | re.VERBOSE,
)
"""A definition, and the first word of its docstring: 0.1 s for all tests, whose syntax trees take 2 s."""

_REPLACED = re.compile(r"^\| (\*[^*|][^|]*) \|", re.MULTILINE)
_PART = re.compile(r"[A-Z]?[a-z]+")
IN_OTHER_MEANINGS = {"companion", "line", "offloaded"}
"""Words that the glossary replaces in one meaning, and names use in another."""

_ROW = re.compile(r"^\| \*\*(?P<word>[^|*]+)\*\* \|(?P<cells>.*)\|$", re.MULTILINE)


def docstrings(*kinds: type[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the place and the first word of each docstring of the package on a node of *kinds*."""
    for file in FILES:
        for node in nodes_of(file):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):  # type: ignore[arg-type]
                yield f"{file}:{getattr(node, 'lineno', 1)}", text.split(None, 1)[0].strip("`*.,:;")


@cache
def definitions() -> tuple[tuple[str, type[ast.AST], str, str], ...]:
    """Return the place, the kind, the name and the first word of each module, class and function of the tests."""
    found: list[tuple[str, type[ast.AST], str, str]] = []
    for path in sorted(TCK.rglob("*.py")):
        text, file = path.read_text(encoding="utf-8"), path.relative_to(TCK).as_posix()
        if text.startswith('"""'):
            found.append((file, ast.Module, path.stem, text[3:].split(None, 1)[0]))
        for one in _DEFINITION.finditer(text):
            kind = ast.ClassDef if one["kind"] == "class" else ast.FunctionDef
            found.append((f"{file} {one['name']}", kind, one["name"], one["word"] or ""))
    return tuple(found)


def docstrings_of_tests(*kinds: type[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the place and the first word of each docstring of the tests on a node of *kinds*."""
    for place, kind, _, word in definitions():
        if kind in kinds and word:
            yield place, word.strip('`*.,:;"')


@pytest.mark.parametrize(("openings", "most"), [(docstrings, MOST_PRIVATE), (docstrings_of_tests, 0.0)])
def test_docstrings_of_functions_open_with_a_plain_verb(openings: Openings, most: float) -> None:
    """A reader whose first language is another one understands *Return* and *Record* at once."""
    found = list(openings(*FUNCTIONS))
    private = [place for place, word in found if word in PRIVATE_VERBS]

    assert found
    assert len(private) <= most * len(found), private


@pytest.mark.parametrize("openings", [docstrings, docstrings_of_tests])
def test_no_docstring_opens_with_a_question_word(openings: Openings) -> None:
    """A docstring names its subject by a noun, which the reader can look up."""
    found = list(openings(ast.Module, ast.ClassDef, *FUNCTIONS))

    assert found
    assert [place for place, word in found if word in QUESTION_WORDS] == []


def test_no_name_of_a_test_begins_with_a_pronoun() -> None:
    """The name of a test is a sentence with a noun as its subject."""
    functions = [(place, name) for place, kind, name, _ in definitions() if kind is ast.FunctionDef]
    subjects = [(place, name.split("_")[1]) for place, name in functions if name.startswith("test_")]

    assert subjects
    assert [place for place, subject in subjects if subject in PRONOUNS] == []


def test_each_word_of_the_glossary_has_exactly_one_meaning() -> None:
    """A word is found by the alphabet, in one row, with one meaning beside it."""
    rows = _ROW.findall(GLOSSARY.read_text(encoding="utf-8"))
    words = [word for word, _ in rows]
    meanings = [cells.strip() for _, cells in rows]

    assert words
    assert words == sorted(set(words), key=str.lower)
    assert [meaning for meaning in meanings if not meaning or "|" in meaning or meanings.count(meaning) > 1] == []


def identifiers() -> Iterator[tuple[str, str]]:
    """Yield each name of the package's code, with its file."""
    for file in FILES:
        for node in nodes_of(file):
            for field in ("name", "id", "attr", "arg"):
                if isinstance(name := getattr(node, field, None), str):
                    yield file, name


def test_names_use_no_word_that_the_glossary_replaces() -> None:
    """A reader finds the meaning of a name under one word."""
    rows = _REPLACED.findall(GLOSSARY.read_text(encoding="utf-8"))
    replaced = {word for row in rows for word in re.findall(r"\*(\w+)\*", row)} - IN_OTHER_MEANINGS

    assert replaced
    assert [
        (file, name)
        for file, name in sorted(set(identifiers()))
        if not replaced.isdisjoint(part.lower().removesuffix("s") for part in _PART.findall(name))
    ] == []
