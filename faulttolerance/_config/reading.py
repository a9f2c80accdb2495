"""Reads what is named: files and further sources, by sources of pydantic-settings."""

from __future__ import annotations

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

from ..exceptions import Fault, FaultToleranceDefinitionException
from .key import ORDINAL, PREFIX
from .snapshot import CONFIG_VARIABLE, Entry, Inputs, Source, flat, ordinal, place, source_of

__all__ = ["read"]

Lines = dict[str, int]


class Keys(BaseSettings):
    """What the sources belong to; it has no fields, since any key may be set."""

    model_config = SettingsConfigDict(extra="allow", case_sensitive=True)


class PropertiesConfigSettingsSource(InitSettingsSource):
    """A ``.properties`` file, read by javaproperties."""

    def __init__(self, settings_cls: type[BaseSettings], properties_file: Path) -> None:
        from javaproperties import KeyValue, parse

        data: dict[str, Any] = {}
        self.lines: Lines = {}
        line = 1
        with properties_file.open(encoding="utf-8") as text:
            for element in parse(text):
                if isinstance(element, KeyValue):
                    data[element.key] = element.value
                    self.lines[element.key] = line
                line += element.source.count("\n")
        super().__init__(settings_cls, data)


def read(inputs: Inputs, named: Sequence[str]) -> list[Source]:
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
        except Exception as error:  # noqa: BLE001 - each parser and each source of others has exceptions of its own
            faults.append(Fault(where, f"cannot be read ({type(error).__name__}: {error})", None, "", source))

    for file in inputs.files:
        collect(partial(_file, file), file, "named by configure(files=...)")
    for file in named:
        collect(partial(_file, file), file, f"named by {CONFIG_VARIABLE}")
    for source in inputs.sources:
        collect(partial(_foreign, source), repr(source), "given to configure(sources=...)")
    if faults:
        raise FaultToleranceDefinitionException(*faults)
    return found[::-1]


def _foreign(source: Any) -> Source:
    own = type(source) if isinstance(source, PydanticBaseSettingsSource) else source
    name = getattr(own, "__name__", repr(source))
    return source_of(f"source {name}", 100, source())


def _file(name: str) -> Source:
    path = Path(name).expanduser()
    if not path.is_file():
        raise FaultToleranceDefinitionException(Fault(name, "does not exist", name, "an existing file"))
    words = f"file {name}"
    match path.suffix.lower() or path.name.lower():
        case ".properties":
            source = PropertiesConfigSettingsSource(Keys, path)
            return source_of(words, 100, source(), source.lines, is_shared=True)
        case ".toml":
            data, table = _ours(path, TomlConfigSettingsSource(Keys, path)())
            return source_of(words, 100, data, _toml_lines(path, table))
        case ".yaml" | ".yml":
            return source_of(words, 100, _document(YamlConfigSettingsSource, path), _yaml_lines(path))
        case ".json":
            return source_of(words, 100, _document(JsonConfigSettingsSource, path), _yaml_lines(path))
        case ".env":
            return _dotenv(words, path)
    raise FaultToleranceDefinitionException(
        Fault(name, "is of an unknown format", name, ".properties, .toml, .yaml, .yml, .json or .env")
    )


def _document(load: Callable[[type[BaseSettings], Path], PydanticBaseSettingsSource], path: Path) -> Mapping[str, Any]:
    try:
        return load(Keys, path)()
    except (TypeError, ValueError) as error:
        if type(error) in (TypeError, ValueError):  # no parser raises these themselves: a list or a number was parsed
            raise TypeError("it holds no mapping") from None
        raise


def _dotenv(name: str, path: Path) -> Source:
    from dotenv.parser import parse_stream

    with path.open(encoding="utf-8") as text:
        bindings = list(parse_stream(text))
    if wrong := [one for one in bindings if one.error]:
        raise FaultToleranceDefinitionException(
            *(Fault(f"{name} line {one.original.line}", "cannot be read", one.original.string.strip()) for one in wrong)
        )
    lines = {one.key: one.original.line + _blank_lines(one.original.string) for one in bindings if one.key is not None}
    source = DotEnvSettingsSource(Keys, env_file=path, env_file_encoding="utf-8", case_sensitive=True)
    entries = {key: Entry(key, value or "", place(name, lines.get(key))) for key, value in source.env_vars.items()}
    rank = 295
    for own in (ORDINAL, PREFIX + ORDINAL.upper()):
        if entry := entries.pop(own, None):
            rank = ordinal(entry.value, entry.place)
    return Source(name, rank, tuple(entries.values()), is_environment=True, is_shared=True)


def _blank_lines(text: str) -> int:
    """How many stand before the statement that *text* is."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _ours(path: Path, data: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The table of ours and its path: ``[tool.faulttolerance]``; a file that has none is ours as a whole."""
    table = data.get("tool", {}).get("faulttolerance")
    if table is None and path.name != "pyproject.toml":
        return data, ""
    return table or {}, "tool/faulttolerance/"


def _toml_lines(path: Path, table: str) -> Lines:
    """Where each key stands: a statement of TOML is a document of its own, so the parser itself finds where it ends."""
    lines: Lines = {}
    header, statement, first = "", "", 1
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(keepends=True), 1):
        statement += line
        try:
            data = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if statement.lstrip().startswith("["):
            header = _deepest(data)
        for key, _ in flat(data):
            lines.setdefault((header + key).removeprefix(table), first)
        statement, first = "", number + 1
    return lines


def _deepest(data: Any) -> str:
    path = ""
    while isinstance(data, dict) and data:
        key, data = next(iter(data.items()))
        path += f"{key}/"
    return path


def _yaml_lines(path: Path) -> Lines:
    """Where each key stands. JSON is YAML too; where PyYAML is missing or thinks otherwise, lines are not named."""
    try:
        import yaml

        with path.open(encoding="utf-8") as text:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
    except Exception:  # noqa: BLE001 - lines are a courtesy
        return {}
    lines: Lines = {}

    def walk(node: Any, path: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                name = f"{path}{getattr(key, 'value', '')}"
                lines[name] = key.start_mark.line + 1
                walk(value, f"{name}/")

    walk(root, "")
    return lines
