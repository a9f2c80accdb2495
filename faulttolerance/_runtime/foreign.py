"""Event loops that are none of asyncio's: what has to wait there says so before it begins."""

from __future__ import annotations

import sys

from ..exceptions import FaultToleranceException

__all__ = ["refuse_trio"]


def refuse_trio(what: str) -> None:
    """Refuse to wait in a task of trio, where nothing that asyncio can wait for may be awaited.

    Args:
        what: What has to wait.

    Raises:
        FaultToleranceException: The running task is trio's.
    """
    in_trio_task = getattr(getattr(sys.modules.get("trio"), "lowlevel", None), "in_trio_task", None)
    if in_trio_task is not None and in_trio_task():
        raise FaultToleranceException(f"{what} needs asyncio, and was called in a task of trio")
