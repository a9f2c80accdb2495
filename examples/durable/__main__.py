"""Place orders, kill the processes that work on them, and compare the end with the promises."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from . import __doc__ as about
from .server import running, what_is_missing


def main() -> int:
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--postgres", action="store_true", help="PostgreSQL instead of SQLite, on a server of its own")
    parser.add_argument("--kills", type=int, default=20, help="kills at random moments, after one at each step")
    parser.add_argument("--seed", type=int, help="of the random moments; another one each time by default")
    options = parser.parse_args()
    if missing := what_is_missing(postgres=options.postgres):
        print(missing, file=sys.stderr)
        return 2
    from .promises import promises
    from .shop import DATABASE
    from .stage import Demonstration

    seed = random.randrange(10_000) if options.seed is None else options.seed
    with contextlib.ExitStack() as until_the_end:
        folder = Path(until_the_end.enter_context(tempfile.TemporaryDirectory(dir=memory(), prefix="durable")))
        url = os.environ.get(DATABASE) or f"sqlite:///{folder}/durable.sqlite"
        if options.postgres:
            url = until_the_end.enter_context(running())
        print(f"on {'SQLite' if url.startswith('sqlite') else 'PostgreSQL'}, with the seed {seed}", flush=True)
        record = Demonstration(url, folder, random.Random(seed), until_the_end).run(options.kills)
    print()
    verdicts = list(promises(record))
    for promise in verdicts:
        print(f"{'kept  ' if promise.kept else 'BROKEN'} {promise.text} ({promise.measured})")
    return 0 if all(promise.kept for promise in verdicts) else 1


def memory() -> str | None:
    """Return a folder in memory, if there is one: a killed process loses no file there, and a disk is slower."""
    shared = "/dev/shm"
    return shared if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 100_000_000 else None


if __name__ == "__main__":
    for ending in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(ending, signal.default_int_handler)  # so that the servers end with this process
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nstopped")
        sys.exit(130)
