"""Run the shop and a Prometheus that watches it; ask what the dashboard and the rules ask; compare."""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from . import __doc__ as about
from .expectations import MAY, OUGHT, Record, must_answer, promises
from .questions import ALERTS, alerts, hurried, questions
from .server import Server, free_port, running, until, what_is_missing

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.parse_args()
    if missing := what_is_missing():
        print(missing, file=sys.stderr)
        return 2
    record = observed()
    table(record)
    print()
    verdicts = list(promises(record))
    for promise in verdicts:
        print(f"{'kept  ' if promise.kept else 'BROKEN'} {promise.text} ({promise.measured})")
    return 0 if all(promise.kept for promise in verdicts) else 1


def observed() -> Record:
    """Let Prometheus watch the whole outage, and ask it afterwards."""
    print("The shop opens, its backend fails, and Prometheus looks on ...", flush=True)
    port = free_port()
    with shop(port) as process:
        heard = _piped(process.stdout)
        if not heard.readline():
            raise SystemExit("the shop did not open; it has said why")
        with running(port, hurried(ALERTS.read_text(encoding="utf-8"))) as server:
            begin = server.time()
            print(file=_piped(process.stdin), flush=True)
            if not heard.readline():
                raise SystemExit("the shop closed early; it has said why")
            end = server.time()
            until(lambda: server.has(f"timestamp(up) > {end}"))
            return recorded(server, begin, server.time())


def recorded(server: Server, begin: float, end: float) -> Record:
    """Ask everything."""
    record = Record(metrics=server.values_of("__name__"))
    record.methods = server.values_of("method", **{"match[]": "ft_invocations_total"})
    [scrapes], [answered] = (server.now(f"{how}_over_time(up[1h])") for how in ("count", "sum"))
    record.scrapes, record.failed_scrapes = int(scrapes), int(scrapes - answered)
    for question in questions():
        try:
            record.answers[question] = len(server.over(question.query, begin, end, 0.5))
        except ValueError as error:
            record.refused[question] = str(error)
    for labels, values in server.over('ALERTS{alertstate="firing"}', begin, end):
        method = labels.get("method", labels.get("namespace", "")).rpartition(".")[2]
        record.fired.setdefault(labels["alertname"], {})[method] = (min(values) - begin, max(values) - begin)
    return record


def table(record: Record) -> None:
    """Show what was asked, and what came."""
    print(f"\n{'alert':<20} {'ought to':<10} fired for, in seconds after the shop opened")
    for alert in sorted(alerts(), key=lambda name: (name not in OUGHT, name not in MAY, name)):
        ought = "fire" if alert in OUGHT else "may" if alert in MAY else "be silent"
        fired = record.fired.get(alert, {})
        times = ", ".join(f"{method} {since:.1f} to {until:.1f}" for method, (since, until) in sorted(fired.items()))
        print(f"{alert:<20} {ought:<10} {times or '-'}")
    print(f"\n{'panel of the dashboard':<52} lines that it has, by question")
    panels: dict[str, list[str]] = {}
    for question, count in record.answers.items():
        has = must_answer(question, record.metrics)
        panels.setdefault(question.panel, []).append(str(count) if has else "no such policy")
    for panel, said in panels.items():
        print(f"{panel:<52} {', '.join(said)}")


@contextlib.contextmanager
def shop(port: int) -> Iterator[subprocess.Popen[str]]:
    """Have the shop in a process that begins when it is told to, and ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.shop", "--wait", "--port", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,  # so that Ctrl-C is left to this process
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)  # it takes its backend with it
        process.communicate()


def _piped(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


if __name__ == "__main__":
    for ending in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(ending, signal.default_int_handler)  # so that no server outlives this process
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nstopped")
        sys.exit(130)
