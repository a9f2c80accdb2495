"""Flask alone: an answer, a failure, and 503 while the circuit is open."""

from __future__ import annotations

from flask import Flask
from outage import down, guard, shown

from faulttolerance.integrations.flask import install

app = Flask(__name__)
install(app, longest="5s")
shop = guard("shop")


@app.get("/tea")
def tea() -> str:
    return shop.call(lambda: "green")


@app.get("/gone")
def gone() -> str:
    try:
        return shop.call(down) or ""
    except ConnectionError:
        return "failed"


client = app.test_client()
shown("flask", lambda: client.get("/tea").text or None, lambda: client.get("/gone").status_code, after=503)
