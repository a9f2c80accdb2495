"""requests alone: an adapter, a server on a real socket, and a port where nobody is."""

from __future__ import annotations

import requests
from outage import POLICIES, shown
from serving import nobody, served

from faulttolerance.integrations.requests import GuardedAdapter

session = requests.Session()
session.trust_env = False
session.mount("http://", GuardedAdapter(name="shop", **POLICIES))


def badly() -> object:
    try:
        return session.get(nobody())
    except requests.RequestException:
        return None


with served() as url:
    shown("requests", lambda: session.get(url).text, badly)
