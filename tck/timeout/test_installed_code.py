"""Rule R2a where a time-out finds its body in installed code: pools, queues and drivers that an application calls."""

from __future__ import annotations

import importlib
import os
import select
import shutil
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeAlias

import pytest

from faulttolerance import TimeoutException, configure, timeout, uninterruptible
from faulttolerance._deadline.threads import application, thread_checks
from faulttolerance._deadline.threads.main_thread import main_thread
from faulttolerance.integrations.flask import DeadlineMiddleware

Run: TypeAlias = Callable[[Callable[[], Any]], Any]

POOL = '''
"""A pool that takes a connection in one function and remembers it in another, under names of its own."""

import threading
import time
from collections import namedtuple

Pair = namedtuple("Pair", "one other")


def work(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def make_pairs(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        Pair(1, 2)


class Pool:
    def __init__(self):
        self.free = ["one", "other"]
        self.seconds = 0.1

    def connect(self):
        return Connection(self)

    def checkout(self):
        taken = self.free.pop()
        work(self.seconds)
        return taken


class Connection:
    def __init__(self, pool):
        self.pool, self.taken = pool, pool.checkout()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        work(self.pool.seconds)
        self.pool.free.append(self.taken)


FAILURES = Exception


class Place:
    """A place in a queue, to which a connection is handed over unless its thread has left it."""

    def __init__(self):
        self.condition = threading.Condition()
        self.given = self.error = None

    def wait(self):
        with self.condition:
            try:
                self.condition.wait(20)
            except FAILURES as error:
                self.error = error
        return self.given

    def hand_over(self, connection):
        with self.condition:
            if self.error is None:
                self.given = connection
                self.condition.notify()


class Client:
    """A client that closes its connection, with the rest of an answer on the way, where it cannot read all of it."""

    def __init__(self):
        self.is_open = True
        self.unread, self.tries = 2, 0

    def ask(self):
        try:
            for _ in range(2):
                try:
                    time.sleep(0.1)
                    self.unread -= 1
                except KeyError:
                    raise ValueError from None
                finally:
                    self.tries += 1
        except Exception:
            self.close_socket()
            raise

    def close_socket(self):
        self.is_open = False


def wait():
    while True:
        time.sleep(0.001)


def call(function):
    function()


def wait_as_on_macos(kqueue, events):
    kqueue.control(events, [], [], 20)


class Stream:
    def __init__(self, sock):
        self.sock, self.received = sock, b""

    def read(self):
        self.received += self.sock.recv(1)

    def read_on(self):
        while True:
            self.read()
'''

GUARDED = """
import faulttolerance
guarded_work = faulttolerance.timeout(50)(lambda: work(20))
"""


@pytest.fixture(params=["main thread", "another thread"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Yield a function that runs another one on the thread of the test."""
    if request.param == "main thread":
        yield lambda function: function()
        return
    with ThreadPoolExecutor(1) as pool:
        yield lambda function: pool.submit(function).result(30)


@pytest.fixture(params=["site-packages", "vendored", "recorded", "zipped", "frozen"])
def installed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Yield a package as an installer leaves it, in a directory of any name, in an archive or beside all modules."""
    directory = tmp_path / request.param
    name = f"acme_pool_{abs(hash(tmp_path))}"
    (directory / name).mkdir(parents=True)
    (directory / name / "__init__.py").write_text(POOL)
    metadata = directory / f"{name}-1.0.dist-info"
    if request.param != "frozen":
        metadata.mkdir()
    if request.param == "recorded":
        (metadata / "RECORD").write_text(f"{name}/__init__.py,,\n{metadata.name}/RECORD,,\n")
    (directory / f"its_{name}.py").write_text(POOL + GUARDED)
    if request.param == "zipped":
        directory = Path(shutil.make_archive(str(directory), "zip", directory))
    if request.param == "frozen":
        monkeypatch.setattr(application, "_STANDARD_LIBRARY", f"{directory}{os.sep}")
        for module in sys.stdlib_module_names & sys.modules.keys():
            monkeypatch.setattr(sys.modules[module], "__file__", str(directory / f"{module}.pyc"), raising=False)
    monkeypatch.syspath_prepend(str(directory))
    yield importlib.import_module(name)
    del sys.modules[name]


def test_a_connection_that_is_being_checked_out_is_given_back(run: Run, installed: ModuleType) -> None:
    """The deadline passes anywhere in the pool: the exception comes once the application has the connection."""
    pool = installed.Pool()
    pool.seconds = 0.04

    @timeout(20)
    def use() -> None:
        with pool.connect():
            pass

    def call() -> None:
        for _ in range(3):
            with pytest.raises(TimeoutException):
                use()

    run(call)

    assert sorted(pool.free) == ["one", "other"]


def test_a_connection_that_is_being_returned_is_given_back(run: Run, installed: ModuleType) -> None:
    """Also where the deadline passes in ``close``, which is not called again."""
    pool = installed.Pool()
    pool.seconds = 0.03

    @timeout(50)
    def use() -> None:
        connection = pool.connect()
        try:
            time.sleep(0)
        finally:
            connection.close()

    def call() -> None:
        for _ in range(3):
            with pytest.raises(TimeoutException):
                use()

    run(call)

    assert sorted(pool.free) == ["one", "other"]


def test_installed_code_that_waits_in_a_blocking_call_is_interrupted(run: Run, installed: ModuleType) -> None:
    """A call that blocks may fail anyway, and its callers had to think of that."""
    with pytest.raises(TimeoutException):
        run(timeout(50)(installed.wait))


def test_a_selector_of_macos_is_interrupted_though_the_system_does_not_say_that_it_waits(
    installed: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``selectors.DefaultSelector`` waits there on the main thread, in ``kqueue.control``, and a socket with TLS."""
    monkeypatch.setattr(main_thread, "activity", lambda _: None)
    monkeypatch.setattr(main_thread, "lacks_activity", True)
    ours, theirs = socket.socketpair()
    kqueue = SimpleNamespace(control=select.select)

    with ours, theirs:
        for wait in (partial(installed.wait_as_on_macos, kqueue, [ours]), installed.Stream(encrypted(ours)).read):
            assert time_in(lambda function: function(), wait) < 15


def test_a_guarded_function_in_c_is_interrupted_though_the_system_does_not_say_that_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on macOS: what it would return comes too late in any case."""
    monkeypatch.setattr(main_thread, "activity", lambda _: None)
    monkeypatch.setattr(main_thread, "lacks_activity", True)

    assert time_in(lambda function: function(), partial(time.sleep, 20)) < 15


def test_installed_code_that_waits_is_not_interrupted_where_it_handles_only_an_exception(
    run: Run, installed: ModuleType
) -> None:
    """A pool such as that of psycopg would hand a connection to the thread that has left its queue."""
    place, taken = installed.Place(), []
    soon = threading.Timer(0.1, place.hand_over, ["one"])

    def call() -> None:
        soon.start()
        with pytest.raises(TimeoutException):
            timeout(20)(lambda: taken.append(place.wait()))()

    run(call)
    soon.join()

    assert taken == ["one"]


def test_installed_code_that_closes_a_connection_only_after_an_exception_is_not_interrupted(
    run: Run, installed: ModuleType
) -> None:
    """The next request on the connection would read the answer to this one, as with pymemcache and httplib2."""
    client = installed.Client()

    def call() -> None:
        with pytest.raises(TimeoutException):
            timeout(20)(lambda: client.ask())()

    run(call)

    assert client.unread == 0


def encrypted(sock: socket.socket) -> ssl.SSLSocket:
    """Return a socket with TLS that receives from *sock* in place of a session: both are code without frames."""
    wrapped = ssl.SSLSocket.__new__(ssl.SSLSocket)
    wrapped._sslobj = SimpleNamespace(read=sock.recv)  # type: ignore[attr-defined]
    return wrapped


over_tls = pytest.mark.parametrize("over", [lambda sock: sock, encrypted], ids=["plain", "TLS"])


@over_tls
def test_data_that_installed_code_receives_after_a_deadline_is_not_lost(
    installed: ModuleType, over: Callable[[socket.socket], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On such a thread the wait goes on anyway; a client whose stream is out of step may wait for ever to close it."""
    monkeypatch.setattr(thread_checks, "_PATIENCE_WITH_DATA", 0.25)
    ours, theirs = socket.socketpair()
    stream = installed.Stream(over(ours))

    with ours, theirs, ThreadPoolExecutor(1) as pool:
        call = pool.submit(timeout(50)(lambda: [stream.read() for _ in range(2)]))
        for pause in (0.5, 0.1):
            time.sleep(pause)
            theirs.send(b"x")
        with pytest.raises(TimeoutException, match="timed out"):
            call.result(10)

    assert stream.received == b"xx"


def test_a_look_at_a_thread_that_receives_in_installed_code_examines_no_frames(
    installed: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred threads that wait for a server that hangs are looked at all the while."""
    examined: list[Any] = []
    monkeypatch.setattr(thread_checks, "reason_unsafe", lambda stack, *_, **__: examined.append(stack))
    ours, theirs = socket.socketpair()

    with ours, theirs, ThreadPoolExecutor(1) as pool:
        call = pool.submit(timeout(50)(installed.Stream(ours).read))
        time.sleep(0.3)
        theirs.send(b"x")
        with pytest.raises(TimeoutException):
            call.result(10)

    assert len(examined) < 3


@over_tls
def test_installed_code_that_receives_without_end_is_interrupted(
    installed: ModuleType, over: Callable[[socket.socket], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of ``recv`` ends; the deadline holds for all of them."""
    monkeypatch.setattr(thread_checks, "_PATIENCE_WITH_DATA", 0.1)
    ours, theirs = socket.socketpair()
    stream = installed.Stream(over(ours))

    with ours, theirs, ThreadPoolExecutor(1) as pool:
        call = pool.submit(timeout(50)(stream.read_on))
        while not call.done():
            theirs.send(b"x")
            time.sleep(0.01)

        with pytest.raises(TimeoutException):
            call.result(0)


def test_installed_code_is_not_interrupted_in_code_that_it_makes_at_run_time(run: Run, installed: ModuleType) -> None:
    """As the constructor of a named tuple, which ``urlparse`` and so each HTTP client calls; it lies in no file."""
    assert time_in(run, lambda: installed.make_pairs(0.3)) >= 0.3


def test_the_application_is_interrupted_in_code_that_it_makes_at_run_time(run: Run) -> None:
    """Such as a rule that an operator has written."""
    assert time_in(run, lambda: exec("while True: pass", {})) < 15


def test_installed_code_that_computes_is_interrupted_where_the_application_allows_it(
    run: Run, installed: ModuleType
) -> None:
    """``configure(interruptible_modules=...)``: it takes nothing."""
    configure(interruptible_modules=[installed.__name__])

    assert time_in(run, lambda: installed.work(20)) < 15


@pytest.mark.parametrize("installed", ["zipped", "frozen"], indirect=True)
def test_a_module_that_guards_is_interrupted_in_an_archive_and_beside_the_standard_library(
    run: Run, installed: ModuleType
) -> None:
    """As zipapp and PyInstaller pack an application with all that it needs."""
    module = importlib.import_module(f"its_{installed.__name__}")

    assert time_of(run, module.guarded_work) < 15


@pytest.mark.parametrize("installed", ["recorded"], indirect=True)
def test_a_module_of_the_application_beside_recorded_distributions_is_interrupted(
    run: Run, installed: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``pip install --target .`` puts distributions into the folder of the application."""
    module = importlib.import_module(f"its_{installed.__name__}")
    monkeypatch.delitem(application._guarding, module.__name__)  # other modules of it declare the guards

    assert time_in(run, lambda: module.work(20)) < 15


def test_installed_code_that_imports_a_guarding_compiled_module_is_interrupted_no_earlier(
    run: Run, installed: ModuleType
) -> None:
    """A server imports the application; what Cython compiled has no frame, and those above are the import system's."""
    names = {"__name__": "importlib._bootstrap", "timeout": timeout}

    installed.call(eval("lambda: timeout(50)(lambda: None)", names))

    assert time_in(run, lambda: installed.work(0.3)) >= 0.3


def test_installed_code_that_calls_a_middleware_is_interrupted_no_earlier(run: Run, installed: ModuleType) -> None:
    """The deadline of a request is that of the library, and declared by no package."""
    middleware = DeadlineMiddleware(lambda environ, start_response: [b""], longest="5s")

    installed.call(partial(middleware, {}, print))

    assert time_in(run, lambda: installed.work(0.3)) >= 0.3


def time_in(run: Run, body: Callable[[], object]) -> float:
    """Return the seconds for which *body* runs under a time-out of 50 ms."""
    return time_of(run, timeout(50)(body))


def time_of(run: Run, guarded: Callable[[], object]) -> float:
    """Return the seconds until *guarded* ends by its time-out."""
    ends: list[float] = []

    def call() -> None:
        began = time.monotonic()
        with pytest.raises(TimeoutException):
            guarded()
        ends.append(time.monotonic() - began)

    run(call)
    return ends[0]


def test_the_application_is_interrupted_where_installed_code_calls_it(run: Run, installed: ModuleType) -> None:
    """A framework, a driver of tests or a scheduler stands below nearly all that an application does."""

    @timeout(50)
    def use() -> None:
        installed.call(lambda: [None for _ in range(10**10)])

    def call() -> None:
        with pytest.raises(TimeoutException):
            use()

    run(call)


def test_calls_of_an_exempt_module_are_not_interrupted(run: Run) -> None:
    """``configure(uninterruptible_modules=...)`` protects a function of the application, and all calls below it."""
    steps: list[str] = []

    def below() -> None:
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass
        steps.append("done")

    module: dict[str, Any] = {"__name__": "acme.ledger", "below": below}
    exec("def book():\n    below()\n", module)
    configure(uninterruptible_modules=["acme.ledger"])

    @timeout(50)
    def use() -> None:
        module["book"]()
        with uninterruptible():
            pass
        steps.append("went on")

    def call() -> None:
        with pytest.raises(TimeoutException):
            use()

    run(call)

    assert steps == ["done"]
