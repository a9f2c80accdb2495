"""Files and further sources, read when they are named; sources of pydantic-settings work too."""

from __future__ import annotations

import io
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from .._shown import ends_the_caller, error_text, install, shown
from ..exceptions import Fault, FaultToleranceDefinitionException, definition_error, raise_faults
from .key import CONFIG_VARIABLE
from .snapshot import File, Inputs
from .source import Source, entries_of, source_of

try:
    from pydantic_settings import PydanticBaseSettingsSource
except ModuleNotFoundError as error:  # the extra installs it, too, though every installation should have it
    raise definition_error("the configuration", f"needs {error.name}", None, install("files")) from error

_ENCODING = "utf-8-sig"
"""UTF-8, with or without the byte order mark that editors of Windows write."""

_PACKAGES: Mapping[str, str] = {".properties": "javaproperties", ".yaml": "yaml", ".yml": "yaml"}
"""The packages that formats need and that not every installation has, by the suffix of the file."""


def read(inputs: Inputs, named: Sequence[File]) -> list[Source]:
    """Read the files and sources of *inputs* and the files *named* by the environment; the strongest comes first.

    Raises:
        FaultToleranceDefinitionException: With all sources that cannot be read, not only the first.
    """
    read_sources: list[Source] = []
    faults: list[Fault] = []

    due = [(partial(_file, *file), file.name, "named by configure(files=...)") for file in inputs.files]
    due += [(partial(_file, *file), file.name, f"named by {CONFIG_VARIABLE}") for file in named]
    due += [(partial(_foreign, one), shown(one), "passed to configure(sources=...)") for one in inputs.sources]
    for load, where, origin in due:
        try:
            read_sources.append(load())
        except FaultToleranceDefinitionException as error:
            faults += [fault if fault.source else fault._replace(source=origin) for fault in error.faults]
        except BaseException as error:
            # Each parser and each foreign source raises exceptions of its own.
            if ends_the_caller(error):
                raise
            faults.append(Fault(where, f"cannot be read ({error_text(error)})", None, "", origin))
    raise_faults(faults)
    return read_sources[::-1]


def require_package(name: str, path: str) -> None:
    """Import the package that reads the file; raise an error if it is missing."""
    if package := _PACKAGES.get(_format_of(Path(path))):
        try:
            import_module(package)
        except ModuleNotFoundError as error:
            raise definition_error(name, f"cannot be read without {error.name}", None, install("files")) from error


def _format_of(path: Path) -> str:
    suffix = (path.suffix or path.name).lower()
    # Behind ``.env`` its stage follows, as in ``.env.production``.
    return ".env" if path.name.startswith(".env.") and suffix not in _PARSERS else suffix


def _foreign(source: Any) -> Source:
    named = type(source) if isinstance(source, PydanticBaseSettingsSource) else source
    name = f"source {getattr(named, '__name__', None) or shown(source)}"
    data = source()
    if not isinstance(data, Mapping):
        raise TypeError("it returns no mapping")
    return source_of(name, 100, entries_of(name, data))


def _file(name: str, absolute: str) -> Source:
    path = Path(absolute)
    words, suffix = f"file {name}", _format_of(path)
    if suffix not in _PARSERS:
        allowed = ".properties, .toml, .yaml, .yml, .json or .env"
        raise definition_error(name, "has an unknown format", name, allowed)
    require_package(name, absolute)
    data = _PARSERS[suffix](path.read_text(encoding=_ENCODING))
    if not isinstance(data, dict):
        raise TypeError("it contains no mapping")
    if suffix == ".env":
        entries = entries_of(words, {key: value for key, value in data.items() if value})
        return source_of(words, 295, entries, is_environment=True, is_shared=True)
    if suffix == ".toml":
        data = _ours(path, name, data)
    return source_of(words, 100, entries_of(words, data), is_shared=suffix == ".properties")


def _dotenv(text: str) -> Any:
    from dotenv import dotenv_values
    from dotenv.parser import parse_stream

    wrong = [binding.original.line for binding in parse_stream(io.StringIO(text)) if binding.error]
    if wrong:  # the message omits the text: it may be a password
        raise ValueError(f"line {wrong[0]} is not NAME=value")
    return dotenv_values(stream=io.StringIO(text))


def _yaml(text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """A loader for which ``12:00:00`` is text: YAML 1.1 takes it for a number of seconds."""

    def number(loader: Any, node: Any) -> Any:
        return node.value if ":" in node.value else yaml.SafeLoader.yaml_constructors[node.tag](loader, node)

    for kind in ("int", "float"):
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", number)
    data = yaml.load(io.StringIO(text), Loader)  # error messages about a stream quote nothing from it
    return {} if data is None else data


def _properties(text: str) -> Any:
    import javaproperties

    return javaproperties.loads(text)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    ".env": _dotenv,
    ".properties": _properties,
    ".toml": tomllib.loads,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": lambda text: json.loads(text) if text.strip() else {},
}
"""The functions that parse a text, by the suffix of the file."""


def _ours(path: Path, name: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the table ``[tool.faulttolerance]``; a file without it belongs to this library as a whole."""
    tools = data.get("tool")
    if not isinstance(tools, Mapping) or "faulttolerance" not in tools:
        return {} if path.name == "pyproject.toml" else data
    table = tools["faulttolerance"]
    if not isinstance(table, Mapping):
        where, allowed = f"{name} tool.faulttolerance", "a table: [tool.faulttolerance]"
        raise definition_error(where, f"is {shown(table)}", table, allowed)
    return table
