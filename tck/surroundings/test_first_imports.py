"""Calls during the first import of a module of the standard library, which another thread makes."""

from __future__ import annotations

import os

import pytest

from kit.forked import CAN_FORK
from kit.program import output_of, python

pytestmark = pytest.mark.outside


def test_an_offloaded_call_ends_while_asyncio_is_imported() -> None:
    """Its outcome is compared with the cancellations of asyncio, which are not there yet."""
    program = """
        import sys, types
        from faulttolerance import *

        @asynchronous
        def load(is_down) -> Future[str]:
            if is_down:
                raise ValueError("down")
            return completed_future("loaded")

        sys.modules["asyncio"] = types.ModuleType("asyncio")
        print(load(False).result(10), repr(load(True).exception(10)))
        """

    assert output_of(program) == "loaded ValueError('down')"


def test_a_time_out_comes_while_asyncio_is_imported() -> None:
    """A late thread is searched for a loop of asyncio, whose classes are not there yet."""
    program = """
        import sys, time, types
        from faulttolerance import *

        end = time.monotonic() + 10

        @timeout("50ms")
        def count():
            while time.monotonic() < end:
                pass

        for name in ("asyncio", "asyncio.base_events"):
            sys.modules[name] = types.ModuleType(name)
        try:
            count()
        except TimeoutException:
            print("in time" if time.monotonic() < end else "too late")
        """

    assert python(program).stdout == "in time\n"


def test_an_attempt_succeeds_while_futures_are_imported() -> None:
    """A result of a new class is compared with the futures of the standard library, which are not there yet."""
    program = """
        import sys, types
        from faulttolerance import *

        @circuit_breaker
        def load():
            return type("Page", (), {})()

        sys.modules["concurrent.futures"] = types.ModuleType("concurrent.futures")
        print(type(load()).__name__)
        """

    assert output_of(program) == "Page"


def test_imports_that_are_all_lazy_leave_nothing_out() -> None:
    """All that the library registers is there where Python 3.15 puts off every import, in the child of a fork, too."""
    program = """
        import logging, os, time
        from faulttolerance import Guard, TimeoutException, configure, timeout
        from faulttolerance.instrumentation import get_event_sinks
        from faulttolerance.policies import Retry

        logging.getLogger("faulttolerance").addHandler(logging.NullHandler())  # chaos says that it is there
        print(len(get_event_sinks()) > 0)
        configure(properties={"disturbed/Chaos/rate": 1})
        try:
            Guard(name="disturbed", retry=Retry(max_retries=0)).call(print, "undisturbed")
        except ConnectionError:
            print("disturbed")

        end = time.monotonic() + 10

        @timeout("50ms")
        def count():
            while time.monotonic() < end:
                pass

        def tell(who):
            try:
                count()
            except TimeoutException:
                print(who, "in time" if time.monotonic() < end else "too late", flush=True)

        tell("parent")
        child = os.fork() if hasattr(os, "fork") else 1
        if not child:
            tell("child")
            os._exit(0)
        if hasattr(os, "fork"):
            os.waitpid(child, 0)
        tell("parent")
        """
    lazy = {**os.environ, "FAULTTOLERANCE_CHAOS_ALLOWED": "true"}
    output = output_of(program, "-X", "lazy_imports=all", "-W", "error", environment=lazy)

    child = ["child in time"] if CAN_FORK else []
    assert output.splitlines() == ["True", "disturbed", "parent in time", *child, "parent in time"]
