"""The surroundings in which applications run: servers, workers, event loops and test tools of other projects.

The tests try the library beside tools that patch, replace or stop its foundations: greenlets that are switched under
their thread, clocks that stand still, a main thread blocked in a C library, loops that are not asyncio's, servers
that fork, a second life of the application in one process.

- One file for each of them; the packages are in the extra ``test-optional``.
- Most tests run a program of their own, by ``kit.surroundings.run``: their subject is the order of imports and
  patches, and a program that hangs must not hang the run. ``kit.surroundings.gunicorn`` serves.
- Public names only, as an application would use them.
- Time is real here: assertions on seconds allow an order of magnitude.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_FOLDER = str(Path(__file__).parent)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set a time-out that lets programs report that they hang, also on a busy machine."""
    for item in items:
        if str(item.path).startswith(_FOLDER):
            item.add_marker(pytest.mark.timeout(200))
