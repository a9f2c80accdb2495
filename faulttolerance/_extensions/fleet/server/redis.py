"""A fleet whose processes meet in Redis or Valkey, of version 5 or later.

Only this file imports redis, and only when a fleet is created.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...._policy.kind import BRIEF, duration, kinds, text
from ...._policy.parameter import Values, call_source, check, warn_of_bare_numbers
from ...._policy.unit import ChronoUnit, seconds
from ...._shown import error_text, install, shown
from ....exceptions import Fault, raise_faults
from ....typing import Duration
from ..protocol import Request, Response, TurnRequest
from .address import ALLOWED, Address, Host, address_of_client, address_of_url, format_host
from .scripts import answer_of, command_of

if TYPE_CHECKING:
    import redis

_CONNECT_TIMEOUT: Final = 1.0
_SOCKET_TIMEOUT: Final = 0.5
"""In seconds; no call waits so long. A server with a shorter pause is not lost."""
_MAX_ROUND_TRIPS: Final = 5
"""The maximum number of times that a request is sent: the server may lack its script, or name another node."""


class _Values(Values):
    """The values of a fleet, without its address."""

    _kinds = kinds(
        namespace=text(
            "printable text of up to 200 characters, without braces",  # it is placed between the braces of a hash tag
            lambda name: name.isprintable() and 0 < len(name.strip()) == len(name) <= 200 and not {*"{}"} & {*name},
        ),
        poll=duration("> 0", plausible=BRIEF),
        patience=duration("> 0"),
    )

    namespace: str
    poll: Duration = 1000
    patience: Duration = 50


_Values.where = "RedisFleet"


class RedisFleet:
    """The processes that share circuits and limits through one Redis or Valkey, of version 5 or later (rule F1).

    ``configure(fleet=RedisFleet("redis://cache:6379/0", namespace="shop"))``

    Each process has a connection of its own, and a second one while synchronous calls ask for turns. They use the
    address, user and encryption of the client; the client's own connections, time-outs and retries are not used. Needs
    the extra ``redis``.

    Args:
        url_or_client: ``redis://``, ``rediss://``, ``unix://``, ``redis+sentinel://h1:p,h2:p/service[/db]`` or
            ``redis+cluster://h1:p,h2:p``; the last two with ``rediss`` as well. Or a synchronous client: ``Redis``,
            ``RedisCluster``, or the result of Sentinel's ``master_for``.
        namespace: The name of the fleet: processes with the same name share state.
        poll: The time between two reads of the circuits, in milliseconds or as a ``timedelta``; a tenth more or less.
        patience: The longest time that a call waits for an answer, in milliseconds or as a ``timedelta``.

    Raises:
        FaultToleranceDefinitionException: If a value is out of range, or redis-py is not installed.
    """

    is_immediate: bool = False

    def __init__(
        self,
        url_or_client: str | redis.Redis | redis.RedisCluster,
        *,
        namespace: str,
        poll: Duration = 1000,
        patience: Duration = 50,
    ) -> None:
        address = _address(url_or_client)
        self._values = {"namespace": namespace, "poll": poll, "patience": patience}
        faults = check(_Values, self._values, "", lambda name: (f"{_Values.where}({name})", ""))
        raise_faults([address, *faults] if isinstance(address, Fault) else faults)
        warn_of_bare_numbers(_Values, (), self._values)
        assert isinstance(address, Address)
        self.namespace: str = namespace
        self.poll: float = seconds(poll, ChronoUnit.MILLIS)
        self.patience: float = seconds(patience, ChronoUnit.MILLIS)
        self._address: Address = address
        self._hosts = deque(address.hosts)  # the first is asked next, in each session

    def __repr__(self) -> str:
        values = call_source("", _Values, self._values).removeprefix("(")
        return f"RedisFleet({str(self._address)!r}, {values}"

    def connect(self, changed: Callable[[], object] | None = None) -> RedisSession:
        """Return a session, which connects at its first use; *changed* is never called."""
        return RedisSession(self)


class RedisSession:
    """One connection to the server with the keys of a namespace; the result of ``RedisFleet.connect``."""

    def __init__(self, fleet: RedisFleet) -> None:
        self._fleet = fleet
        self._address, self._hosts = fleet._address, fleet._hosts
        self._connection: Any = None

    def exchange(self, requests: Sequence[Request]) -> Sequence[Response]:
        """Send all requests at once, and return the answers.

        Raises:
            ConnectionError: If there is no answer, or an error of the server; the message contains no passwords.
        """
        try:
            return self._responses(requests)
        except BaseException as error:  # after any error, this connection is not used again
            self.close()
            if self._hosts[0] in self._address.hosts:
                self._hosts.rotate(-1)
            else:
                self._hosts.popleft()  # a node of the cluster has named it, and may name another one now
            if not isinstance(error, Exception):
                raise
            raise ConnectionError(self._address.redact(f"{self._address}: {error_text(error)}")) from None

    def ask(self, request: TurnRequest, seconds: float) -> int | None:
        """Return the answer to *request*, or ``None`` if it has not come within *seconds*: then close the session.

        Raises:
            Exception: If there will be no answer.
        """
        connection = self._connection
        connection.send_packed_command([command_of(request, self._fleet.namespace)], check_health=False)
        return int(connection.read_response()) if connection.can_read(seconds) else None

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _responses(self, requests: Sequence[Request]) -> list[Response]:
        from redis.exceptions import MovedError, NoScriptError

        responses: dict[int, Response] = {}
        with_text = False
        for _ in range(_MAX_ROUND_TRIPS):
            waiting, moved = [place for place in range(len(requests)) if place not in responses], ""
            replies = self._replies([requests[place] for place in waiting], with_text)
            for place, reply in zip(waiting, replies, strict=True):
                if not isinstance(reply, Exception):
                    responses[place] = answer_of(requests[place], reply)
                elif isinstance(reply, MovedError) or str(reply).startswith("MOVED "):
                    moved = str(reply)
                elif not isinstance(reply, NoScriptError):
                    raise reply
            if len(responses) == len(requests):
                return [responses[place] for place in range(len(requests))]
            with_text = not moved
            if moved:
                self._redirect(moved)
        raise ConnectionError("the server redirects every request")

    def _replies(self, requests: Sequence[Request], with_text: bool) -> list[Any]:
        """Send *requests*, *with_text* of their scripts; return the replies, including errors."""
        from redis.exceptions import ResponseError

        commands = [command_of(request, self._fleet.namespace, with_text=with_text) for request in requests]
        connection = self._connected()
        connection.send_packed_command([b"".join(commands)], check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(connection.read_response())
            except ResponseError as error:
                replies.append(error)
        return replies

    def _connected(self) -> Any:
        """Return the connection, after creating it if there is none."""
        if self._connection is None:
            sentinel = self._address.sentinel
            self._connection = self._master(sentinel) if sentinel else self._open(self._address, self._hosts[0])
        return self._connection

    def _open(self, address: Address, host: Host) -> Any:
        connection = connection_to(address, host, self._fleet.patience)
        connection.connect()
        return connection

    def _redirect(self, moved: str) -> None:
        """Connect to the node that a reply such as ``MOVED 3999 10.0.0.1:6379`` names."""
        name, _, port = moved.split()[-1].rpartition(":")
        host = (name or self._hosts[0][0], int(port))
        if host in self._hosts:
            self._hosts.remove(host)
        self._hosts.appendleft(host)
        self.close()

    def _master(self, sentinel: Address) -> Any:
        """Connect to the server that a sentinel names; a server that has become a replica refuses to write."""
        failures = []
        for _ in self._address.hosts:
            host = self._hosts[0]
            try:
                connection = self._open(sentinel, host)
                try:
                    connection.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service)
                    found = connection.read_response()
                finally:
                    connection.disconnect()
                if found is None:
                    raise ConnectionError(f"does not know {shown(self._address.service)}")
                return self._open(self._address, (found[0].decode(), int(found[1])))
            except Exception as error:  # noqa: BLE001  # the next sentinel may know better
                failures.append(f"{format_host(host)}: {error_text(error)}")
                self._hosts.rotate(-1)
        raise ConnectionError(f"no sentinel leads to a server: {'; '.join(failures)}")


def connection_to(address: Address, host: Host, patience: float) -> Any:
    """Return a new connection of redis-py, which is not connected yet."""
    from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection

    settings: dict[str, Any] = {
        **address.settings,
        "protocol": 2,  # sufficient, and the only one of version 5
        "socket_timeout": max(_SOCKET_TIMEOUT, 2 * patience),
        "socket_connect_timeout": max(patience, _CONNECT_TIMEOUT),
    }
    if address.kind == "unix":
        kind: Any = UnixDomainSocketConnection
        return kind(path=host[0], **settings)
    kind = SSLConnection if address.is_encrypted else Connection
    return kind(host=host[0], port=host[1], socket_keepalive=True, **settings)


def _address(url_or_client: object) -> Address | Fault:
    """Return the address of the server, or the fault if *url_or_client* contains none or redis-py is missing."""
    where = "RedisFleet(url_or_client)"
    try:
        import redis
    except ImportError:
        return Fault("RedisFleet", "needs redis-py, which is not installed", None, install("redis"))
    if isinstance(url_or_client, str):
        got = f"{url_or_client.partition('://')[0]}://..." if "://" in url_or_client else "a text without ://"
    else:
        got = f"a {type(url_or_client).__module__}.{type(url_or_client).__qualname__}"
    try:
        if isinstance(url_or_client, str):
            address = address_of_url(url_or_client)
        elif isinstance(url_or_client, (redis.Redis, redis.RedisCluster)):
            address = address_of_client(url_or_client)
        else:
            raise ValueError("is no synchronous client of redis-py")
    except ValueError as error:
        return Fault(where, f"is {got}, which {error}", got, ALLOWED)
    try:
        connection_to(address, address.hosts[0], 1.0)
    except Exception as error:  # noqa: BLE001  # an unknown setting, or a value that it rejects
        problem = f"is {got}, and no connection can be created from it ({type(error).__name__})"
        return Fault(where, problem, got, ALLOWED)
    return address
