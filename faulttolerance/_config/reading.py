"""Files and further sources, read when they are named; sources of pydantic-settings work too."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_settings import PydanticBaseSettingsSource

from .._shown import ends_the_caller, error_text, install, shown
from ..exceptions import Fault, FaultToleranceDefinitionException, definition_error, raise_faults
from .file_format import PARSERS
from .key import CONFIG_VARIABLE
from .snapshot import File, Inputs
from .source import Entry, Source, entries_of, place, source_of

_ENCODING = "utf-8-sig"
"""UTF-8, with or without the byte order mark that editors of Windows write."""


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


def _foreign(source: Any) -> Source:
    named = type(source) if isinstance(source, PydanticBaseSettingsSource) else source
    name = f"source {getattr(named, '__name__', None) or shown(source)}"
    data = source()
    if not isinstance(data, Mapping):
        raise TypeError("it returns no mapping")
    return source_of(name, 100, entries_of(name, data))


def _file(name: str, absolute: str) -> Source:
    path = Path(absolute)
    words, suffix = f"file {name}", (path.suffix or path.name).lower()
    if path.name.startswith(".env.") and suffix not in PARSERS:
        suffix = ".env"  # its stage follows, as in ``.env.production``
    if suffix not in (".env", *PARSERS):
        allowed = ".properties, .toml, .yaml, .yml, .json or .env"
        raise definition_error(name, "has an unknown format", name, allowed)
    text = path.read_text(encoding=_ENCODING)
    if suffix == ".env":
        return _dotenv(words, text)
    try:
        data, lines = PARSERS[suffix](text)
    except ModuleNotFoundError as error:
        raise definition_error(name, f"cannot be read without {error.name}", None, install("files")) from error
    if not isinstance(data, dict):
        raise TypeError("it contains no mapping")
    if suffix == ".toml":
        data, table = _ours(path, name, data)
        lines = {key.removeprefix(table): line for key, line in lines.items() if key.startswith(table)}
    return source_of(words, 100, entries_of(words, data, lines), is_shared=suffix == ".properties")


def _dotenv(name: str, text: str) -> Source:
    from dotenv import dotenv_values
    from dotenv.parser import parse_stream

    bindings = list(parse_stream(io.StringIO(text)))
    # The message omits the text of the line: it may be a password.
    raise_faults(
        Fault(f"{name} line {binding.original.line}", "cannot be read", None, "NAME=value")
        for binding in bindings
        if binding.error
    )
    lines = {
        binding.key: binding.original.line + _blank_lines(binding.original.string)
        for binding in bindings
        if binding.key is not None
    }
    values = dotenv_values(stream=io.StringIO(text))
    entries = [Entry(key, value, place(name, lines[key])) for key, value in values.items() if value]
    return source_of(name, 295, entries, is_environment=True, is_shared=True)


def _blank_lines(text: str) -> int:
    """Count the blank lines before the statement in *text*."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _ours(path: Path, name: str, data: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the table ``[tool.faulttolerance]`` and its path; a file without it belongs to this library as a whole."""
    tools = data.get("tool")
    if not isinstance(tools, Mapping) or "faulttolerance" not in tools:
        return ({} if path.name == "pyproject.toml" else data), ""
    table = tools["faulttolerance"]
    if not isinstance(table, Mapping):
        where, allowed = f"{name} tool.faulttolerance", "a table: [tool.faulttolerance]"
        raise definition_error(where, f"is {shown(table)}", table, allowed)
    return table, "tool/faulttolerance/"
