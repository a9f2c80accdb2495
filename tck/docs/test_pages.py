"""The code on the pages runs, and their links lead somewhere.

In a page, a block marked `pycon` is a doctest. A block marked `python` runs in the pages that a reader follows with the
keyboard (README, tutorial, how-to), each page as one module; elsewhere it need only be Python. `python no-run` exempts.
`python old` is code of the library from which a page on migration moves, `python new` what takes its place.
A page that cannot do without an optional package says so by `<!-- needs wrapt -->`.
"""

from __future__ import annotations

import ast
import doctest
import re
import sys
import warnings
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import MethodType, ModuleType

import pytest

from faulttolerance import Guard, guards
from faulttolerance._command.lints import lint
from faulttolerance._config import settings
from faulttolerance.testing import reset

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FOLLOWED = [ROOT / "README.md", ROOT / "docs" / "tutorial", ROOT / "docs" / "how-to"]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_NEEDS = re.compile(r"^<!-- needs (\w+) -->$", re.MULTILINE)
_LINK = re.compile(r"\]\((?P<path>[^)\s#]*)(?:#(?P<anchor>[^)\s]+))?\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[tuple[str, str, int]]:
    """Yield the kind, the code and the line of each fenced block."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        indent = len(found["indent"])
        code = "".join(line[indent:] for line in found["code"].splitlines(keepends=True))
        yield found["info"].strip(), code, text.count("\n", 0, found.start()) + 1


def anchors(page: Path) -> set[str]:
    """Return the names of the headings for links behind the #, spelled as GitHub does."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


@pytest.fixture
def module(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Yield a module for the page, in which fallback methods of plain functions are looked up."""
    page = request.getfixturevalue("page")
    name = re.sub(r"\W", "_", named(page))
    module = sys.modules[name] = module_from_spec(ModuleSpec(name, SourceFileLoader(name, str(page))))
    before = made()
    yield module
    del sys.modules[name]
    for guard in made() - before:
        guard.close()  # other tests may want its name
    for value in vars(module).values():
        if isinstance(dispose := getattr(value, "dispose", None), MethodType):
            dispose()  # an engine of SQLAlchemy, whose connections would be left open
    vars(module).clear()
    reset()  # and no sink or key of the page


def made() -> set[Guard]:
    """Return the guards that exist, wherever a page keeps them."""
    return {one.method for one in guards() if isinstance(one.method, Guard)}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_code_in_pages_runs(page: Path, module: ModuleType) -> None:
    """A reader can type every example as it stands, and gets the output on the page."""
    for module_name in _NEEDS.findall(page.read_text(encoding="utf-8")):
        pytest.importorskip(module_name)
    followed = any(page.is_relative_to(part) for part in FOLLOWED)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []

    for info, code, line in blocks(page):
        kind, *options = info.split() or [""]
        if kind == "pycon":
            test = doctest.DocTestParser().get_doctest(code, module.__dict__, named(page), str(page), line)
            test.globs = module.__dict__  # not the copy: the next block goes on where this one ends
            runner.run(test, out=said.append, clear_globs=False)
        elif kind == "python":
            # Blank lines in front make the lines of a traceback those of the page.
            flags = 0 if followed else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            compiled = compile("\n" * line + code, str(page), "exec", flags=flags, dont_inherit=True)
            if followed and "no-run" not in options:
                with warnings.catch_warnings():
                    if "old" in options:  # another library's, from which a page moves
                        warnings.simplefilter("ignore", DeprecationWarning)
                    exec(compiled, module.__dict__)

    assert runner.failures == 0, "".join(said)
    assert [*doubted(page, module)] == []


def doubted(page: Path, module: ModuleType) -> Iterator[str]:
    """Yield the doubts of `check` about the guards of a page: readers copy them (rule M4)."""
    own = [one for one in guards() if one.name.startswith(module.__name__) or one.method in vars(module).values()]
    # A user who moves here retries and counts the failures of before, which may have been all of them.
    ignored = ["FT002", "FT012", "FT013"] if page.parent.name == "migrate" else []
    yield from (str(one) for one in lint(own, settings.snapshot) if one.code not in ignored)


def test_relative_links_lead_somewhere() -> None:
    """A link within the project names a file that exists, and a heading in it."""
    assert {named(page): broken for page in PAGES if (broken := list(broken_links(page)))} == {}


def broken_links(page: Path) -> Iterator[str]:
    for found in _LINK.finditer(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", found["path"]):
            continue
        target = (page.parent / found["path"]).resolve() if found["path"] else page
        missing_anchor = found["anchor"] and target.suffix == ".md" and target.is_file()
        if not target.exists() or (missing_anchor and found["anchor"] not in anchors(target)):
            yield found[0]
