"""FastAPI, served by uvicorn: it reads the signatures of guarded functions, whose annotations are text here."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from faulttolerance import circuit_breaker, rate_limit, remaining, retry, timeout
from kit.serving import asgi
from kit.waiting import wait_until

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")

from fastapi import Depends, FastAPI, Query  # noqa: E402
from pydantic import BaseModel  # noqa: E402

from faulttolerance.integrations.starlette import install  # noqa: E402

pytestmark = pytest.mark.outside

app = FastAPI()


class Tea(BaseModel):
    name: str
    cups: int = 1


class Kettle:
    def __init__(self) -> None:
        self.attempts = 0

    @rate_limit(1, window="30s")
    async def __call__(self, litres: int) -> int:
        return litres


kettle = Kettle()


@circuit_breaker(request_volume_threshold=1, delay="30s")
async def backend(fails: bool = False) -> str:
    if fails:
        raise OSError
    return "green"


@app.get("/tea/{number}")
@retry(max_retries=2, delay=0, jitter=0)
@timeout(10_000)
async def tea(number: int, name: Annotated[str, Query(max_length=8)] = "green") -> Tea:
    kettle.attempts += 1
    if kettle.attempts < 3:
        raise OSError
    return Tea(name=name, cups=number)


@app.post("/tea")
@retry(max_retries=2, delay=0, jitter=0)
def brew(tea: Tea) -> Tea:
    return tea


@app.get("/late")
@timeout(1)
async def late() -> None:
    await asyncio.sleep(30)


@app.get("/backend")
async def ask(answer: Annotated[str, Depends(backend)]) -> str:
    return answer


@app.get("/kettle/{litres}")
async def boil(litres: Annotated[int, Depends(kettle)]) -> int:
    return litres


@app.get("/left")
def left() -> float | None:
    return remaining()


noticed: list[str] = []
go_on = threading.Event()


def connection() -> Iterator[None]:
    try:
        yield
    finally:
        noticed.append("closed")


@app.get("/slow")
def slow(connected: Annotated[None, Depends(connection)]) -> None:
    go_on.wait(30)
    noticed.append("used")


install(app, longest="60s")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    limits = httpx.Limits(max_keepalive_connections=0)  # uvicorn closes connections after a failure
    with asgi(app) as address, httpx.Client(base_url=address, timeout=30, limits=limits) as client:
        client.get("/left")  # starts the threads that stay
        yield client


def test_guarded_functions_get_the_arguments_of_their_signatures(client: Any) -> None:
    """FastAPI converts and checks parameters of the path, the query and the body as without a guard."""
    assert client.get("/tea/2", params={"name": "black"}).json() == {"name": "black", "cups": 2}
    assert client.get("/tea/two").status_code == 422
    assert client.get("/tea/2", params={"name": "longer than allowed"}).status_code == 422
    assert client.post("/tea", json={"name": "white"}).json() == {"name": "white", "cups": 1}
    assert client.post("/tea", json={}).status_code == 422


def test_a_fault_of_a_request_is_no_failure_of_the_guarded_function(client: Any) -> None:
    """FastAPI finds the fault before the call, and makes no call."""
    kettle.attempts = 0
    client.get("/tea/two")
    assert kettle.attempts == 0
    assert client.get("/tea/2").status_code == 200
    assert kettle.attempts == 3


def test_the_document_describes_guarded_functions_as_it_does_others(client: Any) -> None:
    """It describes their parameters, the class of the body and that of the answer."""
    paths = client.get("/openapi.json").json()["paths"]
    names = [parameter["name"] for parameter in paths["/tea/{number}"]["get"]["parameters"]]
    answer = paths["/tea/{number}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]

    assert names == ["number", "name"]
    assert answer == {"$ref": "#/components/schemas/Tea"}
    assert "requestBody" in paths["/tea"]["post"]


def test_refusals_and_time_outs_have_their_status_also_out_of_a_dependency(client: Any) -> None:
    """An endpoint may depend on a guarded function, or on an object with a guarded ``__call__``."""
    assert client.get("/late").status_code == 504
    assert client.get("/backend", params={"fails": True}).status_code == 500
    assert client.get("/backend").status_code == 503
    assert client.get("/kettle/2").json() == 2
    refused = client.get("/kettle/2")
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 30


def test_the_deadline_of_a_request_reaches_a_function_on_another_thread(client: Any) -> None:
    """FastAPI runs functions that are no coroutines on a thread of its own."""
    assert 0 < client.get("/left", headers={"X-Request-Timeout-Ms": "20000"}).json() <= 20


def test_a_dependency_outlives_the_thread_that_uses_it(client: Any) -> None:
    """The caller does not wait for that thread, but a dependency that is closed may serve another request."""
    answer = client.get("/slow", headers={"X-Request-Timeout-Ms": "60"})
    at_the_answer = [*noticed]
    go_on.set()
    wait_until(lambda: len(noticed) == 2)

    assert answer.status_code == 504
    assert at_the_answer == []
    assert noticed == ["used", "closed"]


@pytest.mark.filterwarnings("ignore:Using `httpx`")  # Starlette wants the successor of httpx
def test_the_lifespan_of_the_page_runs_under_a_test_client(caplog: pytest.LogCaptureFixture) -> None:
    """The lifespan runs twice, as in a suite: validate(), a reload without its signal on this thread, and the end."""
    from starlette.testclient import TestClient

    page = Path(__file__).parents[2] / "docs" / "how-to" / "web-frameworks.md"
    (block,) = (
        code for code in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S) if "lifespan" in code
    )
    names: dict[str, Any] = {}
    exec(block.partition("service = ")[0], names)
    service = FastAPI(lifespan=names["lifespan"])
    install(service)

    @service.get("/")
    @timeout(10_000)
    async def index() -> str:
        return "served"

    for _ in range(2):
        with TestClient(service) as client:
            assert client.get("/").json() == "served"

    assert [words for words in caplog.messages if "SIGHUP" in words] in (
        ["reload(on=SIGHUP) reloads nothing: only the main thread may handle signals"],
        [],  # another test has led there before
    )
