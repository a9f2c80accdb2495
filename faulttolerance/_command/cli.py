"""The command line: it lists and explains guards, and checks their configuration.

faulttolerance check acme.billing --strict
faulttolerance explain acme.billing.Client.charge
faulttolerance list acme.billing --json
faulttolerance keys acme.billing --format env
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from .._config import settings, template
from .._config.report import Unused
from .._config.snapshot import name_file
from .._control import configure as control
from .._inspection import explanation
from .._shown import did_you_mean, error_text, escaped
from ..exceptions import FaultToleranceDefinitionException
from .lints import codes_of, lint, unknown

app = typer.Typer(
    help="Show and check guards and their configuration.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"faulttolerance {version('faulttolerance')}")
        raise typer.Exit


Modules = Annotated[list[str], typer.Argument(help="Modules to import, as in acme.billing.", metavar="MODULE...")]
Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="Import the submodules of packages, too.")]


Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", exists=True, dir_okay=False, callback=name_file,
        help="A configuration file to read in addition to those of the application.",
    ),
]  # fmt: skip
Version = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_tell_version)
]


class Format(StrEnum):
    """The output formats of ``keys``."""

    TABLE = "table"
    ENV = "env"
    TOML = "toml"
    YAML = "yaml"
    PROPERTIES = "properties"


@app.callback()
def _common(config: Config = None, version: Version = False) -> None: ...


@app.command()
def check(
    modules: Modules,
    recursive: Recursive = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Fail also on unused keys, on listeners of circuits that no guard has, and on doubts.",
        ),
    ] = False,
    config: Config = None,
) -> None:
    """Import modules and report every fault; exit status 1 if there is a fault, or nothing to check."""
    with redirect_stdout(sys.stderr):
        is_whole = _imported(modules, recursive)
        unused = _validated()
        guards = list(control.guards())
        findings = sorted(set(lint(guards, settings.snapshot)), key=lambda one: (one.where, one))
        declared = (one for guard in guards for one in guard._effective.declared)
        unused_codes = unknown(codes_of(settings.snapshot, declared))
    for doubt in (*unused, *unused_codes, *findings):
        _warn(str(doubt))
    if not is_whole:
        raise typer.Exit(1)
    if not guards:
        _warn(f"nothing is guarded in {', '.join(modules)}; --recursive imports the modules of packages, too")
        raise typer.Exit(1)
    is_refused = strict and bool(unused or findings)
    result = "refused by --strict" if is_refused else "nothing wrong"
    typer.echo(f"{result}; guards: {len(guards)}, unused keys: {len(unused)}, doubts: {len(findings)}")
    raise typer.Exit(int(is_refused))


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="A name from list, or as in acme.billing:Client.charge.", metavar="NAME")],
    modules: Annotated[
        list[str] | None, typer.Argument(help="Modules to import besides the one in the name.", metavar="[MODULE]...")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show default values, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    config: Config = None,
) -> None:
    """Show the policies of a function, a guard, or a class's methods, in order, with each value and its source."""
    with redirect_stdout(sys.stderr):
        _import(modules or (), recursive=False)
        explained = _explained_at(name.replace(":", "."), show_all) or [
            explanation.explain_alone(guard._resolver, guard._cls, all=show_all) for guard in control.guards(name)
        ]
    if not explained:
        near = did_you_mean(name.replace(":", "."), [guard.name for guard in control.guards()])
        raise typer.BadParameter(f"no guard has the name {name!r}{near}; name the modules to import after it")
    _print_explained(explained, as_json)


@app.command(name="list")
def list_(
    modules: Modules,
    recursive: Recursive = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    config: Config = None,
) -> None:
    """List every guard with its effective values and their sources."""
    with redirect_stdout(sys.stderr):
        _import(modules, recursive)
        guards = sorted(control.guards(), key=lambda guard: guard.name)
        listed = [explanation.explain_alone(guard._resolver, guard._cls, all=True) for guard in guards]
    _print_explained(listed, as_json)
    with redirect_stdout(sys.stderr):
        _validated()


@app.command()
def keys(
    modules: Modules,
    recursive: Recursive = False,
    how: Annotated[Format, typer.Option("--format", help="A table, or a template to fill in.")] = Format.TABLE,
    config: Config = None,
) -> None:
    """List every key, its environment variable, the value in force, and the declared value."""
    with redirect_stdout(sys.stderr):
        _import(modules, recursive)
        guards = [guard._effective for guard in control.guards()]
        lines = template.key_lines(pair for one in guards for pair in zip(one.declared, one.values, strict=True))
    if how is Format.TABLE:
        rows = [(line.key.name, line.key.variable, line.value, line.default, line.allowed) for line in lines]
        _print_table(("key", "environment variable", "value", "declared", "allowed"), rows)
    else:
        typer.echo("\n".join(template.template(lines, how)))
    with redirect_stdout(sys.stderr):
        _validated()


# The contents of lists


def _explained_at(name: str, show_all: bool) -> list[explanation.Explanation]:
    """Import the modules at the start of *name*, and explain the object in the last of them."""
    parent, target, module, path = None, None, "", name
    while path and _is_module(longer := f"{module}.{path.partition('.')[0]}".removeprefix(".")):
        _import([longer], recursive=False)
        module, target, path = longer, importlib.import_module(longer), path.partition(".")[2]
    try:
        for step in path.split("."):
            parent, target = target, getattr(target, step)
    except AttributeError:
        return []
    return _explained(parent, path.rpartition(".")[2], target, show_all)


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # the parent is no package, or the text is no module name
        return False


def _explained(parent: Any, name: str, target: Any, show_all: bool) -> list[explanation.Explanation]:
    if isinstance(target, type):
        return [one for member in dir(target) for one in _explained(target, member, None, show_all)]
    try:
        return [explanation.explain(parent if isinstance(parent, type) else target, name, all=show_all)]
    except KeyError as error:  # of @apply_guard, whose guard does not exist
        raise typer.BadParameter(*error.args) from None
    except Exception:  # noqa: BLE001  # it is not guarded, or cannot be read
        return []


# Helpers


def _import(modules: Iterable[str], recursive: bool) -> None:
    if not _imported(modules, recursive):
        raise typer.Exit(1)


def _imported(modules: Iterable[str], recursive: bool) -> bool:
    """Import all of *modules* and print their problems; return whether there are none."""
    problems = dict.fromkeys(line for name in modules for line in _problems(name, recursive))
    for line in problems:
        _warn(line)
    return not problems


def _problems(name: str, recursive: bool) -> Iterator[str]:
    """Import a module and, if *recursive*, its submodules; yield the problems. A failure does not stop the others."""
    try:
        module = importlib.import_module(name)
        places = list(getattr(module, "__path__", ())) if recursive else []
        inside = list(pkgutil.iter_modules(places, f"{name}."))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001
        # A module may raise anything. SystemExit from a script must not end the check as if it had passed.
        # Python 3.11 wraps an exception from __set_name__.
        refusal = error if isinstance(error, FaultToleranceDefinitionException) else error.__cause__
        if isinstance(refusal, FaultToleranceDefinitionException):
            yield from map(str, refusal.faults)
            return
        hint = "" if all(map(str.isidentifier, name.split("."))) else "; name a module, as in acme.billing"
        yield f"{name} cannot be imported ({error_text(error)}){hint}"
        return
    packages = {submodule.name for submodule in inside}
    for folder in sorted({file.parent for place in places for file in Path(place).glob("*/*.py")}):
        if f"{name}.{folder.name}" not in packages:  # may hold scripts, which an import would run
            _warn(f"{name}.{folder.name} is left out: {folder} is no regular package")
    for submodule in inside:
        if not submodule.name.endswith(".__main__"):
            yield from _problems(submodule.name, recursive)


def _validated() -> list[Unused]:
    """Return the keys that nothing uses; on a wrong definition, print the faults to stderr and exit."""
    try:
        return control.validate()
    except FaultToleranceDefinitionException as error:
        for fault in error.faults:
            _warn(str(fault))
        raise typer.Exit(1) from None


def _warn(line: str) -> None:
    typer.echo(escaped(line), err=True)


def _print_explained(explained: Iterable[explanation.Explanation], as_json: bool) -> None:
    typer.echo(json.dumps([one.as_dict() for one in explained], indent=2) if as_json else "\n".join(explained))


def _print_table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Print a table, one line for each row."""
    cells = [columns, *(tuple(map(escaped, row)) for row in rows)]  # no control characters reach the terminal
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
