"""The file formats: the data of a text, and the line of each of its keys."""

from __future__ import annotations

import io
import json
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from .source import flat

Lines: TypeAlias = dict[str, int]


def _toml(text: str) -> tuple[Any, Lines]:
    """Return the data of *text* and the line of each key: each line with a key or a header is parsed as a document."""
    data = tomllib.loads(text)
    lines: Lines = {}
    header = ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("["):
            header = _path_of(_toml_of_line(line)) or header
        elif "=" in line:
            for key, _ in flat(_toml_of_line(line) or _toml_of_line(f"{line.partition('=')[0]}= 0")):
                lines.setdefault(header + key, number)
    return data, lines


def _toml_of_line(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}  # part of a value that takes several lines


def _path_of(table: Any) -> str:
    """Return the path of the nested keys of *table*."""
    return "".join(f"{key}/{_path_of(inner)}" for key, inner in table.items()) if isinstance(table, dict) else ""


def _json(text: str) -> tuple[Any, Lines]:
    return json.loads(text) if text.strip() else {}, _yaml_lines(text)


def _yaml(text: str) -> tuple[Any, Lines]:
    import yaml

    class Loader(yaml.SafeLoader):
        """A loader for which ``12:00:00`` is text: YAML 1.1 takes it for a number of seconds."""

    def number(loader: Any, node: Any) -> Any:
        return node.value if ":" in node.value else yaml.SafeLoader.yaml_constructors[node.tag](loader, node)

    for kind in ("int", "float"):
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", number)
    data = yaml.load(io.StringIO(text), Loader)  # error messages about a stream quote nothing from it
    return {} if data is None else data, _yaml_lines(text)


def _yaml_lines(text: str) -> Lines:
    """Return the line of each key. JSON is YAML too; without PyYAML, or if it fails to parse, there are no lines."""
    lines: Lines = {}

    def add(node: Any, above: str = "") -> None:
        for key, value in node.value if node.id == "mapping" else ():
            name = f"{above}{getattr(key, 'value', '')}"
            lines[name] = key.start_mark.line + 1
            add(value, f"{name}/")

    try:
        import yaml

        add(yaml.compose(io.StringIO(text), Loader=yaml.SafeLoader))
    except Exception:  # noqa: BLE001 - lines are a courtesy
        return {}
    return lines


def _properties(text: str) -> tuple[Any, Lines]:
    from javaproperties import KeyValue, parse

    data: dict[str, str] = {}
    lines: Lines = {}
    line = 1
    for element in parse(io.StringIO(text)):
        if isinstance(element, KeyValue):
            data[element.key] = element.value
            lines[element.key] = line
        line += element.source.count("\n")
    return data, lines


PACKAGES: Mapping[str, str] = {".properties": "javaproperties", ".yaml": "yaml", ".yml": "yaml"}
"""The packages that formats need and that not every installation has."""

PARSERS: Mapping[str, Callable[[str], tuple[Any, Lines]]] = {
    ".properties": _properties,
    ".toml": _toml,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": _json,
}
"""The parser of a text into its data and the lines of its keys, by the suffix of the file."""
