"""Ports: clients whose methods run under a guard."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from collections.abc import Iterator
from typing import Any, Self
from unittest.mock import create_autospec

import pytest

pytest.importorskip("wrapt")

from faulttolerance import CircuitBreakerOpenException, Guard, circuit_breakers, remaining
from faulttolerance.policies import Bulkhead, CircuitBreaker, PartitionBy, Retry, Timeout
from kit.definition import refused
from kit.program import python


class Client:
    """A client as other packages write it."""

    version = 3

    class Problem(Exception):
        pass

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.calls: list[str] = []

    def get_item(self, name: str, *, function: str = "", self_: int = 0) -> str:
        self.calls.append(name)
        if len(self.calls) <= self.failures:
            raise ConnectionError(name)
        return f"{name}{function} {remaining() is not None}"

    async def get_later(self, name: str) -> str:
        await asyncio.sleep(0)
        return self.get_item(name)

    def pages(self) -> Iterator[int]:
        yield 1

    @property
    def is_ready(self) -> bool:
        self.calls.append("ready?")
        return True

    @staticmethod
    def parse(text: str) -> int:
        return int(text)

    def _secret(self) -> bool:
        return remaining() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append("closed")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.calls.append("closed")

    def __repr__(self) -> str:
        return "Client()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Client) and other.failures == self.failures

    def __hash__(self) -> int:
        return 1

    def __len__(self) -> int:
        return 7


def guard(**policies: Any) -> Guard:
    return Guard(retry=Retry(max_retries=2, jitter=0), timeout=Timeout(60_000), **policies)


def test_methods_run_under_the_guard() -> None:
    """By rule Y3, all kinds of public callables do, with any keywords."""
    client = Client(failures=2)
    port = guard().port(client)

    assert port.get_item("a", function="!", self_=1) == "a! True"
    assert client.calls == ["a", "a", "a"]
    assert asyncio.run(port.get_later("b")) == "b True"
    assert port.parse("7") == 7
    assert inspect.iscoroutinefunction(port.get_later)
    assert not inspect.iscoroutinefunction(port.get_item)


def test_methods_of_a_mock_run_under_the_guard() -> None:
    """A mock that has the specification of a client shows the attributes of functions, which are mocks, too."""
    client = create_autospec(Client, instance=True)
    client.get_item.side_effect = client.get_later.side_effect = [ConnectionError, ConnectionError, "a", "b"]
    port = guard().port(client)

    assert (port.get_item("a"), asyncio.run(port.get_later("b"))) == ("a", "a")


def test_all_else_is_the_clients() -> None:
    """By rule Y3, generator functions, classes, attributes, isinstance, repr and pickles are as without it."""
    client = Client()
    port = guard().port(client)

    assert list(port.pages()) == [1]
    assert (port.version, port.Problem, port.is_ready, len(port)) == (3, Client.Problem, True, 7)
    assert port._secret()
    assert isinstance(port, Client)
    assert (repr(port), repr(port.get_item), port, hash(port)) == ("Client()", repr(client.get_item), client, 1)
    assert type(pickle.loads(pickle.dumps(port))) is Client
    port.failures = 5
    assert client.failures == 5
    assert port.get_item.__name__ == "get_item"
    assert inspect.signature(port.get_item) == inspect.signature(client.get_item)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_a_port_of_a_copy(copied: Any) -> None:
    """By rule Y3, a copy is guarded as well, with the same state."""
    client = Client(failures=1)
    port = copied(guard().port(client))

    assert port.get_item("a") == "a True"
    assert port.__wrapped__ is not client


def test_a_block_gives_the_port() -> None:
    """By rule Y3, the value of ``with`` is guarded, where the client returns itself."""
    port = guard().port(Client(failures=1))
    with port as entered:
        assert entered.get_item("a") == "a True"

    async def main() -> str:
        async with port as entered:
            return await entered.get_later("b")

    assert asyncio.run(main()) == "b True"
    assert port.calls == ["a", "a", "closed", "b", "closed"]


def test_all_methods_share_a_state() -> None:
    """By rule Y3, a method that fails opens the circuit of all, and permits are shared."""
    shared = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=2), bulkhead=Bulkhead(1), name="port-state")
    try:
        port = shared.port(Client(failures=2))
        for _ in range(2):
            with pytest.raises(ConnectionError):
                port.get_item("a")

        with pytest.raises(CircuitBreakerOpenException):
            port.parse("7")
        assert circuit_breakers.state("port-state") == "open"
    finally:
        shared.close()


def test_methods_are_chosen_by_names_and_patterns() -> None:
    """By rule Y3, other methods pass through."""
    client = Client(failures=1)
    port = guard().port(client, methods=["get_*", "parse"])
    assert port.get_item("a") == "a True"

    port = guard().port(Client(failures=1), methods="parse")
    with pytest.raises(ConnectionError):
        port.get_item("a")


def test_patterns_find_the_methods_of_a_client_in_a_port() -> None:
    """By rule Y3, each of several guards has its own methods of one client."""
    client = Client(failures=1)
    port = guard().port(Guard(retry=Retry(max_retries=0)).port(client, "pars*"), "get_*")

    assert client.calls == []
    assert (port.get_item("a"), port.parse("7")) == ("a True", 7)


@pytest.mark.parametrize(
    "methods", ["get_itm", "pages", "is_ready", "_secret", "version", "Problem", "x*", [], [1], 1, b"parse", ""]
)
def test_a_name_or_pattern_without_a_match_is_refused(methods: Any) -> None:
    """By rule Y3, a name that no method has is a mistake."""
    with refused("port(methods)"):
        guard().port(Client(), methods)
    with refused("did you mean 'get_item'"):
        guard().port(Client(), "get_itm")


@pytest.mark.parametrize("methods", ["is_*", "is_ready"])
def test_the_check_of_names_and_patterns_runs_no_property(methods: str) -> None:
    """A property of a client may connect, and the server may be down when the service starts."""
    client = Client()

    for each in (client, guard().port(client)):
        with refused("which matches nothing"):
            guard().port(each, methods)

    assert client.calls == []


def test_a_callable_client_is_guarded_as_a_callable() -> None:
    """Rule Y3: its call is a guarded call, unless ``methods`` name others; a class makes objects as before."""

    class Ask:
        def __call__(self, question: str, /, **words: object) -> object:
            return question, words, remaining() is not None

        def again(self) -> bool:
            return remaining() is not None

    async def asked() -> bool:
        return remaining() is not None

    ask = guard().port(Ask())
    for port in (ask, copy.copy(ask), copy.deepcopy(ask)):
        assert port("why?", self=1) == ("why?", {"self": 1}, True)
        assert port.again()
    assert guard().port(Ask(), ["again"])("why?") == ("why?", {}, False)
    assert guard().port(lambda: remaining() is not None)()
    assert asyncio.run(guard().port(asked)())
    assert type(guard().port(Ask)()) is Ask
    assert not callable(guard().port(Client()))


def test_names_guard_methods_that_a_client_does_not_list() -> None:
    """By rule Y3, a proxy of a server, which lists no methods, is guarded by the given names."""

    class Server:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return lambda: (name, remaining() is not None)

    assert guard().port(Server(), ["system"]).system() == ("system", True)
    assert guard().port(Server()).anything() == ("anything", True)


def test_a_partitioned_guard_finds_the_parameters_of_methods() -> None:
    """Rules Y3 and N1: a port of a client that talks to many hosts has a circuit for each."""
    per_host = Guard(partition_by=PartitionBy("name"), circuit_breaker=CircuitBreaker(request_volume_threshold=2))
    port = per_host.port(Client(failures=2), "get_item")
    for _ in range(2):
        with pytest.raises(ConnectionError):
            port.get_item("bad")

    with pytest.raises(CircuitBreakerOpenException):
        port.get_item("bad")
    assert port.get_item("good").startswith("good")


@pytest.mark.outside
def test_without_wrapt_the_error_names_the_package_to_install() -> None:
    """By rule Y3, only ports need it."""
    program = """
    import sys
    sys.modules["wrapt"] = None
    from faulttolerance import Guard
    guard = Guard()
    print(guard.call(int, "7"))
    try:
        guard.port([])
    except ImportError as error:
        print(error)
    """
    done = python(program)

    assert done.stdout.startswith("7\na port needs wrapt: ")
    assert "faulttolerance[patch]" in done.stdout
