"""httpx alone: both transports, a server on a real socket, and a port where nobody is."""

from __future__ import annotations

import asyncio

import httpx
from outage import POLICIES, shown
from serving import nobody, served

from faulttolerance.integrations.httpx import AsyncGuardedTransport, GuardedTransport

client = httpx.Client(transport=GuardedTransport(name="shop", **POLICIES))


async def asked(url: str) -> str:
    async with httpx.AsyncClient(transport=AsyncGuardedTransport()) as client:
        return (await client.get(url)).text


def badly() -> object:
    try:
        return client.get(down)
    except httpx.HTTPError:
        return None


down = nobody()
with served() as url:
    shown("httpx", lambda: client.get(url).text + asyncio.run(asked(url)), badly)
