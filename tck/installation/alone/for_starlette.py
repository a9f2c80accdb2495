"""Starlette alone: an answer, a failure, and 503 while the circuit is open; neither client nor server is needed."""

from __future__ import annotations

from asgi import status_of
from outage import down, guard, shown
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from faulttolerance.integrations.starlette import install

app = Starlette()
install(app, longest="5s")
shop = guard("shop")


async def fails() -> None:
    down()


async def tea(request: Request) -> PlainTextResponse:
    async with shop.attempt():
        return PlainTextResponse("green")


async def gone(request: Request) -> PlainTextResponse:
    try:
        await shop.call_async(fails)
    except ConnectionError:
        pass
    return PlainTextResponse("failed")


app.add_route("/tea", tea)
app.add_route("/gone", gone)
shown("starlette", lambda: status_of(app, "/tea"), lambda: status_of(app, "/gone"), after=503)
