"""The needs of an installation, and the messages that name a missing one (rule M6)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def extras_named() -> set[str]:
    """Return the extras that messages of the package name."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "faulttolerance").rglob("*.py")]
    return {name for text in texts for name in re.findall(r"\binstall\(['\"](\w+)['\"]\)", text)}


def test_the_core_needs_one_package() -> None:
    """Rule M6."""
    assert [re.split(r"[>=<]", one)[0] for one in PROJECT["dependencies"]] == ["pydantic-settings"]


def test_messages_name_extras_that_there_are() -> None:
    """Rule M6: the extra `all` has each extra for users."""
    users = {"files", "cli", "prometheus", "opentelemetry", "patch", "redis"}

    assert extras_named() == {"files", "cli", "opentelemetry", "patch", "redis"}
    assert users | {"all"} <= set(PROJECT["optional-dependencies"])
    [everything] = PROJECT["optional-dependencies"]["all"]
    assert set(re.findall(r"\w+", everything.partition("[")[2])) == users


def test_the_page_on_installing_names_the_extras() -> None:
    """Rule M6: each extra has a row."""
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")

    assert all(f"`{name}`" in page for name in ("files", "cli", "prometheus", "opentelemetry", "patch", "redis", "all"))


def test_there_is_a_script() -> None:
    """Rule M6: shells can complete its commands."""
    assert PROJECT["scripts"] == {"faulttolerance": "faulttolerance.__main__:main"}
