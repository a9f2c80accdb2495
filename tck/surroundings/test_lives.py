"""Lives of an application in one process, one after another, and their ends."""

from __future__ import annotations

import pytest

from kit.surroundings import needs, run

pytestmark = pytest.mark.outside

APPLICATION = """
import asyncio, atexit, threading, time
from faulttolerance import Future, asynchronous, bulkhead, completed_future, retry, shutdown, timeout

@asynchronous
@retry(max_retries=1, delay=10, jitter=0)
@timeout(5000)
@bulkhead(2, waiting_task_queue=100)
def work(number, failures) -> Future[int]:
    if failures:
        raise OSError(failures.pop())
    return completed_future(number)

async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                ended = await asyncio.to_thread(shutdown, 10)
                await send({"type": "lifespan.shutdown.complete" if ended else "lifespan.shutdown.failed"})
                return
            await send({"type": "lifespan.startup.complete"})
    answer = str(await work(7, [1])).encode()
    length = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": answer})

def left():
    return [one.name for one in threading.enumerate() if one.name.startswith("faulttolerance-")]
"""

TEST_CLIENT = """
async def life():
    # What `with TestClient(application)` does.
    messages, said = asyncio.Queue(), []

    async def send(message):
        said.append(message.get("body", message["type"]))

    lifespan = asyncio.create_task(application({"type": "lifespan"}, messages.get, send))
    await messages.put({"type": "lifespan.startup"})
    await asyncio.gather(*(application({"type": "http"}, None, send) for _ in range(5)))
    await messages.put({"type": "lifespan.shutdown"})
    await lifespan
    return said.count(b"7"), said[-1]

for _ in range(3):
    print(*asyncio.run(life()), left())
"""


def test_an_application_that_shuts_down_at_its_end_may_begin_anew() -> None:
    """Each test of a suite begins and ends the application's life in the same process."""
    assert run(APPLICATION + TEST_CLIENT) == ["5 lifespan.shutdown.complete []"] * 3


def test_uvicorn_may_serve_twice_in_one_process() -> None:
    """A server begins and ends a life each time."""
    needs("uvicorn")
    lines = run(
        APPLICATION
        + """
import socket, urllib.request, uvicorn

def ask(port, server, answers):
    while not server.started:
        time.sleep(0.01)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        answers.append(answer.read())
    server.should_exit = True

for _ in range(2):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server, answers = uvicorn.Server(uvicorn.Config(application, log_level="critical")), []
        customer = threading.Thread(target=ask, args=(listening.getsockname()[1], server, answers))
        customer.start()
        server.run([listening])
        customer.join()
        print(answers, left())
"""
    )

    assert lines == ["[b'7'] []"] * 2


def test_a_shutdown_at_exit_waits_for_calls_under_way() -> None:
    """A function that was registered earlier runs later, and may still call."""
    lines = run(
        APPLICATION
        + """
atexit.register(lambda: print("last", work(3, [1]).exception(10)))
atexit.register(lambda: print("ended", shutdown(10), future.done()))
future = work(1, [1])
"""
    )

    assert lines[0] == "ended True True"
    assert lines[1].startswith("last ")


def test_a_hung_call_delays_no_exit_after_a_shutdown_gave_up_on_it() -> None:
    """Threads of the pool are daemons in every life."""
    lines = run(
        """
import threading, time
from faulttolerance import asynchronous, completed_future, shutdown

@asynchronous
def hang():
    threading.Event().wait()

for _ in range(2):
    hang()
    print(shutdown(0.05))
print(asynchronous(lambda: completed_future("served"))().result(10))
"""
    )

    assert lines == ["False", "False", "served"]
