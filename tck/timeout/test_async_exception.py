"""The exception that is sent to a thread."""

from __future__ import annotations

import _thread
import ctypes
import errno
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from types import SimpleNamespace

import pytest

from faulttolerance import TimeoutException, retry, timeout
from faulttolerance._deadline.threads import async_exception
from faulttolerance._deadline.threads.async_exception import Interrupted, find_sender, send
from faulttolerance._deadline.threads.chain import ThreadDeadlines, deadlines_of_threads, this_thread
from faulttolerance._deadline.threads.pending_interrupt import PendingInterrupt
from faulttolerance._platform.atomic import frames_of_threads


def test_it_is_sent_to_the_place_that_was_looked_at_and_to_no_other() -> None:
    """R2a: a thread that has moved on meanwhile may stand where it must not be interrupted."""
    gate = _thread.allocate_lock()
    gate.acquire()
    entry = (inf, None)
    known: list[ThreadDeadlines] = []
    ended_by: list[BaseException] = []

    def wait() -> None:
        deadlines = this_thread.deadlines
        deadlines.innermost = entry
        known.append(deadlines)
        try:
            gate.acquire()
            time.sleep(0)
        except Interrupted as error:
            ended_by.append(error)
        finally:
            deadlines.innermost = None

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while not known:
        time.sleep(0.001)
    time.sleep(0.1)
    frame = frames_of_threads()[known[0].ident]
    find_sender()
    pending = PendingInterrupt(entry)
    pending.look((id(frame), frame.f_lasti - 2), 0.0, 0.0)
    was_sent_elsewhere = send(known[0], pending, frame, None)
    pending.look((id(frame), frame.f_lasti), 0.0, 0.0)
    was_sent = send(known[0], pending, frame, None)
    gate.release()
    thread.join(10.0)

    assert not was_sent_elsewhere
    assert was_sent
    assert isinstance(ended_by[0], Interrupted)
    assert ended_by[0].owner is entry


def test_the_function_that_sends_it_stays_as_other_libraries_know_it() -> None:
    """Time limits of dramatiq, RQ and others call the same function, and pass other types."""
    find_sender()

    function = ctypes.pythonapi.PyThreadState_SetAsyncExc

    assert (function.argtypes, function.restype) == (None, ctypes.c_int)


def test_a_shortage_of_files_at_the_first_deadline_is_no_end_of_interruptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module that sends them is imported at that moment; later deadlines find it."""

    class Short:
        @property
        def pythonapi(self) -> object:
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(async_exception, "_sender", None)
    with monkeypatch.context() as shortage:
        shortage.setitem(sys.modules, "ctypes", Short())  # type: ignore[arg-type]
        was_found = find_sender()

    assert (was_found, find_sender()) == (False, True)


class TimeLimitExceeded(BaseException):
    """The exception of another library, whose thread watches the limits of the workers."""


def send_by_other(thread: int, spelled: Callable[[int], object] = ctypes.c_long) -> None:
    """Send the exception as dramatiq, RQ and Temporal do."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(spelled(thread), ctypes.py_object(TimeLimitExceeded))


def test_a_deadline_does_not_replace_an_exception_that_other_code_has_sent() -> None:
    """R2: the worker that waited for a socket is ended by its own time limit, and no retry goes on without one."""
    ours, theirs = socket.socketpair()
    attempts: list[int] = []

    @retry(retry_on=TimeoutException)
    @timeout("100ms")
    def read() -> None:
        attempts.append(threading.get_ident())
        ours.recv(1)

    def exceed() -> None:
        while not attempts:
            time.sleep(0.001)
        time.sleep(0.02)
        send_by_other(attempts[0])
        time.sleep(0.6)
        theirs.send(b"late")

    find_sender()
    with ours, theirs, ThreadPoolExecutor(2) as pool:
        call, other = pool.submit(read), pool.submit(exceed)
        with pytest.raises(TimeLimitExceeded):
            call.result(10)
        other.result(10)

    assert len(attempts) == 1


def test_an_exception_that_other_code_has_withdrawn_replaces_no_interruption() -> None:
    """R2: the body goes on as if the exception had never been sent, and has a time-out."""
    ours, theirs = socket.socketpair()
    started: list[int] = []

    def receive() -> None:
        ours.recv(1)

    @timeout("100ms")
    def read() -> None:
        started.append(threading.get_ident())
        receive()
        end = time.monotonic() + 5
        while time.monotonic() < end:
            pass

    find_sender()
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        call = pool.submit(read)
        while not started:
            time.sleep(0.001)
        time.sleep(0.02)
        send_by_other(started[0])
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_long(started[0]), None)
        time.sleep(0.6)  # by then the interruption is sent
        theirs.send(b"late")
        with pytest.raises(TimeoutException) as caught:
            call.result(10)

    assert isinstance(caught.value.__cause__, Interrupted)


def negative(thread: int) -> object:
    """Return the identifier of a thread as ``c_long`` may show it where it has 32 bits."""
    return SimpleNamespace(_as_parameter_=ctypes.c_long(thread), value=thread - 2 * sys.maxsize - 2)


@pytest.mark.parametrize("spelled", [ctypes.c_long, negative])
def test_an_exception_that_other_code_sends_ends_a_delay_at_once(
    spelled: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: a worker that shuts down need not wait until a retry is due, also where no call had a deadline yet."""
    attempts: list[int] = []

    @retry(delay="20s", jitter=0, retry_on=OSError)
    def read() -> None:
        attempts.append(threading.get_ident())
        raise OSError

    find_sender()
    monkeypatch.setattr(async_exception, "_sender", None)
    del ctypes.pythonapi.PyThreadState_SetAsyncExc.errcheck
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(read)
        while not any(one.gate for one in deadlines_of_threads()):
            time.sleep(0.001)
        began = time.monotonic()
        send_by_other(attempts[0], spelled)
        with pytest.raises(TimeLimitExceeded):
            call.result(30)

    assert time.monotonic() - began < 10
