"""Guards are called in unexpected places: from finalizers, signal handlers, and by modules that run again."""

from __future__ import annotations

import contextlib
import gc
import importlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from faulttolerance import FaultToleranceDefinitionException, Guard, bulkhead, circuit_breaker, rate_limit, retry
from faulttolerance.policies import Retry
from kit.program import output_of


def test_a_finalizer_may_make_the_first_call_of_a_guard_that_goes_with_it() -> None:
    """An object in a reference cycle calls a guarded function of the same cycle when it is finalized."""
    said = []

    class Connection:
        def __init__(self) -> None:
            @retry(max_retries=1)
            def say(word: str) -> None:
                said.append(word)

            self.say = say
            self.itself = self

        def __del__(self) -> None:
            self.say("goodbye")

    Connection()
    gc.collect()

    assert said == ["goodbye"]


thrice = retry(max_retries=2, delay=0, jitter=0)


def with_a_guarded_method(close: Callable[[], None]) -> Any:
    class Client:
        @thrice
        def close(self) -> None:
            close()

    return Client


def with_a_guarded_override(close: Callable[[], None]) -> Any:
    class Base:
        @thrice
        def close(self) -> None:
            close()

    class Client(Base):
        @thrice
        def close(self) -> None:
            super().close()

    return Client


def with_a_method_that_the_class_covers(close: Callable[[], None]) -> Any:
    class Base:
        def close(self) -> None:
            close()

    @thrice
    class Client(Base):
        pass

    return Client


@pytest.mark.parametrize("is_called_before", [False, True])
@pytest.mark.parametrize("made", [with_a_guarded_method, with_a_guarded_override, with_a_method_that_the_class_covers])
def test_a_finalizer_calls_a_guarded_method_of_a_class_that_goes_with_it(made: Any, is_called_before: bool) -> None:
    """Weak references are cleared before finalizers run: the guard loses neither its body, nor a retry, nor rule L3."""
    closed = []

    def close() -> None:
        closed.append(None)
        raise OSError

    def finalize(client: Any) -> None:
        with contextlib.suppress(OSError):
            client.close()

    def leave() -> None:
        client = made(close)
        client.__del__ = finalize
        if is_called_before:
            client()
        closed.clear()
        client.itself = client()

    leave()
    gc.collect()

    assert len(closed) == 3


def test_a_finalizer_repeats_a_block_of_a_guard_that_goes_with_it() -> None:
    """A block that was entered before is repeated in the finalizer as often as elsewhere."""
    entered = []

    class Client:
        guard: Any = Guard(retry=Retry(max_retries=2, delay=0, jitter=0))

        def __del__(self) -> None:
            with contextlib.suppress(OSError):
                for attempt in self.guard.attempts():
                    with attempt:
                        entered.append(None)
                        raise OSError

    def leave(client: Any) -> None:
        client()
        entered.clear()
        client.itself = client()

    leave(Client)
    del Client
    gc.collect()

    assert len(entered) == 3


@pytest.mark.outside
def test_the_body_of_a_guarded_method_runs_at_the_end_of_the_program() -> None:
    """A finalizer of an object in a module runs when nothing can be imported; a method that was called is guarded."""
    program = """
        from faulttolerance import Guard, fallback, retry, timeout
        guard = Guard(retry(max_retries=2))

        @timeout("1 h")
        class Client:
            @fallback(print)
            def close(self):
                print("closed")
            @retry(max_retries=2, delay=0, jitter=0)
            def send(self, fails=True):
                print("sent")
                if fails:
                    raise OSError
            def __del__(self):
                self.close()
                guard.call(print, "left")
                try:
                    self.send()
                except OSError:
                    print("failed")

        client = Client()
        client.send(False)
    """

    assert output_of(program).split() == ["sent", "closed", "left", "sent", "sent", "sent", "failed"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
def test_a_signal_handler_may_call_the_guard_that_it_interrupts() -> None:
    """A handler neither waits for its own thread nor loses a permit, wherever it runs (rules L6, R10)."""

    @retry(max_retries=1, jitter=0)
    @circuit_breaker(request_volume_threshold=10**9)
    @rate_limit(10**9)
    @bulkhead(2)
    def beat(fails: bool = False) -> None:
        if fails:
            raise ConnectionError

    landed = 0

    def handle(*_: object) -> None:
        nonlocal landed
        landed += 1
        beat()

    beat()
    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        while landed < 100:
            beat()
            with pytest.raises(ConnectionError):
                beat(True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    beat()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a module with a named guard."""
    (tmp_path / "guarded_and_reloaded.py").write_text(
        "from faulttolerance import Guard, retry\nguard = Guard(retry(max_retries=1), name='reloaded')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("guarded_and_reloaded")
    yield module
    module.guard.close()
    del sys.modules[module.__name__]


def test_a_module_that_is_run_again_replaces_its_named_guard(module: ModuleType) -> None:
    """A reloaded module, or a cell of a notebook that runs again, makes no second guard of the same name."""
    first = module.guard

    importlib.reload(module)

    assert module.guard is not first
    assert module.guard.call(int, "5") == 5
    assert first.call(int, "5") == 5


def test_a_script_whose_code_is_compiled_once_replaces_its_named_guard() -> None:
    """Streamlit runs the same code in a new module for each view of a page; a loop in one run makes no two guards."""
    code = compile("from faulttolerance import Guard\nguard = Guard(name='rerun')", "page.py", "exec")
    twice = compile("from faulttolerance import Guard\nfor _ in 'ab': Guard(name='twice')", "page.py", "exec")
    guards = []
    with pytest.MonkeyPatch.context() as patched:
        for _ in range(3):
            page = ModuleType("page_of_streamlit")
            patched.setitem(sys.modules, page.__name__, page)
            exec(code, page.__dict__)
            guards.append(page.guard)
        with pytest.raises(FaultToleranceDefinitionException, match="name of another guard"):
            exec(twice, page.__dict__)
    guards[-1].close()

    assert [guard.call(int, "5") for guard in guards] == [5] * 3


def test_another_module_does_not_take_a_name_over(module: ModuleType) -> None:
    """Two guards of one name stay a definition error unless they are two versions of the same guard."""
    with pytest.raises(FaultToleranceDefinitionException, match="name of another guard"):
        Guard(retry=Retry(), name="reloaded")

    assert module.guard.call(int, "5") == 5
