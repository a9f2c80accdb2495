"""The address and the values of a fleet, and the texts about them: URLs, clients, values, passwords."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from faulttolerance import FaultToleranceDefinitionException, RedisFleet
from faulttolerance._extensions.fleet.server.address import Address, address_of_client, address_of_url
from kit.program import python

pytestmark = pytest.mark.outside

redis = pytest.importorskip("redis")
asyncio_redis = pytest.importorskip("redis.asyncio")

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "kind", "hosts", "shown"),
    [
        ("redis://", "plain", [("localhost", 6379)], "redis://localhost:6379"),
        ("redis://cache", "plain", [("cache", 6379)], "redis://cache:6379"),
        ("redis://u:hunter2@cache:7000/3", "plain", [("cache", 7000)], "redis://cache:7000/3"),
        ("redis://cache?db=3&password=hunter2", "plain", [("cache", 6379)], "redis://cache:6379/3"),
        ("redis://cache/1?db=3", "plain", [("cache", 6379)], "redis://cache:6379/3"),
        ("rediss://:hunter2@[::1]:7000", "plain", [("::1", 7000)], "rediss://[::1]:7000"),
        ("redis://[::1]", "plain", [("::1", 6379)], "redis://[::1]:6379"),
        ("unix://u:hunter2@/run/redis.sock?db=1", "unix", [("/run/redis.sock", 0)], "unix:///run/redis.sock"),
        (
            "redis+sentinel://u:hunter2@a,b:27000/shop/2?sentinel_password=hunter2",
            "sentinel",
            [("a", 26379), ("b", 27000)],
            "redis+sentinel://a:26379,b:27000/shop/2",
        ),
        ("rediss+cluster://u:p%40ss@a:1,b:2", "cluster", [("a", 1), ("b", 2)], "rediss+cluster://a:1,b:2"),
    ],
)
def test_urls_are_read(url: str, kind: str, hosts: list[Any], shown: str) -> None:
    address = address_of_url(url)

    assert (address.kind, list(address.hosts), str(address)) == (kind, hosts, shown)
    assert repr(RedisFleet(url, namespace="shop")) == f"RedisFleet({shown!r}, namespace='shop')"


def test_escapes_of_a_url_are_decoded() -> None:
    address = address_of_url(
        "rediss://us%20er:p%40s%2Fs@cache/0?client_name=me&ssl_check_hostname=false&max_connections=9"
    )

    assert address.settings == {
        "username": "us er",
        "password": "p@s/s",
        "db": 0,
        "client_name": "me",
        "ssl_check_hostname": False,
    }


def master_for() -> Any:
    from redis.sentinel import Sentinel

    sentinel = Sentinel([("a", 1), ("b", 2)], sentinel_kwargs={"password": "other"}, password=SECRET)
    return sentinel.master_for("shop", db=2)


def with_settings_of(found: Address, wanted: Address) -> Address:
    """Return *found* with those of its settings that *wanted* has, too; the version of redis-py adds others."""
    settings = {name: value for name, value in found.settings.items() if name in wanted.settings}
    sentinel = found.sentinel and wanted.sentinel and with_settings_of(found.sentinel, wanted.sentinel)
    return found._replace(settings=settings, sentinel=sentinel)


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (
            lambda: redis.Redis("cache", 7000, 3, password=SECRET, socket_timeout=99, decode_responses=True),
            Address("plain", False, (("cache", 7000),), {"db": 3, "password": SECRET}),
        ),
        (
            lambda: redis.Redis.from_url("rediss://cache?ssl_ca_certs=/ca"),
            Address("plain", True, (("cache", 6379),), {"ssl_ca_certs": "/ca"}),
        ),
        (
            lambda: redis.Redis("cache", ssl=True, ssl_ca_certs="/ca"),
            Address("plain", True, (("cache", 6379),), {"db": 0, "ssl_ca_certs": "/ca"}),
        ),
        (
            lambda: redis.Redis(unix_socket_path="/run/redis.sock"),
            Address("unix", False, (("/run/redis.sock", 0),), {"db": 0}),
        ),
        (
            master_for,
            Address(
                "sentinel",
                False,
                (("a", 1), ("b", 2)),
                {"db": 2, "password": SECRET},
                "shop",
                Address("plain", False, (("a", 1),), {"db": 0, "password": "other"}),
            ),
        ),
    ],
    ids=["plain", "encrypted by its URL", "encrypted", "unix", "sentinel"],
)
def test_the_server_and_the_user_are_taken_from_a_client(client: Callable[[], Any], address: Address) -> None:
    """Its time-outs and its way to read answers are not taken."""
    found = address_of_client(client())

    assert with_settings_of(found, address) == address
    assert not {"socket_timeout", "decode_responses", "retry"} & found.settings.keys()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("cache:6379", r"is a text without ://, which has an unknown scheme"),
        ("http://u:hunter2@cache", r"is http://..., which has an unknown scheme"),
        ("unix+cluster:///run/hunter2", r"which has an unknown scheme"),
        ("redis://u:hunter2@cache:port", r"is redis://..., which redis-py cannot read"),
        ("redis://:hunter2/hunter2@cache", r"which redis-py cannot read"),
        ("redis://cache:99999", r"is redis://..., which redis-py cannot read"),
        ("redis://cache/hunter2", r"which has hosts or a path that do not fit its scheme"),
        ("redis://a,b", r"which has hosts or a path that do not fit its scheme"),
        ("unix://", r"which has hosts or a path that do not fit its scheme"),
        ("redis+sentinel://a,b", r"which has hosts or a path that do not fit its scheme"),
        ("redis+cluster://a/1", r"which has hosts or a path that do not fit its scheme"),
        ("rediss://cache?ssl_hunter2=1", r"and no connection can be created from it \(TypeError\)"),
        ("redis://[hunter2", r"is redis://..., which redis-py cannot read"),
        (b"redis://u:hunter2@cache", r"is a builtins.bytes, which is no synchronous client"),
        (None, r"is a builtins.NoneType, which is no synchronous client"),
    ],
)
def test_a_value_that_names_no_server_is_refused(given: Any, problem: str) -> None:
    """Rule X9: the error shows nothing that may be a password."""
    with pytest.raises(FaultToleranceDefinitionException, match=problem) as caught:
        RedisFleet(given, namespace="shop")

    assert "allowed: a URL that begins with redis://" in str(caught.value)
    assert SECRET not in f"{caught.value} {caught.value.got} {caught.value!r}"


class Fake(redis.Connection):  # type: ignore[misc, name-defined]
    """A connection of a double of a server."""


@pytest.mark.parametrize(
    ("client", "problem"),
    [
        (lambda: asyncio_redis.Redis(), "is a redis.asyncio.client.Redis, which is no synchronous client"),
        (lambda: redis.ConnectionPool(), "is no synchronous client of redis-py"),
        (lambda: redis.sentinel.Sentinel([("a", 1)]), "is no synchronous client of redis-py"),
        (lambda: redis.sentinel.Sentinel([("a", 1)]).slave_for("shop"), "is a client of replicas"),
        (lambda: redis.Redis(connection_pool=redis.ConnectionPool(Fake)), "has connections of an unknown kind"),
    ],
    ids=["asyncio", "pool", "sentinel", "replicas", "double"],
)
def test_clients_that_do_not_fit_are_refused(client: Callable[[], Any], problem: str) -> None:
    """Rule X9."""
    with pytest.raises(FaultToleranceDefinitionException, match=problem):
        RedisFleet(client(), namespace="shop")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"namespace": ""}, "namespace"),
        *(({"namespace": name}, "namespace") for name in (" shop", "sh{op", "}", "a\nb", "a" * 201, None, 5, b"shop")),
        ({"poll": 0}, "poll"),
        ({"poll": "often"}, "poll"),
        ({"patience": 0}, "patience"),
        ({"patience": -1}, "patience"),
        ({"patience": timedelta()}, "patience"),
        ({"patience": float("inf")}, "patience"),
        ({"patience": True}, "patience"),
    ],
)
def test_values_that_are_out_of_range_are_refused(values: dict[str, Any], problem: str) -> None:
    """Rule X9."""
    with pytest.raises(
        FaultToleranceDefinitionException, match=rf"^RedisFleet\({problem}\) is .*; allowed: "
    ) as caught:
        RedisFleet("redis://", **{"namespace": "shop", **values})

    assert "decorator" not in str(caught.value)


def test_an_error_names_everything_that_is_wrong() -> None:
    """Rule X9."""
    with pytest.raises(FaultToleranceDefinitionException) as caught:
        RedisFleet("nowhere", namespace="", poll=0, patience=0)

    assert len(caught.value.faults) == 4


def test_durations_are_milliseconds_or_have_a_unit() -> None:
    fleet = RedisFleet("redis://", namespace="shop", poll=500, patience=timedelta(milliseconds=20))

    assert (fleet.poll, fleet.patience) == (0.5, 0.02)
    assert repr(fleet) == "RedisFleet('redis://localhost:6379', namespace='shop', poll=500, patience='20ms')"


def test_a_missing_client_is_named_with_its_extra() -> None:
    """Rule M6: importing the library loads no redis."""
    program = """
import sys
import faulttolerance
from faulttolerance import testing
assert not {"redis", "hiredis"} & {*sys.modules}, "redis was imported"
faulttolerance.RedisFleet
assert not {"redis", "hiredis"} & {*sys.modules}, "redis was imported"
sys.modules["redis"] = None
try: faulttolerance.RedisFleet("redis://", namespace="shop")
except faulttolerance.FaultToleranceDefinitionException as error: print(error)
"""

    assert python(program).stdout == (
        'RedisFleet needs redis-py, which is not installed; allowed: pip install "faulttolerance[redis]"\n'
    )
