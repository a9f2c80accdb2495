"""The hosts for which the page answers: the owner of another name could lead a browser here under that name."""

from __future__ import annotations

import socket
from collections.abc import Collection
from fnmatch import fnmatchcase
from ipaddress import ip_address

from .messages import Request


def is_known(request: Request, patterns: Collection[str]) -> bool:
    """Return whether *request* names a host of *patterns* or, over loopback, this machine.

    Without *patterns* every host is known, except over loopback.
    """
    name = _name_in(request.headers.get("host", ""))
    # A proxy chooses the client's address; the server's address is the address of the socket.
    on_loopback = _is_loopback(request.server or request.client)
    if not patterns and not on_loopback:
        return True
    is_own = on_loopback and (not name or _is_loopback(name) or name == socket.gethostname().lower())
    return is_own or any(fnmatchcase(name, pattern.lower()) for pattern in patterns)


def _name_in(host: str) -> str:
    """Return the name in the header Host, without brackets and port."""
    return (host[1:].partition("]") if host.startswith("[") else host.partition(":"))[0].lower()


def _is_loopback(name: str) -> bool:
    """Return whether *name* is a loopback address, or a name that can never belong to another machine."""
    try:
        address = ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
