"""The language of the house: plain openings of docstrings, and one meaning for each word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from kit.source import FILES, nodes_of

GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "glossary.md"

PRIVATE_VERBS = {"Give", "Tell", "Let", "Say", "Take", "Note", "Hear", "Know", "Have", "Be", "See", "Go", "Come"}
"""Verbs that leave open what a function does, where *Return*, *Record* or *Send* would say it."""

QUESTION_WORDS = {"What", "Who", "Whose", "How", "Which", "Whoever", "Whatever"}
"""Words that replace the noun of which a docstring speaks."""

MOST_PRIVATE = 0.02
"""The share of functions whose docstrings may open with a private verb."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

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


def test_docstrings_of_functions_open_with_a_plain_verb() -> None:
    """A reader whose first language is another one understands *Return* and *Record* at once."""
    openings = dict(docstrings(*FUNCTIONS))
    private = [place for place, word in openings.items() if word in PRIVATE_VERBS]

    assert len(private) <= MOST_PRIVATE * len(openings), private


def test_no_docstring_opens_with_a_question_word() -> None:
    """A docstring names its subject by a noun, which the reader can look up."""
    openings = docstrings(ast.Module, ast.ClassDef, *FUNCTIONS)

    assert [place for place, word in openings if word in QUESTION_WORDS] == []


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
