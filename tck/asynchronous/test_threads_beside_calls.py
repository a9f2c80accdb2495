"""Threads that the library starts beside the calls."""

from __future__ import annotations

import ctypes
import sys
import threading

import pytest

from faulttolerance._platform.unpatched import run_on_thread


class _Struck(BaseException):
    """The exception that is sent to a thread."""


def test_an_exception_reaches_the_thread_to_which_it_is_sent() -> None:
    """By rule R2: a thread that it has just started must not get it, and died of it before Python 3.12."""
    send = ctypes.pythonapi["PyThreadState_SetAsyncExc"]  # the attribute is shared with the rest of the process
    send.argtypes = [ctypes.c_ulong, ctypes.py_object]
    ran: list[int] = []

    def be_struck(done: threading.Event) -> None:
        run_on_thread(lambda: (ran.append(1), done.set()))
        send(threading.get_ident(), _Struck)
        for _ in range(1000):
            pass

    def start() -> None:
        for _ in range(50):
            done = threading.Event()
            with pytest.raises(_Struck):
                be_struck(done)
            assert done.wait(10)

    interval = sys.getswitchinterval()
    starter = threading.Thread(target=start)
    try:
        sys.setswitchinterval(10)
        starter.start()
        starter.join(30)
    finally:
        sys.setswitchinterval(interval)

    assert len(ran) == 50
