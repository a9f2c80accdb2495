"""The program itself: in a terminal, in a pipe, and while what it looks at ends and begins anew."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")
pytest.importorskip("rich")
pytest.importorskip("typer")
from typer.testing import CliRunner

from faulttolerance._command.cli import app
from kit.program import ALONE

SERVICE = """
import sys, threading, time
from prometheus_client import start_http_server
from faulttolerance import fallback, retry

@fallback(lambda context: "later")
@retry(max_retries=2, jitter=0, retry_on=OSError)
def order():
    raise OSError

def serve():
    while True:
        order()
        time.sleep(0.005)

order()
server, _ = start_http_server(int(sys.argv[1]), "127.0.0.1")
print(server.server_port, flush=True)
threading.Thread(target=serve, daemon=True).start()
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def hears_ctrl_c() -> Iterator[None]:
    """Let programs that are started hear Ctrl-C: in the background of a shell they are told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Service:
    """A process that shows its metrics."""

    def __init__(self, port: int = 0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVICE, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ALONE,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def service() -> Iterator[Service]:
    one = Service()
    yield one
    one.kill()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "faulttolerance", "top", *arguments]


@pytest.mark.outside
def test_processes_may_end_and_begin_anew(service: Service, tmp_path: Path) -> None:
    """What one counted before it was killed is no rate, and neither is what another begins with."""
    other = Service()
    arguments = command(f":{service.port}", f"localhost:{other.port}", "--json", "--interval", "0.3")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=ALONE, cwd=tmp_path) as top:
        assert top.stdout is not None
        lines = map(json.loads, top.stdout)

        def first(up: int, services: int) -> Any:
            """The first look at so many; each rate is that of processes which make 200 calls in a second at most."""
            for look in lines:
                rates = [guard["per_second"] for guard in look["guards"]]
                assert all(0 <= rate["calls"] <= 2 * 200 * 1.5 for rate in rates if rate)
                assert all(rate["retries"] <= 2.5 * rate["calls"] for rate in rates if rate)
                if sum(one["up"] for one in look["targets"]) == up and (not rates or len(rates) == services):
                    return look
            raise AssertionError("it has ended")

        both = first(2, 1)
        other.kill()
        one_is_lost = first(1, 1)
        other = Service(other.port)
        again = first(2, 1)
        top.send_signal(signal.SIGINT)
        top.stdout.read()
    other.kill()

    assert both["guards"][0]["guard"] == "__main__.order"
    assert both["guards"][0]["rank"] == "replaced"
    assert one_is_lost["targets"][1]["reason"] == "Connection refused"
    assert again["targets"][1]["reason"] is None
    assert top.returncode == 130


@pytest.mark.outside
def test_one_table_is_for_scripts(service: Service) -> None:
    """Exit status 1 where one did not answer, and 2 where the command is wrong."""
    run = CliRunner().invoke
    once = run(app, ["top", f":{service.port}", "--once", "--interval", "200ms"], env={"COLUMNS": "80"})
    lost = run(app, ["top", f":{service.port}", ":1", "--once", "--interval", "0.1", "--json"])

    assert once.exit_code == 0
    assert "1 of 1 answer, 1 guards" in once.stdout
    assert "__main__.order" in once.stdout
    assert "\x1b" not in once.stdout
    assert lost.exit_code == 1
    assert [one["reason"] for one in json.loads(lost.stdout)["targets"]] == [None, "Connection refused"]


@pytest.mark.outside
def test_signs_that_the_output_has_not_are_replaced() -> None:
    """A name that is cut begins with one that is not in ASCII."""
    done = subprocess.run(
        command(f":1/{'x' * 90}", "--once", "--interval", "0.1"),
        capture_output=True, check=False, env={**ALONE, "PYTHONIOENCODING": "ascii", "COLUMNS": "60"},
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (1, b"")
    assert b"lost  ?xxx" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument"),
        (["ftp://a"], "is not an address"),
        ([":1", "--interval", "0"], "is not 0.1 to 3600 seconds"),
        ([":1", "--interval", "2h"], "is not 0.1 to 3600 seconds"),
        ([":1", "--interval", "soon\x1b[2J"], "soon\\x1b[2J is not"),
    ],
)
def test_what_is_wrong_with_a_command_is_said(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["top", *arguments])

    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.outside
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("ending", "status"), [("q", 0), ("\x03", 130), (signal.SIGTERM, 130)])
def test_the_terminal_is_left_as_it_was(service: Service, ending: str | signal.Signals, status: int) -> None:
    """Its other screen, the cursor, and how keys are read, whoever ends it."""
    import pty
    import termios

    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    before = termios.tcgetattr(theirs)
    top = subprocess.Popen(
        command(f":{service.port}", ":1"), stdin=theirs, stdout=theirs, stderr=theirs,
        env={**ALONE, "TERM": "xterm-256color"}, start_new_session=True,
    )  # fmt: skip
    shown = b""

    def read(until: bytes) -> None:
        nonlocal shown
        end = time.monotonic() + 20
        while until not in shown:
            assert time.monotonic() < end, shown
            if select.select([ours], [], [], 0.1)[0]:
                shown += os.read(ours, 65536)

    read(b"__main__.order")
    during = termios.tcgetattr(theirs)
    if ending == "\x03":
        top.send_signal(signal.SIGINT)  # what a terminal does that controls it
    elif isinstance(ending, str):
        os.write(ours, ending.encode())
    else:
        top.send_signal(ending)
    read(b"\x1b[?1049l")

    assert top.wait(20) == status
    assert b"\x1b[?1049h" in shown
    assert b"Connection refused" in shown
    assert b"\x1b[?25h" in shown
    assert b"Traceback" not in shown
    assert during != before
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
