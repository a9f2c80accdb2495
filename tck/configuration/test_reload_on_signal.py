"""A signal that reloads: each in a process of its own, since handlers belong to the whole process."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
from pathlib import Path

import pytest

pytest.importorskip("pydantic_settings")

from faulttolerance import FaultToleranceDefinitionException, reload
from kit.program import ALONE, LIBRARY, output_of

SIGNALS = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal here")

PREAMBLE = """
import logging, os, signal, sys, threading, time
sys.path.insert(0, ".")
import faulttolerance as ft
from faulttolerance import configure, reload, retry

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s")

def write(text):
    with open("new.toml", "w") as file:
        file.write(text)
    os.replace("new.toml", "faulttolerance.toml")  # never half of it

class Client:
    @retry(max_retries=1, delay=0, jitter=0)
    def charge(self):
        self.calls = getattr(self, "calls", 0) + 1
        raise OSError

def attempts():
    logging.disable(logging.WARNING)
    client = Client()
    try:
        client.charge()
    except OSError:
        return client.calls
    finally:
        logging.disable(logging.NOTSET)

def until(condition):
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come to that")

write("Retry.maxRetries = 2")
configure(files="faulttolerance.toml")
assert attempts() == 3
"""


def run(program: str, directory: Path) -> list[str]:
    """Return the lines that *program* prints."""
    text, imports = PREAMBLE + textwrap.dedent(program), f"{LIBRARY}; import pydantic_settings"
    return output_of(text, folder=directory, environment=ALONE, after=imports).splitlines()


@pytest.mark.outside
@SIGNALS
def test_a_signal_reloads_and_logs_the_changes(tmp_path: Path) -> None:
    """They are logged at INFO."""
    lines = run(
        """
        told = []
        logging.getLogger("faulttolerance").addFilter(lambda record: told.append(record) or True)
        reload(on=signal.SIGHUP)
        write("Retry.maxRetries = 4")
        os.kill(os.getpid(), signal.SIGHUP)
        until(lambda: attempts() == 5 and len(told) == 2)
        """,
        tmp_path,
    )

    first, second = lines
    assert first.startswith("INFO the configuration was reloaded: its fingerprint was ")
    assert second == (
        "INFO SIGHUP: reloaded: __main__.Client.charge @Retry(max_retries): 2 -> 4"
        " (Retry/maxRetries in file faulttolerance.toml)"
    )


@pytest.mark.outside
@SIGNALS
def test_a_file_with_a_mistake_is_logged_and_ends_nothing(tmp_path: Path) -> None:
    """All stays as it was, and the next signal is served again."""
    lines = run(
        """
        told = []
        logging.getLogger("faulttolerance").addFilter(lambda record: told.append(record.levelname) or True)
        reload(on=signal.SIGHUP)
        write("Retry.maxRetries = 'lots'")
        os.kill(os.getpid(), signal.SIGHUP)
        until(lambda: "ERROR" in told)
        assert attempts() == 3
        write("Retry.maxRetries = 0")
        os.kill(os.getpid(), signal.SIGHUP)
        until(lambda: attempts() == 1)
        """,
        tmp_path,
    )

    assert lines[0] == (
        "ERROR SIGHUP: the reload failed, and the old configuration stays in force: Retry/maxRetries is 'lots';"
        " allowed: -1 (no limit) or an integer >= 0 (file faulttolerance.toml)"
    )


@pytest.mark.outside
@SIGNALS
def test_a_key_that_nothing_uses_is_logged_when_a_reload_brings_it(tmp_path: Path) -> None:
    """At WARNING, once: otherwise a misspelt key would pass for a change."""
    lines = run(
        """
        told = []
        logging.getLogger("faulttolerance").addFilter(lambda record: told.append(record.getMessage()) or True)
        reload(on=signal.SIGHUP)
        for number in 0, 2:
            write(f"Retry.maxRetrys = 4\\nRetry.maxRetries = {number}")
            os.kill(os.getpid(), signal.SIGHUP)
            until(lambda: attempts() == number + 1)
            until(lambda: any(line.startswith("SIGHUP: Retry/maxRetrys") for line in told))
        until(lambda: sum("SIGHUP: reloaded" in line for line in told) == 2)
        """,
        tmp_path,
    )

    assert [line for line in lines if line.startswith("WARNING")] == [
        "WARNING SIGHUP: Retry/maxRetrys is not used; did you mean Retry/maxRetries? (file faulttolerance.toml)"
    ]


@pytest.mark.outside
@SIGNALS
def test_a_source_that_ends_programs_ends_nothing(tmp_path: Path) -> None:
    """Also ``SystemExit`` is only logged."""
    lines = run(
        """
        def source():
            if threading.current_thread() is not threading.main_thread():
                raise SystemExit("over")
            return {}

        configure(sources=[source])
        reload(on=signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.3)
        assert attempts() == 3
        """,
        tmp_path,
    )

    assert lines[0].startswith("ERROR SIGHUP: the reload failed, and the old configuration stays in force")


@pytest.mark.outside
@SIGNALS
def test_many_signals_in_the_middle_of_anything_are_served(tmp_path: Path) -> None:
    """Locks of the application, of `threading` and of `logging` are held meanwhile, and the last signal is not lost."""
    lines = run(
        """
        logging.disable(logging.ERROR)
        reload(on=signal.SIGHUP)
        over = False
        number = 0

        def send():
            global number
            while not over:
                number += 1
                write(f"Retry.maxRetries = {number % 7}")
                os.kill(os.getpid(), signal.SIGHUP)
                time.sleep(0.002)

        sender = threading.Thread(target=send)
        sender.start()
        until_then = time.monotonic() + 1.5
        while time.monotonic() < until_then:
            threading.Thread(target=int).start()
            logging.getLogger("app").error("said")
            reload()
            class Fresh:
                @retry(max_retries=0)
                def call(self):
                    pass
            Fresh().call()
        over = True
        sender.join()
        write("Retry.maxRetries = 9")
        os.kill(os.getpid(), signal.SIGHUP)
        logging.disable(logging.NOTSET)
        until(lambda: attempts() == 10)
        """,
        tmp_path,
    )

    assert all(line.startswith(("INFO SIGHUP: reloaded", "INFO the configuration was reloaded")) for line in lines)


@pytest.mark.outside
@SIGNALS
def test_the_end_of_the_process_waits_for_a_reload(tmp_path: Path) -> None:
    """It would crash where the interpreter ended the thread inside compiled code."""
    lines = run(
        """
        busy = threading.Event()

        def source():
            if threading.current_thread() is not threading.main_thread():
                busy.set()
                time.sleep(0.2)
            return {"Retry/maxRetries": 7}

        configure(sources=[source], properties={"Retry/delay": 0})
        reload(on=signal.SIGHUP)
        write("Retry.jitter = 0")
        os.kill(os.getpid(), signal.SIGHUP)
        busy.wait(10)
        """,
        tmp_path,
    )

    assert lines[-1].startswith("INFO SIGHUP: reloaded: ")


@pytest.mark.outside
@SIGNALS
def test_a_reload_that_hangs_does_not_hold_the_end_of_the_process(tmp_path: Path) -> None:
    """A signal that comes meanwhile is not served."""
    lines = run(
        """
        busy = threading.Event()

        def source():
            if threading.current_thread() is not threading.main_thread():
                busy.set()
                threading.Event().wait()
            return {}

        configure(sources=[source])
        reload(on=signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        busy.wait(10)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGHUP))
        """,
        tmp_path,
    )

    assert lines == []


@pytest.mark.outside
@SIGNALS
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_fork_serves_signals_of_its_own(tmp_path: Path) -> None:
    """Also a child that is made while the parent reloads."""
    run(
        """
        import warnings
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        busy = threading.Event()

        def source():
            if threading.current_thread() is not threading.main_thread():
                busy.set()
                time.sleep(0.2)
            return {}

        configure(sources=[source])
        reload(on=signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        busy.wait(10)
        child = os.fork()
        if child == 0:
            try:
                write("Retry.maxRetries = 5")
                os.kill(os.getpid(), signal.SIGHUP)
                until(lambda: attempts() == 6)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert attempts() == 3
        """,
        tmp_path,
    )


@pytest.mark.parametrize(
    "signum",
    [
        0,
        4711,
        "SIGHUP",
        True,
        *(getattr(signal, name) for name in ("SIGKILL", "SIGURG") if hasattr(signal, name)),
    ],
)
def test_a_signal_that_cannot_serve_is_refused(signum: object) -> None:
    """A signal that interrupts calls would no longer do so."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"reload\(on\) is .*; allowed: a signal of signal"):
        reload(on=signum)  # type: ignore[arg-type]


def test_another_thread_than_the_main_one_installs_nothing_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """A test client runs the start of a service on a thread, where Python installs no handlers."""
    before = signal.getsignal(signal.SIGTERM)

    for _ in range(2):
        thread = threading.Thread(target=reload, kwargs={"on": signal.SIGTERM})
        thread.start()
        thread.join()

    assert signal.getsignal(signal.SIGTERM) is before
    assert caplog.messages == ["reload(on=SIGTERM) reloads nothing: only the main thread may handle signals"]
