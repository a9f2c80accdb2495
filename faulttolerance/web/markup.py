"""HTML elements: the only place where text becomes part of a page and is escaped."""

from __future__ import annotations

from collections.abc import Container, Iterable
from html import escape
from typing import NamedTuple, TypeAlias, Union

from .._shown import escaped

Child: TypeAlias = Union["Markup", str, int, Iterable["Child"], None]

_VOID = frozenset({"input", "link", "meta"})


class Markup(str):
    """HTML that is already escaped; every other text is escaped as words."""

    __slots__ = ()


def element(tag: str, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """Return an element.

    Args:
        tag: The name of the tag.
        *children: The contents: elements, words, iterables of these, or ``None`` for nothing.
        **attributes: The attributes: ``class_`` and ``for_`` for names that Python reserves, ``data_x`` for ``data-x``;
            ``True`` for an attribute without a value, ``None`` or ``False`` to omit it.
    """
    values = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(str(value))}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    start = f"<{tag}{values}>"
    return Markup(start if tag in _VOID else f"{start}{joined(children)}</{tag}>")


def joined(child: Child) -> Markup:
    """Return one child, or several, as HTML."""
    if isinstance(child, Markup):
        return child
    if child is None:
        return Markup()
    if isinstance(child, (str, int)):
        return text(str(child))
    return Markup("".join(joined(one) for one in child))


def text(words: str) -> Markup:
    """Return *words* as HTML: markup, control characters and marks of the writing direction are escaped."""
    return Markup(escape(escaped(words)))


class TableRow(NamedTuple):
    """A row of a table: its title and its cells."""

    title: Child
    cells: tuple[Child, ...]
    is_marked: bool = False


def table(caption: str, columns: tuple[str, ...], rows: Iterable[TableRow], numbers: Container[str] = ()) -> Markup:
    """Return a table. A narrow window shows it as cards; the roles keep it a table for screen readers."""

    def is_number(column: str) -> str | None:
        return "number" if column in numbers else None

    def row(one: TableRow) -> Markup:
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
