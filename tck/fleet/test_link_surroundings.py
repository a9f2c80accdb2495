"""The link beside greenlets, in servers that fork, in programs that end, in interpreters without threads (rule F1)."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.surroundings import PATCH, gunicorn, needs, run

pytestmark = [pytest.mark.outside, pytest.mark.timeout(200)]  # programs say themselves that they hang

PREAMBLE = """
import os, socket, sys, threading, time
from faulttolerance import *
from faulttolerance._deadline.clock import Alarm, clock
from faulttolerance._extensions.fleet.fleet_link import fleet_link
from faulttolerance._extensions.fleet.protocol import PollRequest, PollResponse, TurnRequest

TURN = TurnRequest("limit", "rolling", 1_000_000, 1_000_000, 1)

class Session:
    connection = None

    def __init__(self):
        self.pid = os.getpid()

    def exchange(self, questions):
        assert self.pid == os.getpid()
        if self.connection is None:
            self.connection = socket.create_connection(("127.0.0.1", int(os.environ["PORT"])))
        self.connection.sendall(b"?" * len(questions))
        missing = len(questions)
        while missing:
            answer = self.connection.recv(missing)
            if not answer:
                raise ConnectionError("closed")
            missing -= len(answer)
        return [PollResponse(1, {}) if isinstance(question, PollRequest) else 0 for question in questions]

    def close(self):
        if self.connection is not None:
            self.connection.close()

class Fleet:
    namespace, poll, patience, is_immediate = "here", 0.2, 5.0, False

    def connect(self, changed=None):
        return Session()

def ask():
    alarm, told = Alarm(), []
    if not fleet_link.current.send(TURN, lambda answer: (told.append(answer), alarm.ring())):
        return "alone"
    clock.sleep(fleet_link.current.patience, alarm)
    return told[0]

def in_child(function):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        status = 1
        try:
            print(function())
            sys.stdout.flush()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

BEGIN = "\nconfigure(fleet=Fleet())\n"

PATCHED = f"{PATCH}from gevent import spawn, sleep, joinall\n"


class Server(socketserver.ThreadingTCPServer):
    """A server that answers each byte, and counts its connections."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.thawed = threading.Event()
        self.thawed.set()
        self.connections = 0
        self.delay = 0.0
        """Seconds that each exchange takes."""

    @property
    def port(self) -> str:
        return str(self.server_address[1])


class Answering(socketserver.BaseRequestHandler):
    server: Server

    def handle(self) -> None:
        self.server.connections += 1
        while questions := self.request.recv(1000):
            self.server.thawed.wait()
            time.sleep(self.server.delay)
            self.request.sendall(questions)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that programs can ask."""
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.thawed.set()
        server.shutdown()


@pytest.mark.parametrize("when", ["patched-first", "configured-first"])
def test_greenlets_ask_and_others_run_meanwhile(server: Server, when: str) -> None:
    """The link stays a thread, and wakes greenlets on the thread of their hub; in a child, too."""
    needs("gevent")
    server.delay = 0.01
    begin = [PATCHED, PREAMBLE + BEGIN]
    begin = begin if when == "patched-first" else [*reversed(begin), "\nimport socket\n"]
    program = "".join(begin) + (
        """
ticks, answers = [], []

def witness():
    while True:
        sleep(0.001)
        ticks.append(time.perf_counter())

spawn(witness)
began = time.perf_counter()
joinall([spawn(lambda: answers.extend(ask() for _ in range(5))) for _ in range(40)])
assert time.perf_counter() - began < 3
print(answers == [0] * 200, len(ticks) > 3)
if hasattr(os, "fork"):
    print(in_child(ask))
print(ask())
"""
    )
    lines = run(program, "-W", "ignore", PORT=server.port)

    assert lines == ["True True", "0", "0", "0"]


@pytest.mark.skipif("not hasattr(os, 'fork')")
def test_a_child_has_a_link_of_its_own(server: Server) -> None:
    """No session of the parent is used, no thread is left when the child forks, and grandchildren have own links."""
    lines = run(
        PREAMBLE
        + BEGIN
        + """
def threads():
    return len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 2

print(ask())
print(in_child(lambda: (ask(), threads() <= 3, in_child(ask))))
print(ask(), fleet_link.current.description)
""",
        PORT=server.port,
    )

    assert lines == ["0", "0", "(0, True, 0)", "0", "0 shared in 'here'"]
    assert server.connections in (4, 5)  # the child's ends for the grandchild, as the parent's for the child


@pytest.mark.skipif("not hasattr(os, 'fork')")
def test_a_frozen_server_holds_up_no_fork(server: Server) -> None:
    """The child knows nothing of the questions of its parent."""
    server.thawed.clear()
    (child, status) = run(
        PREAMBLE
        + BEGIN
        + """
fleet_link.current.send(TURN, print)
time.sleep(0.1)
began = time.perf_counter()
status = in_child(lambda: (fleet_link.current.health.is_up, time.perf_counter() - began < 4))
print(status, flush=True)
os._exit(0)
""",
        "-W",
        "ignore:This process:DeprecationWarning",  # the thread that waits for the server is left
        PORT=server.port,
    )

    assert (child, status) == ("(True, True)", "0")


@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)", "threading.Thread(target=ask).start()"])
def test_a_program_ends_while_the_server_is_frozen(server: Server, ending: str) -> None:
    """It ends at once, with questions that wait and handlers of ``atexit`` that ask."""
    server.thawed.clear()
    program = (
        PREAMBLE.replace('patience, is_immediate = "here", 0.2, 5.0', 'patience, is_immediate = "here", 0.2, 0.2')
        + BEGIN
        + """
import atexit
atexit.register(lambda: print("asked", fleet_link.current.send(TURN, lambda answer: None)))
for _ in range(300):
    fleet_link.current.send(TURN, lambda answer: None)
time.sleep(0.1)
"""
    ).replace("    return told[0]", "    return told") + ending
    lines = run(program, PORT=server.port, seconds=20)

    assert lines == ["asked True"]


def test_a_fleet_may_be_configured_when_the_program_ends(server: Server) -> None:
    """At that time there may be no thread any more, and the process decides alone."""
    program = PREAMBLE + "import atexit\natexit.register(lambda: (configure(fleet=Fleet()), print(ask())))"
    (answer,) = run(program, PORT=server.port)

    assert answer in ("0", "alone")


def test_lives_of_an_application_leave_no_thread(server: Server) -> None:
    """Each ``reset`` ends the thread and the connection of the life before."""
    lines = run(
        PREAMBLE
        + """
from faulttolerance.testing import reset
fleet = Fleet()
for _ in range(20):
    configure(fleet=fleet)
    assert ask() == 0
    reset()
    assert ask() == "alone"
if os.path.exists("/proc/self/task"):
    end = time.perf_counter() + 10
    while len(os.listdir("/proc/self/task")) > 3 and time.perf_counter() < end:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/task")) <= 3  # this one, the watchdog and that of faulthandler
print("over")
""",
        PORT=server.port,
    )

    assert lines == ["over"]
    assert server.connections == 20


def test_an_isolated_interpreter_decides_alone(server: Server) -> None:
    """No thread may outlive a call there; the description says so, and the interpreter can be closed."""
    life = (
        PREAMBLE + BEGIN + "print(ask(), '|', fleet_link.current.description.partition('because of ')[2], flush=True)\n"
    )
    program = f"""
import sys
if sys.version_info >= (3, 13):
    import _interpreters as interpreters
    one = interpreters.create("isolated")
    failed = interpreters.exec(one, {life!r})
else:
    import _xxsubinterpreters as interpreters
    one = interpreters.create(isolated=True)
    failed = interpreters.run_string(one, {life!r})
assert failed is None, failed
interpreters.destroy(one)
print("closed")
"""
    (told, closed) = run(program, "-W", "ignore", isolated=True, PORT=server.port)

    assert closed == "closed"
    assert told == "alone | no thread can be started here"


@pytest.mark.skipif("not hasattr(os, 'fork')")
def test_workers_of_gunicorn_that_load_the_application_first_have_their_own_links(
    server: Server, tmp_path: Path
) -> None:
    """A worker does not use the link that was configured before it was forked."""
    needs("gunicorn")
    application = (
        PREAMBLE
        + BEGIN
        + """
def application(environ, start_response):
    start_response("200 OK", [])
    return [f"{os.getpid()} {ask()} {fleet_link.current.description}".encode()]
"""
    )
    options = ["--preload", "--workers=2", "--log-level=warning"]
    with gunicorn(application, tmp_path, *options, PORT=server.port) as service:
        answers = {service.get("/") for _ in range(40)}

        assert {answer.partition(" ")[2] for answer in answers} == {"0 shared in 'here'"}, service.log
        assert len(answers) <= 2
