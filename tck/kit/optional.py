"""Packages that only some installations have."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["needs_reader_of"]

_READERS = {".properties": "javaproperties", ".yaml": "yaml", ".yml": "yaml"}


def needs_reader_of(file: str | Path) -> None:
    """Skip a test where nothing is installed that reads the format of *file*."""
    if reader := _READERS.get(Path(file).suffix):
        pytest.importorskip(reader)
