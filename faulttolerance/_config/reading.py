"""Reads what is named: files and further sources, by sources of pydantic-settings."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import tomllib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    InitSettingsSource,
    JsonConfigSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
    YamlConfigSettingsSource,
)

from .._shown import ends_the_caller, shown, told
from ..exceptions import Fault, FaultToleranceDefinitionException
from .inputs import File, Inputs
from .key import CONFIG_VARIABLE, ORDINAL, PREFIX
from .snapshot import DEEPEST, MOST, Entry, Source, flat, ordinal, place, source_of

Lines = dict[str, int]

_ENCODING = "utf-8-sig"
"""UTF-8, with the mark before it that editors of Windows write or without."""


class Keys(BaseSettings):
    """What the sources belong to; it has no fields, since any key may be set."""

    model_config = SettingsConfigDict(extra="allow", case_sensitive=True)


class _Document:
    """What the sources of files have in common: the text is read once, for the keys and for where they stand."""

    text = ""

    def _read_file(self, file_path: Any) -> dict[str, Any]:
        self.text = file_path.read_text(encoding=_ENCODING)
        data = self._parsed(self.text)
        if not isinstance(data, dict):
            raise TypeError("it holds no mapping")
        return data

    @abstractmethod
    def _parsed(self, text: str) -> Any: ...


class TomlFile(_Document, TomlConfigSettingsSource):
    """A ``.toml`` file."""

    def _parsed(self, text: str) -> Any:
        return tomllib.loads(text)


class JsonFile(_Document, JsonConfigSettingsSource):
    """A ``.json`` file."""

    def _parsed(self, text: str) -> Any:
        return json.loads(text) if text.strip() else {}


class YamlFile(_Document, YamlConfigSettingsSource):
    """A ``.yaml`` file, read by PyYAML."""

    def _parsed(self, text: str) -> Any:
        import yaml

        found = yaml.safe_load(io.StringIO(text))  # errors in a stream show none of it
        return {} if found is None else found


class PropertiesFile(InitSettingsSource):
    """A ``.properties`` file, read by javaproperties."""

    def __init__(self, settings_cls: type[BaseSettings], properties_file: Path) -> None:
        from javaproperties import KeyValue, parse

        data: dict[str, Any] = {}
        self.lines: Lines = {}
        line = 1
        for element in parse(io.StringIO(properties_file.read_text(encoding=_ENCODING))):
            if isinstance(element, KeyValue):
                data[element.key] = element.value
                self.lines[element.key] = line
            line += element.source.count("\n")
        super().__init__(settings_cls, data)


def read(inputs: Inputs, named: Sequence[File]) -> list[Source]:
    """What the files and sources of *inputs* and the files *named* by the environment hold, the strongest first.

    Raises:
        FaultToleranceDefinitionException: With all sources that cannot be read, not only the first.
    """
    found: list[Source] = []
    faults: list[Fault] = []

    def collect(load: Callable[[], Source], where: str, source: str) -> None:
        try:
            found.append(load())
        except FaultToleranceDefinitionException as error:
            faults.extend(fault if fault.source else fault._replace(source=source) for fault in error.faults)
        except BaseException as error:
            # Each parser and each source of others has exceptions of its own.
            if ends_the_caller(error):
                raise
            faults.append(Fault(where, f"cannot be read ({told(error)})", None, "", source))

    for file in inputs.files:
        collect(partial(_file, *file), file.name, "named by configure(files=...)")
    for file in named:
        collect(partial(_file, *file), file.name, f"named by {CONFIG_VARIABLE}")
    for source in inputs.sources:
        collect(partial(_foreign, source), shown(source), "given to configure(sources=...)")
    if faults:
        raise FaultToleranceDefinitionException(*faults)
    return found[::-1]


def _foreign(source: Any) -> Source:
    own = type(source) if isinstance(source, PydanticBaseSettingsSource) else source
    name = getattr(own, "__name__", None) or shown(source)
    data = source()
    if not isinstance(data, Mapping):
        raise TypeError("it gives no mapping")
    return source_of(f"source {name}", 100, data)


def _file(name: str, found: str) -> Source:
    path = Path(found)
    _look_at(path, name)
    words = f"file {name}"
    try:
        match path.suffix.lower() or path.name.lower():
            case ".properties":
                properties = PropertiesFile(Keys, path)
                return source_of(words, 100, properties(), properties.lines, is_shared=True)
            case ".toml":
                toml_file = TomlFile(Keys, path)
                data, table = _ours(path, name, toml_file())
                return source_of(words, 100, data, _toml_lines(toml_file.text, table))
            case ".yaml" | ".yml":
                yaml_file = YamlFile(Keys, path)
                return source_of(words, 100, yaml_file(), _yaml_lines(yaml_file.text))
            case ".json":
                json_file = JsonFile(Keys, path)
                return source_of(words, 100, json_file(), _yaml_lines(json_file.text))
            case ".env":
                return _dotenv(words, path)
    except ImportError as error:
        raise FaultToleranceDefinitionException(
            Fault(name, f"cannot be read without {error.name}", None, "pip install 'faulttolerance[config]'")
        ) from error
    raise FaultToleranceDefinitionException(
        Fault(name, "is of an unknown format", name, ".properties, .toml, .yaml, .yml, .json or .env")
    )


def _look_at(path: Path, name: str) -> None:
    """Refuse what is no file: to open a named pipe is to wait for who writes into it."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        problem = "does not exist"
    else:
        if stat.S_ISREG(mode):
            return
        problem = "is a directory" if stat.S_ISDIR(mode) else "is no regular file"
    raise FaultToleranceDefinitionException(Fault(name, problem, name, "an existing file"))


def _dotenv(name: str, path: Path) -> Source:
    from dotenv.parser import parse_stream

    bindings = list(parse_stream(io.StringIO(path.read_text(encoding=_ENCODING))))
    if wrong := [one for one in bindings if one.error]:
        # Not what stands there: it may be a password.
        raise FaultToleranceDefinitionException(
            *(Fault(f"{name} line {one.original.line}", "cannot be read", None, "NAME=value") for one in wrong)
        )
    lines = {one.key: one.original.line + _blank_lines(one.original.string) for one in bindings if one.key is not None}
    source = DotEnvSettingsSource(Keys, env_file=path, env_file_encoding=_ENCODING, case_sensitive=True)
    entries = {key: Entry(key, value, place(name, lines.get(key))) for key, value in source.env_vars.items() if value}
    rank = 295
    for own in (ORDINAL, PREFIX + ORDINAL.upper()):
        if entry := entries.pop(own, None):
            rank = ordinal(entry.value, entry.place)
    return Source(name, rank, tuple(entries.values()), is_environment=True, is_shared=True)


def _blank_lines(text: str) -> int:
    """How many stand before the statement that *text* is."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _ours(path: Path, name: str, data: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The table of ours and its path: ``[tool.faulttolerance]``; a file that has none is ours as a whole."""
    tools = data.get("tool")
    has_table = isinstance(tools, Mapping) and "faulttolerance" in tools
    if not has_table:
        return (data, "") if path.name != "pyproject.toml" else ({}, "")
    table = data["tool"]["faulttolerance"]
    if not isinstance(table, Mapping):
        raise FaultToleranceDefinitionException(
            Fault(f"{name} tool.faulttolerance", f"is {shown(table)}", table, "a table: [tool.faulttolerance]")
        )
    return table, "tool/faulttolerance/"


_TOKEN = re.compile(
    r"""
    \"{3} (?: \\. | [^\\] )*? \"{3,5} | '{3} .*? '{3,5}
    | " (?: \\. | [^"\\\n] )* "       | ' [^'\n]* '
    | [#] [^\n]* | [][{}\n]
    """,
    re.DOTALL | re.VERBOSE,
)
"""What decides where a statement of TOML ends: a line break outside of strings, comments and brackets."""


def _toml_lines(text: str, table: str) -> Lines:
    """Where each key stands. A statement is a document of its own, so the parser itself says what it sets."""
    lines: Lines = {}
    header, begin, line, depth = "", 0, 1, 0
    for token in _TOKEN.finditer(f"{text}\n"):
        sign = token[0]
        depth += (sign in ("[", "{")) - (sign in ("]", "}"))
        if sign != "\n" or depth:
            continue
        statement = text[begin : token.end()]
        try:
            data = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            return lines  # a courtesy
        if statement.lstrip().startswith("["):
            header = _deepest(data)
        for key, _ in flat(data):
            lines.setdefault((header + key).removeprefix(table), line)
        line += statement.count("\n")
        begin = token.end()
    return lines


def _deepest(data: Any) -> str:
    path = ""
    while isinstance(data, dict) and data:
        key, data = next(iter(data.items()))
        path += f"{key}/"
    return path


def _yaml_lines(text: str) -> Lines:
    """Where each key stands. JSON is YAML too; where PyYAML is missing or thinks otherwise, lines are not named."""
    lines: Lines = {}
    try:
        import yaml

        waiting = [("", yaml.compose(io.StringIO(text), Loader=yaml.SafeLoader))]
        while waiting and len(lines) < MOST:
            path, node = waiting.pop()
            if isinstance(node, yaml.MappingNode) and len(path) < DEEPEST:
                for key, value in node.value:
                    name = f"{path}{getattr(key, 'value', '')}"
                    lines[name] = key.start_mark.line + 1
                    waiting.append((f"{name}/", value))
    except Exception:  # noqa: BLE001 - lines are a courtesy
        return {}
    return lines
