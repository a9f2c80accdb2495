"""Guards as values: one set of policies, one state, any function."""

from __future__ import annotations

import asyncio
import copy
import importlib
import inspect
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faulttolerance import (
    CircuitBreakerOpenException,
    ExecutionContext,
    FaultToleranceDefinitionException,
    Guard,
    TimeoutException,
    apply_guard,
    around_invoke,
    circuit_breakers,
    configure,
    explain,
    fallback,
    guards,
    retry,
    sleep,
)
from faulttolerance._metrics.counters import ledger
from faulttolerance.policies import Bulkhead, CircuitBreaker, Fallback, Retry, Timeout
from faulttolerance.testing import virtual_time


class Moods:
    """A function that fails in a given order."""

    def __init__(self, *moods: Exception | None) -> None:
        self.moods = list(moods)
        self.calls = 0

    def __call__(self, answer: str = "well") -> str:
        self.calls += 1
        mood = self.moods.pop(0) if self.moods else None
        if mood is not None:
            raise mood
        return answer


def test_a_call_runs_under_the_policies_of_the_guard() -> None:
    """A guard guards any function as a decorator guards a method."""
    charge = Moods(OSError("first"))
    guard = Guard(retry=Retry(max_retries=1, jitter=0))

    assert guard.call(charge, "done") == "done"
    assert charge.calls == 2


def test_synchronous_and_asynchronous_calls_share_one_breaker() -> None:
    """A guard has one state for all callers."""
    guard = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=2), name="shared")
    failing = Moods(*[OSError()] * 9)

    async def failing_too() -> None:
        raise OSError

    with pytest.raises(OSError):
        guard.call(failing)
    with pytest.raises(OSError):
        asyncio.run(guard.call_async(failing_too))

    assert circuit_breakers.state("shared") == "open"
    with pytest.raises(CircuitBreakerOpenException):
        guard.call(failing)
    guard.close()


def test_everything_that_one_guard_decorates_shares_its_state() -> None:
    """Two functions under one guard of one permit do not run at once."""
    guard = Guard(bulkhead=Bulkhead(1))
    inner = guard(lambda: "inner")

    @guard
    def outer() -> str:
        return inner()

    with pytest.raises(Exception, match="bulkhead is full"):
        outer()


def test_a_decorated_function_looks_like_itself() -> None:
    """Signature, name and asynchrony survive a guard."""
    guard = Guard(timeout=Timeout(1000))

    @guard
    async def charge(order: int, *, amount: int = 3) -> str:
        """Charge the order."""
        return f"{order}/{amount}"

    assert inspect.iscoroutinefunction(charge)
    assert list(inspect.signature(charge).parameters) == ["order", "amount"]
    assert charge.__doc__ == "Charge the order."
    assert asyncio.run(charge(1)) == "1/3"


def test_a_guard_is_found_by_its_name_when_it_is_made_later() -> None:
    """apply_guard looks the name up when the function is called."""

    @apply_guard("made later")
    def charge() -> str:
        return "done"

    with pytest.raises(KeyError, match="made later"):
        charge()
    guard = Guard(retry=Retry(max_retries=0), name="made later")

    assert charge() == "done"
    guard.close()


def test_a_name_belongs_to_one_guard_until_it_is_given_back() -> None:
    """Two guards of the same name would share keys and breakers."""
    guard = Guard(retry=Retry(), name="taken")
    with pytest.raises(FaultToleranceDefinitionException, match="has the name of another guard"):
        Guard(retry=Retry(), name="taken")
    guard.close()

    Guard(retry=Retry(), name="taken").close()


def test_keys_begin_with_the_name_of_the_guard() -> None:
    """`payments/Retry/maxRetries` is to a guard what `<class>/Retry/maxRetries` is to a class."""
    failing = Moods(*[OSError()] * 9)
    guard = Guard(retry=Retry(max_retries=5, jitter=0), name="payments")
    configure(properties={"payments/Retry/maxRetries": 1})

    with pytest.raises(OSError):
        guard.call(failing)

    assert failing.calls == 2
    assert "payments/Retry/maxRetries" in explain(guard)
    assert "payments" in [one.name for one in guards()]
    guard.close()


def test_a_time_out_of_a_guard_ends_the_call() -> None:
    """Guards interrupt as decorators do."""
    guard = Guard(timeout=Timeout(500))
    with virtual_time() as clock:
        began = clock.monotonic()
        with pytest.raises(TimeoutException):
            guard.call(sleep, 60.0)

        assert clock.monotonic() - began == pytest.approx(0.5)


def test_a_handler_sees_the_function_that_was_called() -> None:
    """The guard belongs to no function, so the context names the one that failed."""
    seen: list[ExecutionContext] = []

    def handle(context: ExecutionContext) -> str:
        seen.append(context)
        return "instead"

    failing = Moods(OSError())
    guard = Guard(fallback=Fallback(handle))

    assert guard.call(failing, "answer") == "instead"
    assert seen[0].args == ("answer",)


def test_a_method_under_a_guard_is_the_target_of_its_context() -> None:
    """The context has the object apart from the arguments."""
    seen: list[ExecutionContext] = []
    guard = Guard(fallback=Fallback(lambda context: seen.append(context)))

    class Client:
        @guard
        def charge(self, order: int) -> None:
            raise OSError

    client = Client()
    client.charge(7)

    assert (seen[0].target, seen[0].args) == (client, (7,))


told = Guard(fallback=Fallback(lambda context: (context.target, *context.args)))


class Told:
    @told
    @staticmethod
    def inside(order: object) -> Any:
        raise OSError

    @staticmethod
    @told
    def outside(order: object) -> Any:
        raise OSError

    @classmethod
    @told
    def of_class(cls, order: object) -> Any:
        raise OSError

    @told
    def of_object(self, order: object) -> Any:
        raise OSError


def test_a_static_method_under_a_guard_has_no_target() -> None:
    """The mark may be on either side of the guard; a class method has its class as target."""
    client = Told()
    for static in (client.inside, Told.inside, client.outside, Told.outside):
        assert static(7) == (None, 7)
        assert static(client) == (None, client)
    assert client.of_class(7) == (Told, 7)
    assert client.of_object(7) == (client, 7)
    assert told.call(Told.of_object, client, 7) == (client, 7)


def test_a_static_method_of_a_local_class_under_a_guard_has_no_target() -> None:
    """An application may define its classes in the function that creates it."""

    class Local:
        @told
        @staticmethod
        def inside(order: object) -> Any:
            raise OSError

        @staticmethod
        @told
        def outside(order: object) -> Any:
            raise OSError

        @told
        def of_object(self, order: object) -> Any:
            raise OSError

    local = Local()
    assert [call(7) for call in (Local.inside, local.inside, Local.outside, local.outside)] == [(None, 7)] * 4
    assert local.of_object(7) == (local, 7)


def test_a_fallback_method_is_refused_where_there_is_no_class() -> None:
    """A guard belongs to no class that could have the method."""
    with pytest.raises(FaultToleranceDefinitionException, match="fallback_method"):
        Guard(fallback=Fallback(fallback_method="instead"))


def test_a_guard_is_shown_as_it_could_be_written() -> None:
    """Its ``repr`` has the parameters' names, as that of policies."""
    ways: list[tuple[dict[str, Any], str]] = [({}, ""), ({"timeout": Timeout(500)}, f"timeout={Timeout(500)!r}, ")]
    for policies, given in ways:
        guard = Guard(**policies, name="shown")
        assert repr(guard) == f"Guard({given}name='shown')"
        guard.close()


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"timeout": 500}, "Guard(timeout)"),
        ({"retry": Retry}, "Guard(retry)"),
        ({"retry": Timeout(500)}, "Guard(retry)"),
        ({"rate_limit": False}, "Guard(rate_limit)"),
        ({"fallback": lambda context: None}, "Guard(fallback)"),
    ],
)
def test_an_object_of_another_kind_than_the_parameter_is_refused(given: dict[str, Any], where: str) -> None:
    """It would guard nothing, silently, or otherwise than meant."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"allowed: \w+\(\.\.\.\) or None") as raised:
        Guard(name="mistaken", **given)

    assert raised.value.where == where
    Guard(name="mistaken").close()


def test_a_class_that_cannot_be_changed_is_refused() -> None:
    """A built-in class takes no policies and no interceptors; the error has the same words as every other one."""
    audited = around_invoke(lambda invocation: invocation.proceed())
    for decorator in (retry, audited):
        with pytest.raises(FaultToleranceDefinitionException, match=r"builtins\.int cannot be changed"):
            decorator(int)


def test_a_fallback_that_raises_its_failure_on_was_not_applied() -> None:
    """The metric distinguishes a substitute from a failure that the fallback let pass."""

    class Client:
        @fallback(fallback_method="instead")
        def charge(self) -> str:
            raise OSError("of another kind")

        def instead(self, error: ValueError) -> str:
            return "instead"

    with pytest.raises(OSError, match="of another kind"):
        Client().charge()

    counts = next(one.counts for one in guards() if one.name.endswith("Client.charge") and any(one.counts.values()))
    counted = {tags: count for (name, tags), count in counts.items() if name == "ft.invocations.total" and count}
    assert counted == {(("result", "exceptionThrown"), ("fallback", "notApplied")): 1}


def test_guards_that_one_line_makes_share_their_counts() -> None:
    """A guard per request leaves no series of its own behind."""
    for _ in range(50):
        guard = Guard(retry=Retry())
        guard.call(len, "x")

    counted = [name for name in ledger.read().counts if name.startswith(f"{__name__}:")]
    assert len(counted) == 1


def test_a_guard_of_a_compiled_module_is_named_after_the_line_that_imports_it() -> None:
    """A module that Cython or mypyc compiled runs without a frame: the next frame is that of the import system."""
    names = {"__name__": "importlib._bootstrap", "Guard": Guard, "retry": retry}

    exec("guard = Guard(retry())", names)

    assert f"name='{__name__}:" in repr(names["guard"])


def test_dir_of_a_guard_has_only_its_interface() -> None:
    """`dir` and an editor's completion offer only names that may be relied upon."""
    guard = Guard(retry=Retry(), name="bare")
    guard.close()

    assert [name for name in dir(guard) if not name.startswith("_")] == [
        "attempt",
        "attempts",
        "call",
        "call_async",
        "close",
        "name",
        "port",
    ]


def used(guard: Guard) -> Guard:
    """Return *guard*, once it has a state."""
    guard.call(len, "")
    return guard


module_guard = Guard(retry=Retry(), bulkhead=Bulkhead(1))


@pytest.mark.parametrize("prepare", [lambda guard: guard, used], ids=["fresh", "used"])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_guard_is_the_guard(copied: Any, prepare: Any) -> None:
    """Its limits and its circuit hold for the copies, too."""
    service = SimpleNamespace(guard=prepare(Guard(bulkhead=Bulkhead(1), name="copied")), order=[1])

    other = copied(service)

    assert other.guard is service.guard
    service.guard.close()


@pytest.mark.parametrize("prepare", [lambda guard: guard, used], ids=["fresh", "used"])
def test_a_guard_is_pickled_by_name_or_by_its_place_in_a_module(prepare: Any) -> None:
    """Functions are pickled so, too: the result is the guard of the process that unpickles it."""
    named = prepare(Guard(retry=Retry(), name="pickled"))

    assert pickle.loads(pickle.dumps(named)) is named
    assert pickle.loads(pickle.dumps(prepare(module_guard))) is module_guard
    gone = pickle.dumps(named)
    named.close()
    with pytest.raises(KeyError, match="no guard is named 'pickled'"):
        pickle.loads(gone)


@pytest.mark.parametrize("prepare", [lambda guard: guard, used], ids=["fresh", "used"])
def test_a_guard_without_a_name_or_a_place_is_not_pickled(prepare: Any) -> None:
    """Another process could not find it."""
    with pytest.raises(TypeError, match="its state belongs to this process"):
        pickle.dumps(prepare(Guard(retry=Retry())))


def test_unpickling_imports_the_module_that_makes_the_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker process may not have imported it yet."""
    monkeypatch.syspath_prepend(tmp_path)
    text = "from faulttolerance import Guard, retry\nnamed = Guard(retry, name='of a module')\nother = Guard()\n"
    (tmp_path / "ft_guards.py").write_text(text)
    module = importlib.import_module("ft_guards")
    pickled = pickle.dumps([module.named, module.other])
    module.named.close()
    del sys.modules["ft_guards"]

    found = pickle.loads(pickled)

    assert found == [sys.modules["ft_guards"].named, sys.modules["ft_guards"].other]
    found[0].close()
    del sys.modules["ft_guards"]
