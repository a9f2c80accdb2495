"""The navigation of the site leads to every page, and each page uses Markdown that both its readers understand.

`nox -s site` builds the site strictly; these tests tell in a moment what that would find.
"""

from __future__ import annotations

import ast
import html
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE = ROOT / "mkdocs.yml"

if not SITE.is_file():
    pytest.skip("the site's configuration is not here", allow_module_level=True)

TEXTS = {page.relative_to(DOCS).as_posix(): page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md"))}
PAGES = list(TEXTS)

_ENTRY = re.compile(r"^ +- (?:[^:\n]+: )?([\w/.-]+\.md)$", re.MULTILINE)
_FENCE = re.compile(r"^((?: {4})*)```[^\n`]*\n.*?^\1```$", re.MULTILINE | re.DOTALL)
_GLUED_LIST = re.compile(r"^(?! *(?:[-*|]|\d+\.) )(?!\s*$)(?!#)(?! {2}).*\n(?:[-*]|1\.) .*", re.MULTILINE)
_SHALLOW = re.compile(r"(?:^ {1,3}(?:[-*] |\d+\. |```)|(?<=\n\n) {1,3}\S).*", re.MULTILINE)


def test_every_page_stands_in_the_navigation_once() -> None:
    """A missing page could not be found on the site; an entry without a page would be dead."""
    listed = _ENTRY.findall(SITE.read_text(encoding="utf-8"))

    missing = sorted(set(PAGES) - set(listed))
    gone = sorted(set(listed) - set(PAGES))
    twice = sorted({page for page in listed if listed.count(page) > 1})

    assert not missing, f"add a line for each to `nav:` of mkdocs.yml, where a reader would look: {missing}"
    assert not gone, f"`nav:` of mkdocs.yml names pages that are not there: {gone}"
    assert not twice, f"`nav:` of mkdocs.yml names pages twice: {twice}"


def test_lists_are_lists_for_every_reader() -> None:
    """The site's Markdown needs a blank line above a list, and four spaces before a list in another."""
    texts = {page: _FENCE.sub("", text) for page, text in TEXTS.items()}

    glued = {page: found for page, text in texts.items() if (found := _GLUED_LIST.findall(text))}
    shallow = {page: found for page, text in texts.items() if (found := _SHALLOW.findall(text))}

    assert glued == {}, "put a blank line above the list"
    assert shallow == {}, "indent what stands in a list by four spaces"


def test_the_pages_are_short_enough_to_be_read() -> None:
    """80,000 words in all, with code and tables; 65,000 on the pages that are not for contributors."""
    pages = [*TEXTS.values()]
    pages.append((ROOT / "README.md").read_text(encoding="utf-8"))
    words = {page: len(page.split()) for page in pages}

    assert sum(words.values()) <= 80_000
    assert sum(count for page, count in words.items() if "\nThis page is for contributors" not in page) <= 65_000


def test_pictures_are_files_of_ours() -> None:
    """Mermaid would need a script from elsewhere; an SVG beside the page needs nothing."""
    assert [page for page, text in TEXTS.items() if "```mermaid" in text] == []


def test_a_page_begins_with_its_title() -> None:
    """The site takes the title from the first line, or else from the file's name."""
    bodies = {page: re.sub(r"\A---\n.*?\n---\n+", "", text, flags=re.DOTALL) for page, text in TEXTS.items()}

    assert [page for page, body in bodies.items() if not body.startswith("# ")] == []


def test_words_of_the_reference_lead_the_search_to_its_pages() -> None:
    """Each word stands on dozens of pages more often than on the page that explains it."""
    tree = ast.parse((DOCS / "theme" / "hooks.py").read_text(encoding="utf-8"))
    (words,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.AnnAssign | ast.Assign) and node.value and ast.unparse(node).startswith("_SEARCHED = ")
    )
    leads_to = {word: name for name, several in words.items() for word in several.split()}

    assert [name for name in words if f"reference/{name}.md" not in PAGES] == []
    assert {word: leads_to[word] for word in ("retry", "jitter", "backoff", "deadline", "rate", "limit")} == {
        "retry": "retry",
        "jitter": "retry",
        "backoff": "retry",
        "deadline": "deadline",
        "rate": "rate-limit",
        "limit": "rate-limit",
    }
    assert len(leads_to) == sum(len(several.split()) for several in words.values())


@pytest.mark.parametrize("picture", sorted(DOCS.rglob("*.svg")), ids=lambda picture: picture.name)
def test_texts_of_a_picture_end_within_it(picture: Path) -> None:
    """This holds in a wide font, too, for texts of 12 px at their place in the file."""
    drawn = picture.read_text(encoding="utf-8")
    width = float(re.findall(r'viewBox="0 0 ([\d.]+) ', drawn)[0])

    texts = re.findall(r'<text x="([\d.]+)" y="[\d.]+">([^<]+)</text>', drawn)

    assert [text for x, text in texts if float(x) + 7.3 * len(html.unescape(text)) > width] == []
