"""FastAPI alone: an answer, a failure, and 503 while the circuit is open; neither client nor server is needed."""

from __future__ import annotations

from asgi import status_of
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from outage import down, guard, shown

from faulttolerance.integrations.starlette import install

app = FastAPI()
install(app, longest="5s")
shop = guard("shop")


async def fails() -> None:
    down()


@app.get("/tea", response_class=PlainTextResponse)
async def tea(request: Request) -> str:
    async with shop.attempt():
        return "green"


@app.get("/gone", response_class=PlainTextResponse)
async def gone() -> str:
    try:
        await shop.call_async(fails)
    except ConnectionError:
        pass
    return "failed"


shown("fastapi", lambda: status_of(app, "/tea"), lambda: status_of(app, "/gone"), after=503)
