"""The address of a server, from a URL or a client, and its form without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

ALLOWED: Final = (
    "a URL that begins with redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or"
    " rediss+cluster://, or a client: redis.Redis, redis.RedisCluster, or the result of Sentinel's master_for"
)

Host = tuple[str, int]
Settings = Mapping[str, Any]


class Address(NamedTuple):
    """The address of a server."""

    kind: str
    """``plain``, ``unix``, ``sentinel`` or ``cluster``."""
    is_encrypted: bool
    hosts: tuple[Host, ...]
    """The hosts of the server, of the sentinels, or of some nodes of the cluster; for ``unix`` one, with the path."""
    settings: Settings
    """The further settings of a connection."""
    service: str = ""
    """The name of the server at the sentinels."""
    sentinel: Address | None = None
    """The address of the first sentinel; all sentinels have its settings."""

    def __repr__(self) -> str:
        """Return the address as a URL, without the names and passwords of users."""
        scheme = "rediss" if self.is_encrypted else "redis"
        if self.kind == "unix":
            return f"unix://{self.hosts[0][0]}"
        if self.kind != "plain":
            scheme += f"+{self.kind}"
        parts = [",".join(map(format_host, self.hosts)), self.service, str(self.settings.get("db") or "")]
        return f"{scheme}://{'/'.join(filter(None, parts))}"

    def redact(self, text: str) -> str:
        """Replace passwords in *text* by stars."""
        for address in (self, self.sentinel or self):
            if password := address.settings.get("password"):
                text = text.replace(str(password), "***")
        return text


def format_host(host: Host) -> str:
    """Return *host* as in a URL."""
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def address_of_url(url: str) -> Address:
    """Parse *url* as redis-py does, with several hosts where there may be several.

    Raises:
        ValueError: If the URL is not allowed; the message is the end of a sentence and contains nothing of *url*.
    """
    from redis.connection import parse_url

    scheme, _, rest = url.partition("://")
    base, _, kind = scheme.partition("+")
    if base not in ("redis", "rediss", "unix") or kind not in ("", "sentinel", "cluster") or (base == "unix" and kind):
        raise ValueError("has an unknown scheme")
    try:
        parts = urlsplit(f"{base}://{rest}")
        user, at, hosts = parts.netloc.rpartition("@")
        service, path = "", parts.path.strip("/")
        if kind == "sentinel":
            service, _, path = path.partition("/")
        read: Any = parse_url  # without types in redis-py
        found: list[Settings] = [read(f"{base}://{user}{at}{host}/{path}?{parts.query}") for host in hosts.split(",")]
    except ValueError:
        raise ValueError("redis-py cannot read") from None
    settings = _connection_settings(found[0])
    if base == "unix" and path:
        return Address("unix", is_encrypted=False, hosts=((found[0]["path"], 0),), settings=settings)
    if (
        base == "unix"
        or (len(found) > 1 and not kind)
        or (path and "db" not in settings)
        or (kind == "sentinel" and not service)
        or (kind == "cluster" and settings.get("db"))
    ):
        raise ValueError("has hosts or a path that do not fit its scheme")
    default_port = 26379 if service else 6379
    places = tuple((one.get("host", "localhost"), one.get("port", default_port)) for one in found)
    own = {name: found[0].get(f"sentinel_{name}") for name in ("username", "password")}
    own |= {name: value for name, value in settings.items() if name.startswith("ssl_")}
    sentinel = Address("plain", base == "rediss", places[:1], _connection_settings(own)) if service else None
    return Address(kind or "plain", base == "rediss", places, settings, service, sentinel)


def address_of_client(client: Any) -> Address:
    """Return the address that *client* of redis-py is connected to.

    Raises:
        ValueError: If the client cannot be used; the message is the end of a sentence.
    """
    nodes = getattr(client, "nodes_manager", None)
    if nodes is not None:
        settings = client.get_connection_kwargs()
        every_node = [*nodes.startup_nodes.values(), *client.get_nodes()]
        hosts = tuple(dict.fromkeys((str(node.host), int(node.port)) for node in every_node))
        return Address("cluster", _is_encrypted(settings), hosts, _connection_settings(settings))
    pool = client.connection_pool
    if pool.connection_class.__module__.partition(".")[0] != "redis":
        raise ValueError("has connections of an unknown kind")
    settings = pool.connection_kwargs
    is_encrypted = _is_encrypted({**settings, "connection_class": pool.connection_class})
    kept = _connection_settings(settings)
    sentinels = getattr(pool, "sentinel_manager", None)
    if sentinels is not None:
        if not pool.is_master:
            raise ValueError("is a client of replicas")
        all_sentinels = [address_of_client(one) for one in sentinels.sentinels]
        hosts = tuple(host for one in all_sentinels for host in one.hosts)
        return Address("sentinel", is_encrypted, hosts, kept, pool.service_name, all_sentinels[0])
    if "path" in settings:
        return Address("unix", is_encrypted=False, hosts=((settings["path"], 0),), settings=kept)
    host = (settings.get("host", "localhost"), int(settings.get("port", 6379)))
    return Address("plain", is_encrypted, (host,), kept)


def _is_encrypted(settings: Settings) -> bool:
    return bool(settings.get("ssl")) or "SSL" in getattr(settings.get("connection_class"), "__name__", "")


def _connection_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings of identity and encryption: the fleet has its own time-outs, retries and decoding."""
    wanted = ("username", "password", "credential_provider", "db", "client_name", "socket_keepalive_options")
    return {
        name: value
        for name, value in settings.items()
        if value is not None and (name in wanted or name.startswith("ssl_"))
    }
