"""Reads what is named: files and further sources, by sources of pydantic-settings."""

from __future__ import annotations

import io
import json
import os
import stat
import tomllib
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
from .key import CONFIG_VARIABLE
from .source import LONGEST_KEY, MOST_ENTRIES, Entry, Source, entries_of, flat, place, source_of

Lines = dict[str, int]

_ENCODING = "utf-8-sig"
"""UTF-8, with the mark before it that editors of Windows write or without."""


class Keys(BaseSettings):
    """What the sources belong to; it has no fields, since any key may be set."""

    model_config = SettingsConfigDict(extra="allow", case_sensitive=True)


class _Document:
    """What the sources of files have in common: the text is read once, for the keys and for where they stand."""

    text = ""
    parse: Callable[[str], Any]

    def _read_file(self, file_path: Any) -> dict[str, Any]:
        self.text = file_path.read_text(encoding=_ENCODING)
        data = self.parse(self.text)
        if not isinstance(data, dict):
            raise TypeError("it holds no mapping")
        return data


class TomlFile(_Document, TomlConfigSettingsSource):
    """A ``.toml`` file."""

    parse = staticmethod(tomllib.loads)


class JsonFile(_Document, JsonConfigSettingsSource):
    """A ``.json`` file."""

    @staticmethod
    def parse(text: str) -> Any:
        """Give the data of *text*."""
        return json.loads(text) if text.strip() else {}


class YamlFile(_Document, YamlConfigSettingsSource):
    """A ``.yaml`` file, read by PyYAML."""

    @staticmethod
    def parse(text: str) -> Any:
        """Give the data of *text*."""
        import yaml

        data = yaml.safe_load(io.StringIO(text))  # errors in a stream show none of it
        return {} if data is None else data


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
    """Read the files and sources of *inputs* and the files *named* by the environment; the strongest is the first.

    Raises:
        FaultToleranceDefinitionException: With all sources that cannot be read, not only the first.
    """
    read_sources: list[Source] = []
    faults: list[Fault] = []

    def collect(load: Callable[[], Source], where: str, source: str) -> None:
        try:
            read_sources.append(load())
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
    return read_sources[::-1]


def _foreign(source: Any) -> Source:
    named = type(source) if isinstance(source, PydanticBaseSettingsSource) else source
    name = f"source {getattr(named, '__name__', None) or shown(source)}"
    data = source()
    if not isinstance(data, Mapping):
        raise TypeError("it gives no mapping")
    return source_of(name, 100, entries_of(name, data))


def _file(name: str, absolute: str) -> Source:
    path = Path(absolute)
    _refuse_what_is_no_file(path, name)
    suffix = (path.suffix or path.name).lower()
    try:
        if suffix == ".env":
            return _dotenv(f"file {name}", path)
        data, lines = _data_and_lines(name, path, suffix)
    except ImportError as error:
        allowed = "pip install 'faulttolerance[config]'"
        raise FaultToleranceDefinitionException(
            Fault(name, f"cannot be read without {error.name}", None, allowed)
        ) from error
    entries = entries_of(f"file {name}", data, lines)
    return source_of(f"file {name}", 100, entries, is_shared=suffix == ".properties")


def _data_and_lines(name: str, path: Path, suffix: str) -> tuple[Mapping[str, Any], Lines]:
    match suffix:
        case ".properties":
            properties = PropertiesFile(Keys, path)
            return properties(), properties.lines
        case ".toml":
            toml = TomlFile(Keys, path)
            data = toml()
            ours, table = _ours(path, name, data)
            return ours, _toml_lines(toml.text, data, table)
        case ".yaml" | ".yml":
            yaml = YamlFile(Keys, path)
            return yaml(), _yaml_lines(yaml.text)
        case ".json":
            json_file = JsonFile(Keys, path)
            return json_file(), _yaml_lines(json_file.text)
    raise FaultToleranceDefinitionException(
        Fault(name, "is of an unknown format", name, ".properties, .toml, .yaml, .yml, .json or .env")
    )


def _refuse_what_is_no_file(path: Path, name: str) -> None:
    """Refuse what is no file: to open a named pipe would be to wait for a writer."""
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
    # Not what stands there: it may be a password.
    if faults := [
        Fault(f"{name} line {binding.original.line}", "cannot be read", None, "NAME=value")
        for binding in bindings
        if binding.error
    ]:
        raise FaultToleranceDefinitionException(*faults)
    lines = {
        binding.key: binding.original.line + _blank_lines(binding.original.string)
        for binding in bindings
        if binding.key is not None
    }
    source = DotEnvSettingsSource(Keys, env_file=path, env_file_encoding=_ENCODING, case_sensitive=True)
    entries = [Entry(key, value, place(name, lines.get(key))) for key, value in source.env_vars.items() if value]
    return source_of(name, 295, entries, is_environment=True, is_shared=True)


def _blank_lines(text: str) -> int:
    """Count the blank lines before the statement that *text* is."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _ours(path: Path, name: str, data: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Give our table, ``[tool.faulttolerance]``, and its path; a file that has none is ours as a whole."""
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


def _toml_lines(text: str, data: Mapping[str, Any], table: str) -> Lines:
    """Tell where each key of *data* stands: each line with a key or a header is a document of its own.

    In a string of several lines, what looks like a header is one only if there is such a table.
    """
    lines: Lines = {}
    header = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            path = _path_of(_toml(line), data)
            header = header if path is None else path
        elif "=" in line:
            for key, _ in flat(_toml(line) or _toml(f"{line.partition('=')[0]}= 0")):
                lines.setdefault((header + key).removeprefix(table), number)
    return lines


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}  # a value begins that takes further lines, or one of these


def _path_of(table: Any, data: Any) -> str | None:
    """Join the keys of a *table* in itself, if *data* has such a table."""
    path = ""
    while isinstance(table, dict) and table:
        key, table = next(iter(table.items()))
        path, data = f"{path}{key}/", data.get(key) if isinstance(data, dict) else None
    return path if path and isinstance(data, dict) else None


def _yaml_lines(text: str) -> Lines:
    """Tell where each key stands. JSON is YAML too; where PyYAML is missing or thinks otherwise, no line is named."""
    lines: Lines = {}
    try:
        import yaml

        waiting = [("", yaml.compose(io.StringIO(text), Loader=yaml.SafeLoader))]
        while waiting and len(lines) < MOST_ENTRIES:
            path, node = waiting.pop()
            if isinstance(node, yaml.MappingNode) and len(path) < LONGEST_KEY:
                for key, value in node.value:
                    name = f"{path}{getattr(key, 'value', '')}"
                    lines[name] = key.start_mark.line + 1
                    waiting.append((f"{name}/", value))
    except Exception:  # noqa: BLE001 - lines are a courtesy
        return {}
    return lines
