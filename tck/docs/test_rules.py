"""Every rule that is cited is defined, and every rule that is defined is kept by a test that cites it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "rules.md"

_NUMBER = r"[A-Z]{1,2}\d{1,2}[a-z]?"
_DEFINED = re.compile(rf"^### ({_NUMBER})$", re.MULTILINE)
# Further letters are also something else (Y2, S3, gRPC's A6): those are cited as "rule S3".
_CITED = re.compile(rf"(?<![\w./#-])(?:(?:[PLRC]|AT|CO|RL)\d{{1,2}}[a-z]?|(?<=\brule ){_NUMBER})(?![\w.(=-])")

RULES = _DEFINED.findall(PAGE.read_text(encoding="utf-8"))


@cache
def cited(*folders: str) -> dict[str, list[str]]:
    """Return the files that cite each rule; read once, for there are many rules."""
    found: dict[str, list[str]] = {}
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".md") and path != PAGE and path != Path(__file__):
                for rule in set(_CITED.findall(path.read_text(encoding="utf-8"))):
                    found.setdefault(rule, []).append(path.relative_to(ROOT).as_posix())
    return found


def test_no_rule_is_defined_twice() -> None:
    assert sorted(set(RULES)) == sorted(RULES)


def test_every_rule_that_is_cited_is_defined() -> None:
    unknown = {
        rule: files for rule, files in cited("faulttolerance", "tck", "docs", "benchmarks").items() if rule not in RULES
    }

    assert not unknown


def test_rules_are_cited_by_the_name_that_their_page_has() -> None:
    misnamed = re.compile(rf"\bcontracts? (?:{'|'.join(RULES)})\b", re.IGNORECASE)
    files = [path for folder in ("faulttolerance", "tck", "docs") for path in (ROOT / folder).rglob("*.py")]

    assert [str(path) for path in files if misnamed.search(path.read_text(encoding="utf-8"))] == []


def test_a_test_cites_each_rule() -> None:
    assert [rule for rule in RULES if rule not in cited("tck")] == []
