"""The surroundings in which applications really run: servers, workers, event loops and test tools of other people.

What is promised elsewhere is tried here beside those who patch, replace or stop what a library stands on: greenlets
that are switched under their thread, clocks that stand still, a main thread blocked in somebody's C library, loops that
are none of asyncio's, servers that fork, a second life of the application in one process.

- One file for each of them; the packages are in the extra ``test-optional``.
- Most tests run a program of their own, by ``kit.surroundings.run``: what was imported first, and what was patched
  before that, is what they are about, and what hangs must not hang the run. ``kit.surroundings.gunicorn`` serves.
- Public names only, as an application would use them.
- Time is real here. So nothing is asserted on seconds but what differs by an order of magnitude.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_FOLDER = str(Path(__file__).parent)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the programs of a test the time to say themselves that they hang, also on a busy machine."""
    for item in items:
        if str(item.path).startswith(_FOLDER):
            item.add_marker(pytest.mark.timeout(200))
