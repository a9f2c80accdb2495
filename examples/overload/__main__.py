"""Run the service and its client, once for each way; show what comes of it, and compare it with the promises."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from . import __doc__ as about
from .client import SCHEDULE, Tick, measured
from .picture import svg
from .promises import during, goodput, percentile, promises
from .ways import WAYS

ROOT = Path(__file__).resolve().parents[2]
_HEAD = "  second  offered  came  good  late  failed  requests  still open"


def main() -> int:
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--plain", action="store_true", help="a line for each second, also in a terminal")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="where the plot goes; by default a temporary file")
    options = parser.parse_args()
    logging.getLogger("faulttolerance").setLevel(logging.ERROR)  # thousands of calls give up: what comes of it is shown
    is_live = sys.stdout.isatty() and not options.plain
    with backend() as port:
        capacity = asyncio.run(measured(port, 4.0))
    print(f"the service answers {capacity:.0f} requests per second", flush=True)
    found: dict[str, list[Tick]] = {}
    for way in WAYS:
        print(f"\n{way}\n{_HEAD}", flush=True)
        with backend() as port:
            found[way] = list(watched(port, capacity, way, is_live=is_live))
    plot: Path = options.plot or Path(tempfile.gettempdir()) / "overload.svg"
    plot.write_text(svg(found, capacity), encoding="utf-8")
    summary(found, capacity)
    print(f"\nplot: {plot}\n")
    verdicts = list(promises(found, capacity))
    for promise in verdicts:
        print(f"{'kept  ' if promise.kept else 'BROKEN'} {promise.text} ({promise.measured})")
    return 0 if all(promise.kept for promise in verdicts) else 1


@contextmanager
def child(module: str, *arguments: str) -> Iterator[IO[str]]:
    """Run a module of this package in a process that ends with the block; give what it says."""
    command = [sys.executable, "-m", f"{__package__}.{module}", *arguments]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,  # so that Ctrl-C is left to this process
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.kill()
        process.communicate()


@contextmanager
def backend() -> Iterator[int]:
    """Have a service of our own, as it was never called; give its port."""
    with child("backend") as said:
        yield int(said.readline())


def watched(port: int, capacity: float, way: str, *, is_live: bool) -> Iterator[Tick]:
    """Let the client run, and show its counts: once in a second, or as they come where there is a terminal."""
    second: list[Tick] = []
    with child("client", str(port), str(capacity), way) as said:
        for line in said:
            tick = Tick(**json.loads(line))
            yield tick
            second.append(tick)
            is_over = len(second) == 2
            if is_live or is_over:
                print(f"\r{shown(second)}", end="\n" if is_over else "", flush=True)
            if is_over:
                second = []
    if second:
        print(shown(second), flush=True)


def shown(ticks: list[Tick]) -> str:
    """One line of the table."""
    sums = [sum(getattr(tick, name) for tick in ticks) for name in ("came", "good", "late", "failed", "attempts")]
    last, widths = ticks[-1], (6, 6, 6, 8, 10)
    counts = "".join(f"{total:{width}}" for total, width in zip(sums, widths, strict=True))
    return f"{last.at:8.1f}{SCHEDULE[last.phase][0]:8g}x{counts}{last.open:12}"


def summary(found: dict[str, list[Tick]], capacity: float) -> None:
    """Show for each way what came of each load: the good answers in parts of the capacity, and their p99."""
    head = "".join(f"{f'{load:g}x':>14}" for load, _ in SCHEDULE)
    print(f"\n{'goodput and p99 at':24}{head} (after the rush)")
    for way, ticks in found.items():
        phases = [during(ticks, phase) for phase in range(len(SCHEDULE))]
        cells = [f"{goodput(some, capacity):.2f}, {percentile(some, 0.99) * 1000:.0f} ms" for some in phases]
        print(f"{way:24}" + "".join(f"{cell:>14}" for cell in cells))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nstopped")
        sys.exit(130)
