"""The links that an index of packages shows lead somewhere, and a program can ask for the version."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import faulttolerance

ROOT = Path(__file__).resolve().parents[2]
HOOK = ROOT / ".ci" / "metadata.py"

if not HOOK.is_file():
    pytest.skip("what is built is not here", allow_module_level=True)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the hook without hatchling, which is installed only where the package is built."""
    interface: Any = ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = object
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("metadata_of_the_project", HOOK)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(hook: ModuleType) -> SimpleNamespace:
    metadata: dict[str, Any] = {}
    hook.Shown().update(metadata)
    return SimpleNamespace(text=metadata["readme"]["text"], urls=metadata["urls"])


def test_no_link_of_the_long_description_is_relative(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each link leads to the file in the repository, and a browser can show the picture."""
    monkeypatch.setenv("REPO_URL", "https://code.example/faulttolerance/")
    monkeypatch.setenv("REPO_REF", "v1.0.0")

    found = shown(hook)

    targets = re.findall(r"\]\(([^)\s]+)", found.text)
    assert len(targets) > 70
    assert [target for target in targets if not target.startswith("https://")] == []
    assert "https://code.example/faulttolerance/raw/v1.0.0/docs/pictures/storefront.svg" in targets
    assert "https://code.example/faulttolerance/tree/v1.0.0/examples/storefront" in targets
    assert "https://code.example/faulttolerance/blob/v1.0.0/docs/reference/retry.md" in targets
    assert found.urls["Source"] == "https://code.example/faulttolerance/tree/v1.0.0"
    assert found.urls["Issues"] == "https://code.example/faulttolerance/issues"


def test_without_an_address_of_the_source_no_link_is_dead(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link within the repository becomes its text, code stays as it is, and links elsewhere stay links."""
    monkeypatch.delenv("REPO_URL", raising=False)

    found = shown(hook)

    targets = re.findall(r"\]\(([^)\s]+)", found.text)
    assert [target for target in targets if not target.startswith("https://")] == []
    assert "storefront.svg" not in found.text
    assert "| `@retry` | calls again what failed; which failures is yours to say |" in found.text
    assert [*found.urls] == ["Specification"]


def test_the_project_names_its_authors() -> None:
    """An index shows the authors; the build makes the fields that depend on the place of publication."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["authors"]
    assert project["dynamic"] == ["readme", "urls"]


def test_a_program_can_ask_for_the_version() -> None:
    """The version has the name that other packages use, and is looked up when it is asked for."""
    assert faulttolerance.__version__ == version("faulttolerance")
    assert "__version__" in dir(faulttolerance)


def test_a_copy_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools ask by `getattr(module, "__version__", None)`, and get None."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", [])

    assert getattr(faulttolerance, "__version__", None) is None
