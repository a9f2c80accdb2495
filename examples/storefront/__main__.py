"""A shop under load while its backend fails: the same traffic with guards and without.

    python examples/storefront [--plain] [--workers gevent] [--share 0.7] [--record FILE]

It takes about 15 seconds; the exit status is 0 only if the guarded service kept its promises (`promises.py`).

Some values come from `storefront.toml`, and one from an environment variable that the run itself sets unless it is set:
`SERVICE_STOREFRONT_STOCK_RETRY_MAXRETRIES`. Try another one.

With `--workers` the service runs behind gunicorn, in workers of that kind (`served.py`). What `--record` keeps is drawn
by `picture.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from textwrap import fill

from backend import END, Ledger, spell_at
from figures import figures
from history import PATIENCE, record
from promises import Outcome, promises
from rich.console import Console
from rich.text import Text
from supervisor import Supervisor
from traffic import Traffic
from view import summary, view

from faulttolerance import configure, guards, validate

SETTINGS = Path(__file__).with_name("storefront.toml")
VARIABLE = "SERVICE_STOREFRONT_STOCK_RETRY_MAXRETRIES"

LEAD = 1.0
"""Seconds that the backend has to come up before the first customer."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plain", action="store_true", help="a plain log, also in a terminal")
    parser.add_argument(
        "--workers", metavar="CLASS", help="serve by gunicorn, with workers of this class: gevent, gthread"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, metavar="PART", help="of the usual traffic; less for a busy machine"
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep the history of the run, as JSON")
    options = parser.parse_args()
    console = Console()
    os.environ.setdefault(VARIABLE, "1")
    configure(files=[SETTINGS])
    settings(console)
    try:
        with tempfile.TemporaryDirectory() as folder:
            live = console.is_terminal and not options.plain
            outcome = run(console, Path(folder) / "ledger.db", options.workers, options.share, live=live)
    except KeyboardInterrupt:
        console.print("stopped")
        os._exit(130)  # customers are still being served, on threads that a plain exit would wait for
    summary(console, outcome.guarded, outcome.unguarded)
    if options.record:
        record(options.record, outcome.guarded.history, outcome.unguarded.history)
    verdicts = list(promises(outcome))
    console.print()
    for promise in verdicts:
        mark, style = ("kept  ", "green") if promise.kept else ("BROKEN", "bold red")
        text = fill(f"{mark} {promise.text} ({promise.measured})", console.width - 1, subsequent_indent=" " * 7)
        console.print(Text.assemble((mark, style), text.removeprefix(mark)), soft_wrap=True)
    return 0 if all(promise.kept for promise in verdicts) else 1


def settings(console: Console) -> None:
    """Say what is not as `service.py` has it, and where it comes from."""
    validate()
    for guard in guards():
        for key, (value, source) in guard.values.items():
            if source not in ("default", "decorator"):
                place = source.partition(" in ")[2].replace(str(SETTINGS), SETTINGS.name)
                shown = f"{value.total_seconds():g} s" if isinstance(value, timedelta) else value
                console.print(f"{guard.name.rpartition('.')[2]} {key} = {shown}", highlight=False)
                console.print(f"    [dim]{place}[/dim]", highlight=False, soft_wrap=True)
    console.print()


def run(console: Console, database: Path, workers: str | None, share: float, *, live: bool) -> Outcome:
    """Let customers come to both services until the timetable ends, and all are served."""
    supervisor = Supervisor(database)
    with contextlib.ExitStack() as running:
        read, guarded = figures, Traffic(supervisor.address, guarded=True)
        if workers is not None:
            from served import ServedTraffic, Server

            server = Server(workers, supervisor.address)
            running.enter_context(server.running())
            read, guarded = server.figures, ServedTraffic(supervisor.address, server.address)
        unguarded = Traffic(supervisor.address, guarded=False, kinds=guarded.kinds)
        begin = time.monotonic() + LEAD
        running.enter_context(supervisor.running(begin))
        for one in (guarded, unguarded):
            one.start(begin, END, share)
        with view(console, guarded, unguarded, read, live=live) as show:
            served = False
            while not served:
                time.sleep(0.1)
                served = guarded.is_over and unguarded.is_over
                seconds = max(0.0, time.monotonic() - begin)
                known = max(seconds, END + PATIENCE) if served else seconds
                show(known, spell_at(seconds).name)
        counted = read()
    ledger = Ledger(str(database))
    return Outcome(
        guarded, unguarded, counted, supervisor.crashes, orders=ledger.keys("orders"), mails=ledger.keys("mails")
    )


if __name__ == "__main__":
    sys.exit(main())
