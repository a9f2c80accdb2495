"""Sentinels that name the server, and clusters of which one node has the keys."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from faulttolerance import RedisFleet, configure
from faulttolerance._extensions.fleet.protocol import OpenRequest, PollRequest, PollResponse, TurnRequest
from faulttolerance.testing import reset
from kit.redis_server import RedisServer, free_port, redis_server
from kit.waiting import wait_until

pytestmark = pytest.mark.outside

redis = pytest.importorskip("redis")

READ = PollRequest("one", 3600_000_000)
NOTHING = PollResponse(1, {})
TURN = TurnRequest("shop", "fixed", 1, 60_000_000, 1)
SECRET = "hunter2"


@contextmanager
def session_of(given: Any) -> Iterator[Any]:
    session = RedisFleet(given, namespace="shop", patience=1000).connect()
    try:
        yield session
    finally:
        session.close()


def sentinel_of(master: int) -> str:
    return f"""
sentinel monitor shop 127.0.0.1 {master} 1
sentinel auth-pass shop {SECRET}
sentinel down-after-milliseconds shop 300
sentinel failover-timeout shop 1000
requirepass other
"""


def test_sentinels_lead_to_the_server(tmp_path: Path) -> None:
    """They lead to the server that replaces a killed one, too; a sentinel that is not there is passed over."""
    password = ("--requirepass", SECRET, "--masterauth", SECRET)
    with ExitStack() as stack:
        master = stack.enter_context(redis_server(tmp_path, *password))
        follows = ("--replicaof", "127.0.0.1", str(master.port), "--repl-diskless-sync-delay", "0")
        replica = stack.enter_context(redis_server(tmp_path, *password, *follows))
        wait_until(
            lambda: "master_link_status:up" in str(replica.client(password=SECRET).execute_command("INFO")) or True
        )
        sentinel = stack.enter_context(redis_server(tmp_path, sentinel=sentinel_of(master.port)))
        url = f"redis+sentinel://:{SECRET}@127.0.0.1:1,127.0.0.1:{sentinel.port}/shop?sentinel_password=other"
        client = redis.sentinel.Sentinel(
            [("127.0.0.1", sentinel.port)], sentinel_kwargs={"password": "other"}, password=SECRET
        ).master_for("shop")

        with session_of(url) as session, session_of(client) as other:
            assert session.exchange([TURN, READ]) == [0, NOTHING]
            assert other.exchange([TURN])[0] > 0
            wait_until(lambda: replica_is_known(sentinel))
            master.kill()

            def has_moved() -> bool:
                with suppress(ConnectionError):
                    session.exchange([OpenRequest("shop", 0, 1, 0, "")])
                    return True
                return False

            wait_until(has_moved)
            (role, *_) = replica.ask("ROLE", password=SECRET)
    assert role == "master"


def replica_is_known(sentinel: RedisServer) -> bool:
    """Return whether the sentinel has asked the replica, and so could make it the master."""
    replicas = sentinel.ask("SENTINEL", "REPLICAS", "shop", password="other")
    return any("slave-priority" in str(one) for one in replicas)


def test_a_silent_sentinel_is_waited_for_once(tmp_path: Path, running_redis: RedisServer) -> None:
    """The second connection of a process begins with the sentinel that answered the first."""
    settings = f"sentinel monitor shop 127.0.0.1 {running_redis.port} 1"
    with redis_server(tmp_path, sentinel=settings) as sentinel, socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{sentinel.port}"
        fleet = RedisFleet(f"redis+sentinel://{hosts}/shop", namespace="silent")
        sessions = [fleet.connect(), fleet.connect()]
        for session in sessions:
            session.exchange([READ])
        silent.settimeout(0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()
        for session in sessions:
            session.close()


def test_the_error_names_the_answer_of_each_sentinel(running_redis: RedisServer) -> None:
    url = f"redis+sentinel://127.0.0.1:{running_redis.port}/shop"
    problem = r"no sentinel leads to a server: 127.0.0.1:\d+: ResponseError: unknown command"
    with session_of(url) as session, pytest.raises(ConnectionError, match=problem):
        session.exchange([READ])


@pytest.fixture(scope="module")
def all_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    """A cluster of three nodes, each with a third of the slots."""
    tmp_path = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        settings = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port")
        ports = [str(free_port()) for _ in range(3)]
        nodes = [stack.enter_context(redis_server(tmp_path, *settings, port)) for port in ports]
        for place, node in enumerate(nodes):
            node.ask("CLUSTER", "ADDSLOTSRANGE", str(place * 5461), str(place * 5461 + 5460 + (place == 2)))
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", str(place + 1))
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", str(node.port), ports[place])
        wait_until(lambda: all("cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in nodes))
        yield nodes


@pytest.fixture
def cluster(all_nodes: list[RedisServer]) -> list[RedisServer]:
    """The cluster without keys."""
    for node in all_nodes:
        node.ask("FLUSHALL")
    return all_nodes


def test_the_node_of_a_cluster_that_has_the_keys_is_found(cluster: list[RedisServer]) -> None:
    """A URL that names other nodes leads there, or a client; trap 31: all keys of a namespace are on one node."""
    urls = [f"redis+cluster://127.0.0.1:{node.port}" for node in cluster]
    urls.append(f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster[0].port}")
    client = redis.RedisCluster(host="127.0.0.1", port=cluster[0].port)
    questions = [TURN, TURN._replace(key="} {other}"), OpenRequest("{x}", 0, 1, 0, "")]
    granted = []
    for given in [*urls[:3], client]:
        with session_of(given) as session:
            granted.append(session.exchange(questions)[0] == 0)
    with session_of(urls[3]) as session:
        with pytest.raises(ConnectionError):  # the first does not answer, and is left for the next
            session.exchange([TURN])
        assert session.exchange([TURN])[0] > 0
    client.close()

    assert granted == [True, False, False, False]
    assert sorted(int(node.ask("DBSIZE")) for node in cluster) == [0, 0, 3]


def test_a_node_of_a_cluster_that_is_gone_is_left_for_the_next(cluster: list[RedisServer]) -> None:
    """A process goes on with the nodes that answer, whichever the address names first."""
    url = f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster[0].port}"
    configure(fleet=RedisFleet(url, namespace="shop"))
    try:
        wait_until(lambda: any(node.ask("DBSIZE") for node in cluster))
    finally:
        reset()


def test_keys_that_move_to_another_node_are_followed(cluster: list[RedisServer]) -> None:
    """The session that is open follows them."""
    slot = cluster[0].ask("CLUSTER", "KEYSLOT", "{faulttolerance:shop}:circuits")
    with session_of(f"redis+cluster://127.0.0.1:{cluster[0].port}") as session:
        session.exchange([TURN])
        [owner] = [node for node in cluster if node.ask("DBSIZE")]
        owner.ask("FLUSHALL")
        other = next(node for node in cluster if node is not owner)
        name = other.ask("CLUSTER", "MYID")
        for node in (other, owner, *cluster):
            node.ask("CLUSTER", "SETSLOT", str(slot), "NODE", name)

        assert session.exchange([TURN, READ]) == [0, NOTHING]
    assert other.ask("DBSIZE") == 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of localhost, which nobody has signed; its key is beside it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed, which makes the certificate: apt-get install openssl")
    certificate = tmp_path_factory.mktemp("tls") / "certificate"
    request = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    request += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    request += ["-keyout", str(certificate.with_name("key")), "-out", str(certificate)]
    subprocess.run(request, check=True, capture_output=True)
    return certificate


def tls_settings(certificate: Path, port: int) -> dict[str, str]:
    """Return the settings of a server that also speaks TLS on *port*."""
    return {
        "tls-port": str(port),
        "tls-cert-file": str(certificate),
        "tls-key-file": str(certificate.with_name("key")),
        "tls-ca-cert-file": str(certificate),
        "tls-auth-clients": "no",
    }


@contextmanager
def encrypted_server(tmp_path: Path, certificate: Path) -> Iterator[int]:
    """Run a server, and yield its port for TLS."""
    settings = tls_settings(certificate, free_port())
    arguments = [word for name, value in settings.items() for word in (f"--{name}", value)]
    with redis_server(tmp_path, *arguments):
        yield int(settings["tls-port"])


def test_an_encrypted_connection_checks_the_certificate(tmp_path: Path, certificate: Path) -> None:
    """This holds for a URL and for a client; a server whose certificate is not known is refused."""
    with encrypted_server(tmp_path, certificate) as port:
        client = redis.Redis(port=port, ssl=True, ssl_ca_certs=str(certificate))
        for given in (client, f"rediss://localhost:{port}?ssl_ca_certs={certificate}"):
            with session_of(given) as session:
                assert session.exchange([READ]) == [NOTHING]
        with session_of(f"rediss://localhost:{port}") as session, pytest.raises(ConnectionError, match="CERTIFICATE"):
            session.exchange([READ])


def test_sentinels_are_asked_with_their_own_encryption(tmp_path: Path, certificate: Path) -> None:
    """A client may encrypt either connection or both; a URL with rediss encrypts both, with the same files."""
    encryption = {"ssl": True, "ssl_ca_certs": str(certificate)}
    with encrypted_server(tmp_path, certificate) as master, redis_server(tmp_path) as plain_master:
        settings = tls_settings(certificate, free_port())
        names = {"shop": master, "plain": plain_master.port}
        lines = [f"sentinel monitor {name} 127.0.0.1 {port} 1" for name, port in names.items()]
        text = "\n".join([*lines, *map(" ".join, settings.items()), ""])
        Sentinel = redis.sentinel.Sentinel
        with redis_server(tmp_path, sentinel=text) as sentinel:
            plain, encrypted = [("127.0.0.1", sentinel.port)], [("127.0.0.1", int(settings["tls-port"]))]
            for given in (
                Sentinel(plain, **encryption).master_for("shop"),
                Sentinel(encrypted, sentinel_kwargs=encryption).master_for("plain"),
                Sentinel(encrypted, sentinel_kwargs=encryption, **encryption).master_for("shop"),
                f"rediss+sentinel://127.0.0.1:{encrypted[0][1]}/shop?ssl_ca_certs={certificate}",
            ):
                with session_of(given) as session:
                    assert session.exchange([READ]) == [NOTHING]


def test_a_fleet_may_use_a_socket_of_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with redis_server(tmp_path, "--unixsocket", str(path)):
        for given in (f"unix://{path}?db=1", redis.Redis(unix_socket_path=str(path), db=1)):
            with session_of(given) as session:
                assert session.exchange([READ]) == [NOTHING]
