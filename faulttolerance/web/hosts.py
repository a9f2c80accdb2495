"""For which hosts the page answers: a browser is led here under another name by whoever owns that name."""

from __future__ import annotations

import socket
from collections.abc import Collection
from fnmatch import fnmatchcase
from ipaddress import ip_address

from .exchange import Request


def is_known(request: Request, patterns: Collection[str]) -> bool:
    """Return whether *request* names a host of *patterns*, or on loopback this machine.

    Without *patterns* every host is known, but on loopback.
    """
    name = _name_in(request.headers.get("host", ""))
    # The client is whoever a proxy says; the address of the server is the socket's.
    on_loopback = _is_loopback(request.server or request.client)
    if not patterns and not on_loopback:
        return True
    is_own = on_loopback and (not name or _is_loopback(name) or name == socket.gethostname().lower())
    return is_own or any(fnmatchcase(name, pattern.lower()) for pattern in patterns)


def _name_in(host: str) -> str:
    """Return the name in the header Host, without brackets and port."""
    name = host[1:].partition("]") if host.startswith("[") else host.partition(":")
    return name[0].lower()


def _is_loopback(name: str) -> bool:
    """Return whether *name* is an address of loopback, or a name that nobody can give to another machine."""
    try:
        address = ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
