"""Names of similar circuits: guards of one line, and modules that are loaded again."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from faulttolerance import (
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Guard,
    circuit_breaker,
    circuit_breaker_name,
    circuit_breakers,
    configure,
    explain,
    guards,
    partition_by,
    testing,
    unguarded,
    validate,
)
from faulttolerance._metrics.counters import ledger
from faulttolerance.policies import CircuitBreaker, Retry

BREAKER = CircuitBreaker(request_volume_threshold=1)


def fail() -> None:
    raise OSError


def make() -> Guard:
    return Guard(circuit_breaker=BREAKER)


def opened(guard: Guard) -> Guard:
    with pytest.raises(OSError):
        guard.call(fail)
    return guard


def states() -> dict[str, str]:
    """Return the states of the circuits of this file, by the end of their names."""
    return {
        name.rpartition(":")[2]: circuit_breakers.state(name)
        for name in circuit_breakers.names()
        if name.startswith(f"{__name__}:")
    }


# Guards of one line


def test_each_guard_that_one_line_makes_is_shown_and_steered_by_itself() -> None:
    """A dictionary may have one per host."""
    hosts = {host: Guard(circuit_breaker=BREAKER) for host in ("one", "two", "three")}
    line = hosts["one"].name.rpartition(":")[2]

    opened(hosts["one"])
    circuit_breakers.force_open(hosts["three"].name)
    before = states()
    circuit_breakers.reset(hosts["one"].name)

    assert [guard.name.rpartition(":")[2] for guard in hosts.values()] == [line, f"{line}#2", f"{line}#3"]
    assert before == {line: "open", f"{line}#2": "closed", f"{line}#3": "open"}
    assert states()[line] == "closed"
    with pytest.raises(CircuitBreakerOpenException, match=rf"{line}#3: circuit breaker is open"):
        hosts["three"].call(fail)


def test_explain_and_guards_call_each_by_its_name() -> None:
    """Messages and the log use the same names."""
    one, two = make(), make()

    assert explain(two).startswith(two.name)
    assert {one.name, two.name} <= {guard.name for guard in guards()}
    assert repr(two).endswith(f"name={two.name!r})")


def test_cells_of_a_notebook_make_guards_of_different_names() -> None:
    """The first line of each cell is line 1 of the same module; a cell that runs again replaces its own guard."""
    namespace = {"__name__": "cells", "BREAKER": BREAKER, "Guard": Guard}

    def run(cell: int) -> Guard:
        exec(compile(f"guard_{cell} = Guard(circuit_breaker=BREAKER)", f"<cell {cell}>", "exec"), namespace)
        return namespace[f"guard_{cell}"]  # type: ignore[return-value]

    first, second = opened(run(1)), run(2)
    assert (first.name, second.name) == ("cells:1", "cells:1#2")
    assert circuit_breakers.state(first.name) == "open"
    assert run(1).name == first.name


def test_a_number_is_free_again_when_the_guard_is_gone() -> None:
    """One guard per request always has the same name, and leaves nothing behind."""
    first = make().name
    gc.collect()
    names = set()

    for _ in range(50):
        guard = opened(make())
        names.add(guard.name)
        del guard
        gc.collect()

    assert names == {first}
    assert states() == {}


def test_the_lowest_number_is_given_first() -> None:
    """Names do not change while guards come and go."""
    kept = [make() for _ in range(4)]
    names = [guard.name for guard in kept]
    del kept[1:3]
    gc.collect()

    assert [make_and_keep.name for make_and_keep in (kept.append(make()) or kept[-1] for _ in range(3))] == [
        names[1],
        names[2],
        names[0] + "#5",
    ]


def test_threads_that_make_guards_at_once_get_different_names() -> None:
    """A number that becomes free goes to one of them."""

    def work(_: int) -> list[Guard]:
        found = []
        for _ in range(100):
            found = [make(), make(), *found[:3]]
        return found

    with ThreadPoolExecutor(8) as pool:
        kept = [guard for found in pool.map(work, range(8)) for guard in found]

    names = [guard.name for guard in kept]
    assert len(set(names)) == len(names)


def test_metrics_of_guards_of_one_line_add_up() -> None:
    """One series per request would have no end."""
    made = [Guard(retry=Retry(max_retries=0)) for _ in range(3)]
    line = made[0].name
    for guard in made:
        guard.call(int)

    counted = {name: counts for name, counts in ledger.read().counts.items() if name.startswith(line)}

    assert list(counted) == [line]
    assert sum(count for (name, _), count in counted[line].items() if name == "ft.invocations.total") == 3


# Modules that are loaded again


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Write a module, and load it, or load it again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "loaded_again"

    def load(text: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(
            f"from faulttolerance import *\nfrom faulttolerance.policies import *\n{text}"
        )
        importlib.invalidate_caches()
        return importlib.reload(sys.modules[name]) if name in sys.modules else importlib.import_module(name)

    yield load
    sys.modules.pop(name, None)


MODULES = {
    "function": ("def charge(): raise OSError", "loaded_again.charge"),
    "named": ("def charge(): raise OSError", "charging"),
    "Guard": ("guard = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=1))", "loaded_again:3"),
    "named Guard": (
        "guard = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=1), name='charging guard')",
        "charging guard",
    ),
}


@pytest.mark.parametrize("kind", MODULES)
def test_a_name_reaches_the_circuit_of_the_module_that_was_loaded_last(kind: str, load: Any) -> None:
    """Also before its first call, and beside the old function in use, whose circuit is reached as well."""
    text, name = MODULES[kind]
    above = "@circuit_breaker_name('charging')\n" if kind == "named" else ""
    if kind in ("function", "named"):
        text = f"{above}@circuit_breaker(request_volume_threshold=1)\n{text}"

    def call(module: dict[str, Any]) -> None:
        module["guard"].call(fail) if "guard" in module else module["charge"]()

    old = dict(vars(load(text)))
    with pytest.raises(OSError):
        call(old)
    assert circuit_breakers.state(name) == "open"

    new = vars(load(f"{text}\n# changed"))
    before = circuit_breakers.state(name)
    circuit_breakers.force_open(name)

    assert before == "closed"
    for module in (new, old):
        with pytest.raises(CircuitBreakerOpenException):
            call(module)
    circuit_breakers.reset(name)
    for module in (new, old):
        with pytest.raises(OSError):
            call(module)
    if "guard" in new:
        new["guard"].close()


def test_circuits_of_a_function_that_is_made_more_than_once_are_all_steered() -> None:
    """The functions of a factory share a name."""

    def factory() -> Callable[[], None]:
        @circuit_breaker(request_volume_threshold=1)
        def charge() -> None:
            raise OSError

        return charge

    made = [factory() for _ in range(3)]
    name = f"{__name__}.{made[0].__qualname__}"

    circuit_breakers.force_open(name)

    for charge in made:
        with pytest.raises(CircuitBreakerOpenException):
            charge()
    circuit_breakers.reset(name)
    for charge in made:
        with pytest.raises(OSError):
            charge()


# The name that a declaration gives


def named_by_the_policy(name: str) -> Callable[[], None]:
    @circuit_breaker(name=name, request_volume_threshold=1)
    def charge() -> None:
        raise OSError

    return charge


def named_by_both(name: str) -> Callable[[], None]:
    return circuit_breaker_name(name)(named_by_the_policy(name))


def named_on_the_class(name: str) -> Callable[[], None]:
    @circuit_breaker(name=name, request_volume_threshold=1)
    class Client:
        def charge(self) -> None:
            raise OSError

    return Client().charge


def named_in_a_guard(name: str) -> Callable[[], None]:
    return Guard(circuit_breaker(name=name, request_volume_threshold=1))(fail)


@pytest.mark.parametrize("make", [named_by_the_policy, named_by_both, named_on_the_class, named_in_a_guard])
def test_a_circuit_is_found_by_the_name_that_its_policy_has(make: Callable[[str], Callable[[], None]]) -> None:
    charge = make(make.__name__)

    with pytest.raises(OSError):
        charge()

    assert circuit_breakers.state(make.__name__) == "open"
    circuit_breakers.reset(make.__name__)
    with pytest.raises(OSError):
        charge()


def two_on_a_function() -> None:
    @circuit_breaker_name("paying")
    @circuit_breaker(name="billing")
    def charge() -> None: ...


def two_on_a_class() -> None:
    @circuit_breaker_name("paying")
    class Client:
        @circuit_breaker(name="billing")
        def charge(self) -> None: ...


def two_in_a_guard() -> None:
    Guard(circuit_breaker_name("paying"), circuit_breaker(name="billing"))


@pytest.mark.parametrize("declare", [two_on_a_function, two_on_a_class, two_in_a_guard])
def test_two_names_of_one_circuit_are_refused(declare: Callable[[], None]) -> None:
    words = r"@CircuitBreakerName\(value\) is 'paying', and @CircuitBreaker\(name\) is 'billing'; allowed: one name"
    with pytest.raises(FaultToleranceDefinitionException, match=words):
        declare()


def test_a_name_that_a_circuit_has_is_refused_by_the_next() -> None:
    first, second = named_by_the_policy("given twice"), Guard(circuit_breaker(name="given twice"))
    with pytest.raises(OSError):
        first()

    with pytest.raises(
        FaultToleranceDefinitionException, match=r"@CircuitBreaker\(name\) is 'given twice', the name of the breaker of"
    ):
        second.call(fail)


# The names that ``validate`` finds


def given_twice_to_functions() -> list[object]:
    return [named_by_the_policy("shared") for _ in "12"] + [named_on_the_class("shared")]


def given_twice_to_a_function_and_a_guard() -> list[object]:
    return [named_by_the_policy("shared"), Guard(circuit_breaker(name="shared"))]


def given_to_two_methods_by_their_class() -> list[object]:
    @circuit_breaker(name="shared")
    class Client:
        def charge(self) -> None: ...

        def refund(self) -> None: ...

    return [Client]


@pytest.mark.parametrize(
    "make", [given_twice_to_functions, given_twice_to_a_function_and_a_guard, given_to_two_methods_by_their_class]
)
@pytest.mark.parametrize("is_called", [False, True])
def test_a_name_of_two_circuits_is_found_before_a_call_fails(make: Callable[[], list[Any]], is_called: bool) -> None:
    """Whether or not one of them was called: the next call of another would be refused (rule R9)."""
    kept = make()
    if is_called and not isinstance(kept[0], type):
        with pytest.raises(OSError):
            kept[0]()

    with pytest.raises(FaultToleranceDefinitionException, match=r"is 'shared', the name of the breaker of") as refused:
        validate()

    assert len(refused.value.faults) == 1


@pytest.mark.parametrize("is_called", [False, True])
def test_classes_that_inherit_a_circuit_with_a_name_may_be_the_only_ones_that_are_used(is_called: bool) -> None:
    """A base class that nothing calls takes no name, and neither does a fake of a test."""

    @circuit_breaker(name="inherited")
    class Base:
        def charge(self) -> None: ...

        @unguarded
        def close(self) -> None: ...

    class Client(Base):
        def charge(self) -> None: ...

    class Gateway:
        @circuit_breaker(name="of the gateway")
        def charge(self) -> None: ...

    class Used(Gateway): ...

    if is_called:
        Client().charge()
        Used().charge()

    assert validate() == []


# Questions


@pytest.fixture
def nothing_else() -> Iterator[None]:
    """Remove guards of other tests."""
    gc.collect()
    testing.reset()
    yield
    testing.reset()


@pytest.mark.usefixtures("nothing_else")
def test_a_question_for_a_circuit_that_nothing_has_called_changes_nothing() -> None:
    """The switches of the application are still open, no series is registered, and the answer is that of a new one."""

    @partition_by("host")
    @circuit_breaker
    def divided(host: str) -> None: ...

    name, keyed = f"{__name__}.{never_called.__qualname__}", f"{__name__}.{divided.__qualname__}"
    guard = Guard(circuit_breaker=BREAKER, name="never called")

    answers = {circuit_breakers.state(one) for one in (name, keyed, guard.name)}
    assert {name, keyed, guard.name} <= {*circuit_breakers.names()}
    assert answers == {circuit_breakers.state(keyed, key="a")} == {"closed"}
    assert circuit_breakers.snapshot(name)[:3] == (name, "closed", False)
    with pytest.raises(KeyError, match="have no keys"):
        circuit_breakers.state(name, key="a")

    assert explain(never_called)
    assert next(guards(name)).counts == {}
    assert not ledger.read().counts
    configure(properties={"MP_Fault_Tolerance_NonFallback_Enabled": False})
    assert guard.call(int) == 0
    assert [one.disabled for one in guards(guard.name)] == [("CircuitBreaker",)]
    guard.close()


@circuit_breaker(fail_on=OSError)
def never_called() -> None: ...


def test_the_fault_of_one_guard_stops_no_question_for_another() -> None:
    """Only a call of it, or a change of its circuit, raises its fault."""
    sound = named_by_the_policy("sound")
    first = named_by_the_policy("taken")
    with pytest.raises(OSError):
        first()
    second = Guard(circuit_breaker(name="taken"), name="second")

    assert {"sound", "taken", "second"} <= {*circuit_breakers.names()}
    for ask in (circuit_breakers.state, circuit_breakers.snapshot, circuit_breakers.reset):
        with pytest.raises(KeyError, match="unheard of"):
            ask("unheard of")
    circuit_breakers.force_closed("sound")
    with pytest.raises(OSError):
        sound()
    with pytest.raises(FaultToleranceDefinitionException, match="taken"):
        circuit_breakers.reset("second")
    second.close()
