"""What mkdocs does on top of `mkdocs.yml`: pages of the API, links to files that are not pages, code that pages mark.

The pages are written for whoever reads them in the repository; what only the site needs is put there here.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "faulttolerance"
ROOMS = [ROOT / PACKAGE, ROOT / PACKAGE / "integrations"]
"""Where public modules stand; other folders keep theirs to themselves."""

_FENCE = re.compile(r"^( *)```[^\n`]*\n.*?^\1```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"^( *```python) (no-run|old|new)(?: sync)?(?= title=|$)", re.MULTILINE)
_TITLES = {"no-run": "", "old": ' title="before"', "new": ' title="after"'}
"""What a reader sees of a mark that is there for the tests."""
_SEARCHED = {
    "retry": "retry backoff back-off jitter exponential fibonacci exponential_backoff fibonacci_backoff custom_backoff"
    " retry_when honor_retry_after before_retry",
    "retry-budget": "budget retry_budget",
    "timeout": "timeout time-out",
    "deadline": "deadline",
    "circuit-breaker": "circuit breaker circuit_breaker circuit_breaker_name fail_when",
    "bulkhead": "bulkhead concurrency",
    "rate-limit": "rate limit rate_limit",
    "adaptive-throttle": "throttle adaptive_throttle",
    "fallback": "fallback",
    "hedge": "hedge",
    "asynchronous": "asynchronous asynchronous_non_blocking",
    "coalesce": "coalesce",
    "partition-by": "partition partition_by",
    "fleet-wide": "fleet_wide fleet-wide",
}
"""The words that lead the search to a page of the reference first; elsewhere they stand more often."""
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]+)\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]+)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give the section "API" of the navigation one page for each public module, and versions a menu."""
    for section in config.nav or []:
        if "API" in section:
            section["API"] = [{_short(module): _page_of(module)} for module in public_modules()]
    if "MIKE_DOCS_VERSION" in os.environ:  # what mike builds stands beside others
        config.extra["version"] = {"provider": "mike", "alias": True}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the API: what they say stands in docstrings."""
    for module in public_modules():
        text = f"---\ntitle: {module}\n---\n\n# {module}\n\n::: {module}\n"
        files.append(File.generated(config, _page_of(module), content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show code as code, whether it is run or not, and lead links out of the site to the repository."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    room, _, name = page.file.src_uri.removesuffix(".md").rpartition("/")
    if room == "reference" and name in _SEARCHED:
        page.meta["tags"] = _SEARCHED[name].split()
    markdown = _MARK.sub(lambda mark: mark[1] + _TITLES[mark[2]], markdown)
    shown, end = [], 0
    for fence in _FENCE.finditer(markdown):
        shown += [_outward(markdown[end : fence.start()], page, config), fence[0]]
        end = fence.end()
    return "".join([*shown, _outward(markdown[end:], page, config)])


def public_modules() -> list[str]:
    """The modules whose names may be relied on, as an import spells them; the package itself first."""
    return sorted(module for folder in ROOMS for module in _public_modules(folder))


def _public_modules(folder: Path) -> Iterator[str]:
    for path in (*folder.glob("*.py"), *folder.glob("*/__init__.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part.startswith("_") for part in module) and _promises(path):
            yield ".".join(module)


def _promises(path: Path) -> bool:
    """Whether the file at *path* assigns `__all__`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" for node in tree.body)


def _page_of(module: str) -> str:
    return "api/index.md" if module == PACKAGE else f"api/{_short(module)}.md"


def _short(module: str) -> str:
    return module.removeprefix(f"{PACKAGE}.")


def _outward(text: str, page: Page, config: MkDocsConfig) -> str:
    """Let links to files of the repository lead there, or be the path alone where nobody said where it is."""

    def link(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), found["path"]))
        if path.startswith("docs/"):
            return found[0]
        if not (ROOT / path).exists():
            return found[0]  # for mkdocs to complain of
        if config.repo_url:
            kind = "tree" if (ROOT / path).is_dir() else "blob"
            return f"[{found['text']}]({config.repo_url.rstrip('/')}/{kind}/{_ref()}/{path}{found['anchor'] or ''})"
        return found["text"] if path in found["text"] else f"{found['text']} (`{path}`)"

    return _LINK.sub(link, text)


def _ref() -> str:
    """The branch or tag whose files are shown."""
    return os.environ.get("REPO_REF", "main")
