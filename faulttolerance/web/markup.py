"""HTML from elements: the one place where text becomes part of a page, and is escaped."""

from __future__ import annotations

from collections.abc import Container, Iterable
from html import escape
from typing import NamedTuple, TypeAlias, Union

from .._shown import escaped

Child: TypeAlias = Union["Markup", str, int, Iterable["Child"], None]

_VOID = frozenset({"input", "link", "meta"})


class Markup(str):
    """HTML in which nothing is left to escape; every other text is taken for words."""

    __slots__ = ()


def element(tag: str, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """Make an element.

    Args:
        tag: Its name.
        *children: What is in it: elements, words, several of them, or nothing for ``None``.
        **attributes: ``class_`` and ``for_`` for the names that Python has taken, ``data_x`` for ``data-x``; ``True``
            for one without a value, ``None`` or ``False`` for none.
    """
    told = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(str(value))}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    start = f"<{tag}{told}>"
    return Markup(start if tag in _VOID else f"{start}{joined(children)}</{tag}>")


def joined(child: Child) -> Markup:
    """Give one or several children as HTML."""
    if isinstance(child, Markup):
        return child
    if child is None:
        return Markup()
    if isinstance(child, (str, int)):
        return text(str(child))
    return Markup("".join(joined(one) for one in child))


def text(words: str) -> Markup:
    """Give *words* as they are to be read: no markup, and escapes for what controls or turns the writing round."""
    return Markup(escape(escaped(words)))


class Row(NamedTuple):
    """A row of a table: what it is about, and what is told of it."""

    title: Child
    cells: tuple[Child, ...]
    is_marked: bool = False


def table(caption: str, columns: tuple[str, ...], rows: Iterable[Row], numbers: Container[str] = ()) -> Markup:
    """Make a table, which a narrow window shows as cards: the roles say that it is one there, too."""

    def is_number(column: str) -> str | None:
        return "number" if column in numbers else None

    def row(one: Row) -> Markup:
        cells = (
            element("td", cell, class_=is_number(column), data_label=column, role="cell")
            for column, cell in zip(columns[1:], one.cells, strict=True)
        )
        title = element("th", one.title, scope="row", class_="name", role="rowheader")
        return element("tr", title, cells, class_="impaired" if one.is_marked else None, role="row")

    heads = (element("th", column, scope="col", class_=is_number(column), role="columnheader") for column in columns)
    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", heads, role="row"), role="rowgroup"),
        element("tbody", map(row, rows), role="rowgroup"),
        role="table",
    )
    return element("div", whole, class_="wide")
