"""The command line: what is guarded, how it is configured, and whether the configuration is right.

python -m faulttolerance check acme.billing --strict
python -m faulttolerance explain acme.billing:Client.charge
python -m faulttolerance list acme.billing --json
python -m faulttolerance keys acme.billing --format properties
"""

from __future__ import annotations

import difflib
import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ._config import Declared, Effective, Key, Switches, enabled_keys, ignore_keys, parameter_keys, settings
from ._config.formatting import formatted
from ._config.key import SWITCHES, switch_key
from ._config.report import Unused
from ._guard import control, explanation
from ._guard.doubt import codes_of, doubts, unknown
from ._policy import parameters
from ._shown import ends_the_caller, escaped, told
from .exceptions import FaultToleranceDefinitionException

app = typer.Typer(
    name="python -m faulttolerance",
    help="Show and check what is guarded and how it is configured.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Modules = Annotated[list[str], typer.Argument(help="Modules to import, as in acme.billing.", metavar="MODULE...")]
Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="Import the submodules of packages, too.")]


class Format(StrEnum):
    """The forms in which ``keys`` writes."""

    TABLE = "table"
    PROPERTIES = "properties"
    TOML = "toml"


@app.command()
def check(
    modules: Modules,
    recursive: Recursive = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail on keys that nothing uses and on doubts, too.")
    ] = False,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", help="Doubts not to tell of, as in FT002.", metavar="CODE")
    ] = None,
) -> None:
    """Import modules and report everything that is wrong; exit status 1 if anything is, or nothing was checked."""
    ignored = {code.strip().upper() for one in ignore or () for code in one.split(",")}
    if wrong := next(unknown(ignored), ""):
        raise typer.BadParameter(wrong, param_hint="--ignore")
    with _apart():
        is_whole = _imported(modules, recursive)
        unused = _validated()
        guards = list(control.guards())
        doubtful = sorted(set(doubts(guards, settings.snapshot, ignored)), key=lambda one: (one.where, one))
        keys = (key for guard in guards for declared in guard._effective.declared for key in ignore_keys(declared))
        unused_codes = list(unknown(codes_of(settings.snapshot, keys)))
    for doubt in (*unused, *unused_codes, *doubtful):
        _warn(str(doubt))
    if not is_whole:
        raise typer.Exit(1)
    if not guards:
        _warn(f"nothing is guarded in {', '.join(modules)}; --recursive imports the modules of packages, too")
        raise typer.Exit(1)
    typer.echo(f"nothing wrong; guards: {len(guards)}, unused keys: {len(unused)}, doubts: {len(doubtful)}")
    if strict and (unused or doubtful):
        raise typer.Exit(1)


@app.command()
def explain(
    target: Annotated[str, typer.Argument(help="As in acme.billing:Client.charge.", metavar="MODULE:NAME")],
    show_all: Annotated[bool, typer.Option("--all", help="Show what is as by default, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Show the policies of a function, or of a class's methods, in order, each value and where it came from."""
    module, colon, path = target.partition(":")
    if not colon or not path:
        raise typer.BadParameter(f"{target!r} is not MODULE:NAME, as in acme.billing:Client.charge")
    *outer, name = path.split(".")
    with _apart():
        _import([module], recursive=False)
        parent: Any = importlib.import_module(module)
        for step in outer:
            parent = _member(parent, step, target)
        explained = _explained(parent, name, _member(parent, name, target), show_all)
    if not explained:
        raise typer.BadParameter(f"{target!r} is not guarded")
    typer.echo(json.dumps([one.as_dict() for one in explained], indent=2) if as_json else "\n".join(explained))


@app.command(name="list")
def list_(
    modules: Modules,
    recursive: Recursive = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """List every guard with its effective values and their sources."""
    with _apart():
        _import(modules, recursive)
        guards = sorted(control.guards(), key=lambda guard: guard.name)
        listed = [explanation.dict_of(guard._effective) for guard in guards]
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
    else:
        rows = [(guard.name, *row) for guard in guards for _, effective in _resolved(guard) for row in _rows(effective)]
        _print_table(("guard", "parameter", "value", "source"), rows)
    with _apart():
        _validated()


@app.command()
def keys(
    modules: Modules,
    recursive: Recursive = False,
    how: Annotated[Format, typer.Option("--format", help="A table, or a template to fill in.")] = Format.TABLE,
) -> None:
    """List every key that could be set, its environment variable, the value that holds, and the declared one."""
    with _apart():
        _import(modules, recursive)
        lines = _keys(pair for guard in control.guards() for pair in _resolved(guard))
    if how is Format.TABLE:
        rows = [(line.key.name, line.key.variable, line.value, line.default, line.allowed) for line in lines]
        _print_table(("key", "environment variable", "value", "declared", "allowed"), rows)
    else:
        typer.echo("\n".join(_template(lines, how)))
    with _apart():
        _validated()


# What is listed


@dataclass
class _Line:
    """One key, and what all guards that it reaches say of it."""

    key: Key
    allowed: str
    values: set[str] = field(default_factory=set)
    defaults: set[str] = field(default_factory=set)

    @property
    def value(self) -> str:
        return _common(self.values)

    @property
    def default(self) -> str:
        return _common(self.defaults)


def _common(values: set[str]) -> str:
    return next(iter(values)) if len(values) == 1 else "(several)"


def _keys(resolved: Iterable[tuple[Declared, Effective]]) -> list[_Line]:
    """List every key once, the global ones last."""
    lines: dict[str, _Line] = {}

    def add(key: Key, allowed: str, value: object, default: object) -> None:
        line = lines.setdefault(key.name, _Line(key, allowed))
        line.values.add(formatted(value))
        line.defaults.add(formatted(default))

    for declared, effective in resolved:
        for name, parameter in parameters(declared.policy).items():
            for key in parameter_keys(declared, name):
                value, default = getattr(effective.policy, name), getattr(declared.policy, name)
                add(key, parameter.configurable, value, default)
        for key in enabled_keys(declared):
            add(key, "true or false", effective.enabled, True)
    try:
        switches = settings.switches
    except FaultToleranceDefinitionException:  # reported in the end, with everything else
        switches = Switches()
    for name, value, default in zip(SWITCHES, switches, Switches(), strict=True):
        add(switch_key(name), "true or false" if isinstance(default, bool) else "an integer", value, default)
    return sorted(lines.values(), key=lambda line: not line.key.has_class or line.key.name in SWITCHES)


def _resolved(guard: control.GuardedMethod) -> Iterator[tuple[Declared, Effective]]:
    effective = guard._effective
    return zip(effective.declared, effective.values, strict=True)


def _member(parent: Any, name: str, target: str) -> Any:
    try:
        return getattr(parent, name)
    except AttributeError:
        near = difflib.get_close_matches(name, dir(parent), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise typer.BadParameter(f"{target!r}: there is no {name}{hint}") from None


def _explained(parent: Any, name: str, target: Any, show_all: bool) -> list[explanation.Explanation]:
    if isinstance(target, type):
        return [one for member in dir(target) for one in _explained(target, member, None, show_all)]
    try:
        of = (parent, name) if isinstance(parent, type) else (target,)
        return [explanation.explain(*of, all=show_all)]
    except (AttributeError, ValueError):
        return []


def _rows(effective: Effective) -> Iterator[tuple[str, str, str]]:
    """Give key, value and source of each parameter."""
    policy, sources = effective.policy, effective.sources
    annotation = policy.annotation
    if not effective.enabled:
        yield f"{annotation}/enabled", "false", sources.get("enabled", "MP_Fault_Tolerance_NonFallback_Enabled")
    elif not parameters(policy):
        yield annotation, "", sources.get("enabled", "decorator")
    else:
        for name, parameter in parameters(policy).items():
            yield f"{annotation}/{parameter.key}", formatted(getattr(policy, name)) or "none", sources[name]


def _template(lines: Iterable[_Line], how: Format) -> Iterator[str]:
    """Write a file in which every key is commented out, with the value that holds now."""
    spelled = _spelled_in_toml if how is Format.TOML else _spelling_of_properties()
    for line in lines:
        yield f"# {line.allowed}; declared: {line.default or 'nothing'}; variable: {line.key.variable}"
        yield f"#{spelled(line.key.name, '' if line.value == '(several)' else line.value)}"
        yield ""


def _spelled_in_toml(key: str, value: Any) -> str:
    return f"{json.dumps(key, ensure_ascii=False)} = {json.dumps(value, ensure_ascii=False)}"


def _spelling_of_properties() -> Callable[[str, Any], str]:
    try:
        from javaproperties import join_key_value
    except ImportError as error:
        _warn(f"the format {Format.PROPERTIES} needs {error.name}: pip install 'faulttolerance[config]'")
        raise typer.Exit(1) from error
    return partial(join_key_value, separator="=")


# Help


@contextmanager
def _apart() -> Iterator[None]:
    """Send what modules print while they are imported, and their subprocesses and C code, where messages go."""
    with redirect_stdout(sys.stderr), ExitStack() as stack:
        with suppress(OSError):
            kept = os.dup(1)
            stack.callback(os.close, kept)
            os.dup2(2, 1)
            stack.callback(os.dup2, kept, 1)
            stack.callback(_flush)
        yield


def end_output() -> None:
    """Let modules print apart also what they print when the process ends."""
    with suppress(OSError):
        _flush()
        os.dup2(2, 1)
        sys.stdout = sys.stderr


def _flush() -> None:
    if sys.__stdout__ is not None and not sys.__stdout__.closed:
        sys.__stdout__.flush()


def _import(modules: Iterable[str], recursive: bool) -> None:
    if not _imported(modules, recursive):
        raise typer.Exit(1)


def _imported(modules: Iterable[str], recursive: bool) -> bool:
    """Import all of *modules*, and warn of what is wrong with each; true if nothing is."""
    problems = dict.fromkeys(line for name in modules for line in _problems(name, recursive))
    for line in problems:
        _warn(line)
    return not problems


def _problems(name: str, recursive: bool) -> Iterator[str]:
    """Import a module, and what is in it if it is a package; one that fails does not keep the others from it."""
    try:
        module = importlib.import_module(name)
        inside = list(pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}.")) if recursive else []
    except BaseException as error:
        # A module may raise anything. One that ends the program, a script, must not end the check as passed.
        if ends_the_caller(error):
            raise
        cause = error.__cause__ if isinstance(error, RuntimeError) else None
        for refusal in (error, cause):  # Python 3.11 wraps what __set_name__ raises
            if isinstance(refusal, FaultToleranceDefinitionException):
                yield from map(str, refusal.faults)
                return
        yield f"{name} cannot be imported ({told(error)})"
        return
    for submodule in inside:
        if not submodule.name.endswith(".__main__"):
            yield from _problems(submodule.name, recursive)


def _validated() -> list[Unused]:
    """Give the keys that nothing uses; if anything is wrong, say it on the error output and end."""
    try:
        return control.validate()
    except FaultToleranceDefinitionException as error:
        for fault in error.faults:
            _warn(str(fault))
        raise typer.Exit(1) from None


def _warn(line: str) -> None:
    typer.echo(escaped(line), err=True)


def _print_table(columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> None:
    """Print a table as wide as the terminal, or, for other programs, as wide as it takes: one row is one line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(escaped(cell)) for cell in row))  # nothing in it is markup, nor meant for the terminal
    console = Console()
    if not console.is_terminal:
        unlimited = Console(width=100_000)
        console = Console(width=max(1, Measurement.get(unlimited, unlimited.options, table).maximum))
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())
