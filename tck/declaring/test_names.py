"""Each guarded callable has a name of its own: in metrics, in configuration keys, for circuits and in explanations."""

from __future__ import annotations

import enum
import functools
import operator
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    circuit_breaker,
    circuit_breakers,
    configure,
    explain,
    exponential_backoff,
    fallback,
    guards,
    partition_by,
    retry,
    timeout,
)
from faulttolerance.policies import Retry
from kit.program import ALONE, QUIET, python


class Client:
    """A client of another package, as it comes out of a library."""

    def send(self, order: int = 0) -> Any:
        return type(self), order

    def receive(self) -> None: ...

    @classmethod
    def connect(cls, order: int = 0) -> Any:
        return cls, order

    def __call__(self) -> None: ...

    class Cursor:
        def fetch(self) -> None: ...

        def __call__(self) -> None: ...

    resend = functools.partialmethod(send, 1)


class Special(Client):
    pass


def plain(*_: object) -> None: ...


class Named:
    """An object that has a name, as tasks of a queue do."""

    __name__ = "charge"

    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (plain, "plain"),
        (Client().send, "Client.send"),
        (Client().receive, "Client.receive"),
        (Special().send, "Special.send"),
        (Client.connect, "Client.connect"),
        (Special.connect, "Special.connect"),
        (Client.Cursor().fetch, "Client.Cursor.fetch"),
        (Client(), "Client"),
        (Client.Cursor(), "Client.Cursor"),
        (Named(), "charge"),
        (functools.partial(plain, 1), "plain"),
        (functools.partial(functools.partial(plain, 1), 2), "plain"),
        (functools.partial(Special().send, 1), "Special.send"),
        (functools.partial(Client.Cursor()), "Client.Cursor"),
        (Special().resend, "Special.send"),
        (functools.wraps(plain)(functools.partial(Client().send)), "plain"),
        (len, "builtins.len"),
        ([].append, "builtins.list.append"),
        (dict.fromkeys, "builtins.dict.fromkeys"),
        (str.upper, "builtins.str.upper"),
        (functools.partial(max), "builtins.max"),
        (operator.itemgetter(0), "operator.itemgetter"),
    ],
)
def test_a_callable_of_any_kind_is_named_by_the_code_that_it_runs(call: Callable[..., Any], name: str) -> None:
    """A bound method by the class of its object, a partial object by its function, an object by its class."""
    guarded = retry(call)

    expected = name if name.startswith(("builtins.", "operator.")) else f"{__name__}.{name}"
    assert [one.name for one in guards() if one.method is guarded] == [expected]
    assert explain(guarded).startswith(expected)
    assert guarded.__name__ == name.rpartition(".")[2]
    assert guarded.__module__ is None or expected.startswith(guarded.__module__)


def test_a_guard_names_its_callables_likewise() -> None:
    """Frameworks register functions by their names."""
    guard = Guard(retry=Retry(max_retries=1))

    assert guard(functools.partial(plain, 1)).__name__ == "plain"  # type: ignore[attr-defined]
    assert guard(Client().send).__name__ == "send"


def test_counts_of_two_bound_methods_are_kept_apart() -> None:
    """Each has its series, under the name of its method."""
    send, receive = retry(Client().send), retry(Client().receive)
    send()
    send()
    receive()

    counts = {one.name: one.counts for one in guards() if one.method in (send, receive)}
    returned = ("ft.invocations.total", (("result", "valueReturned"), ("fallback", "notDefined")))
    assert {name: found[returned] for name, found in counts.items()} == {
        f"{__name__}.Client.send": 2,
        f"{__name__}.Client.receive": 1,
    }


def test_a_bound_method_is_configured_by_its_class_and_name() -> None:
    """The key is that of a method that is guarded in its class; other methods do not follow it."""
    send, special, partly = retry(Client().send), retry(Special().send), retry(functools.partial(plain))
    configure(properties={f"{__name__}.Client/send/Retry/maxRetries": 7, f"{__name__}/plain/Retry/maxRetries": 8})

    assert "maxRetries = 7" in explain(send)
    assert "maxRetries = 3" in explain(special, all=True)
    assert "maxRetries = 8" in explain(partly)


def test_circuits_of_bound_methods_have_names_of_their_own() -> None:
    """One can be opened without the other."""
    send, receive = circuit_breaker(Client().send), circuit_breaker(Client().receive)
    send()
    receive()

    circuit_breakers.force_open(f"{__name__}.Client.send")

    assert circuit_breakers.state(f"{__name__}.Client.receive") == "closed"
    assert receive() is None


class Guarded:
    @timeout(9000)
    def send(self, order: int = 0) -> Any:
        return type(self), order

    @classmethod
    @timeout(9000)
    def connect(cls, order: int = 0) -> Any:
        return cls, order


class AlsoGuarded(Guarded):
    pass


def test_a_bound_method_of_a_guard_keeps_its_object() -> None:
    """A method that is guarded once more still is a method of that object, under both policies."""
    for bound in (AlsoGuarded().send, AlsoGuarded.connect):
        assert retry(bound)(5) == (AlsoGuarded, 5)
        assert retry(bound)() == (AlsoGuarded, 0)

    with pytest.raises(FaultToleranceDefinitionException, match="is present twice"):
        timeout(1000)(AlsoGuarded().send)


@pytest.mark.outside
def test_functions_of_a_program_are_named_by_its_module(tmp_path: Path) -> None:
    """Under ``-m``, a module's functions have the same prefix in names and keys as the methods of its classes."""
    (tmp_path / "billing.py").write_text(
        "from faulttolerance import guards, retry\n"
        "@retry\n"
        "def charge(): ...\n"
        "class Client:\n"
        "    @retry\n"
        "    def charge(self): ...\n"
        "print(*(one.name for one in guards()))\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "billing"], capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path
    )

    assert (done.stdout.strip(), done.stderr) == ("billing.charge billing.Client.charge", "")


@pytest.mark.outside
def test_a_class_of_a_program_covers_the_methods_of_its_package(tmp_path: Path) -> None:
    """Under ``-m`` the same ones as when the module is imported: those of the modules beside it, too."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "base.py").write_text("class Base:\n    def charge(self): ...\n")
    (package / "billing.py").write_text(
        "from faulttolerance import guards, retry\n"
        "from shop.base import Base\n"
        "@retry\n"
        "class Client(Base): ...\n"
        "print(*(one.name for one in guards()))\n"
    )
    runs = [
        subprocess.run([sys.executable, *how], capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
        for how in (["-c", "import shop.billing"], ["-m", "shop.billing"])
    ]

    assert [(done.stdout.strip(), done.stderr) for done in runs] == [("shop.billing.Client.charge", "")] * 2


PROGRAM = """
import multiprocessing, sys
from faulttolerance import Guard, guards, retry
tries = []
@retry(jitter=0, retry_on=OSError)
def charge(): tries.append(1); raise OSError
class Client:
    @retry
    def charge(self): ...
class Special(Client): ...
guard = Guard(retry)
try: charge()
except OSError: pass
def show():
    Special().charge(), guard.call(int)
    print(*(guard.name for guard in guards()), len(tries), flush=True)
if __name__ == "__main__":
    show()
    for worker in [multiprocessing.get_context(method).Process(target=show) for method in sys.argv[1:]]:
        worker.start(), worker.join()
"""


def names_in(module: str) -> str:
    return " ".join(f"{module}.{name}" for name in ("charge", "Client.charge", "Special.charge")) + f" {module}:12"


@pytest.mark.outside
@pytest.mark.parametrize(
    ("program", "module", "key"),
    [
        ("-m shop.billing", "shop.billing", "SHOP_BILLING_CHARGE_RETRY_MAXRETRIES"),
        ("-m shop.billing", "shop.billing", "__MAIN___CHARGE_RETRY_MAXRETRIES"),
        ("shop/billing.py", "__main__", "__MAIN___CHARGE_RETRY_MAXRETRIES"),
    ],
)
def test_a_program_has_the_same_names_and_keys_in_workers_that_it_spawns(
    program: str, module: str, key: str, tmp_path: Path
) -> None:
    """Multiprocessing imports the program there once more, as ``__mp_main__``; its first call reads the keys, too."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "billing.py").write_text(QUIET + PROGRAM, encoding="utf-8")

    *options, name = program.split()
    done = python(Path(name), *options, arguments=("spawn",), folder=tmp_path, environment={**ALONE, key: "1"})

    assert (done.stdout.splitlines(), done.stderr) == ([f"{names_in(module)} 2"] * 2, "")


@pytest.mark.outside
def test_a_tool_that_runs_a_program_gives_it_no_names(tmp_path: Path) -> None:
    """The module that is run is the tool, and the program is a namespace of its own."""
    (tmp_path / "billing.py").write_text(QUIET + PROGRAM, encoding="utf-8")

    done = python(Path("billing.py"), "-m", "cProfile", "-o", "profile", folder=tmp_path, environment=ALONE)

    assert (done.stdout.strip(), done.stderr) == (f"{names_in('__main__')} 4", "")


def test_members_of_enumerations_stand_for_their_texts_and_numbers() -> None:
    """Keys, metrics and explanations contain the value of a member, and not its name."""

    class Name(str, enum.Enum):  # noqa: UP042  # unlike a StrEnum, it is formatted by its own name
        PAYMENTS = "payments"
        CARDS = "cards"
        KEY = "customer"

    class Number(enum.IntEnum):
        FEW = 2

    guard = Guard(retry(max_retries=Number.FEW), name=Name.PAYMENTS)
    call = retry(max_retries=9)(circuit_breaker(name=Name.CARDS, request_volume_threshold=Number.FEW)(lambda: 1))
    divided = partition_by([Name.KEY])(lambda customer: customer)
    growing = retry(exponential_backoff(factor=Number.FEW, max_delay=9)(fallback([Name.CARDS, Name.KEY])(lambda: 1)))
    configure(properties={"payments/Retry/delay": 7})

    assert "key = customer " in explain(divided)
    assert "factor = 2 " in explain(growing, all=True)
    assert "value = cards,customer " in explain(growing)
    assert "delay = 7ms " in explain(guard)
    assert "maxRetries = 2 " in explain(guard)
    assert "requestVolumeThreshold = 2 " in explain(call)
    assert "name = cards " in explain(call)
    assert {type(one.name) for one in guards()} == {str}
    guard.close()
