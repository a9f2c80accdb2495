"""Guarded code without an importable name goes to other processes by value, as Dask, Ray and joblib send it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.program import QUIET, output_of

pytestmark = pytest.mark.outside

cloudpickle: Any = pytest.importorskip("cloudpickle")

SENDER = """
import asyncio, sys, cloudpickle
from faulttolerance import *

def made(limit):
    tries = []
    @retry(max_retries=limit, jitter=0)
    @timeout(9000)
    @fallback(lambda context: f"aside after {context.attempt}")
    def work(fails=0):
        tries.append(1)
        if len(tries) <= fails: raise OSError
        return len(tries)
    return work

work = made(2)

@around_invoke
def doubled(invocation):
    return 2 * invocation.proceed()

class Client:
    @retry(max_retries=1, jitter=0)
    @bulkhead(1)
    def send(self, order): return type(self).__name__, order

    @classmethod
    @doubled
    @timeout(9000)
    def connect(cls): return cls.__name__

    @staticmethod
    @retry
    def check(): return "checked"

    @circuit_breaker
    async def stream(self): return "streamed"

    @asynchronous
    @retry
    def later(self) -> Future[int]: return completed_future(5)

@retry(max_retries=4, jitter=0)
class Special(Client):
    def own(self): return super().send("own")

class Heir(Special):
    def own(self): return super().own()

if sys.argv[2] == "used":
    work()
    for one in (Client(), Special(), Heir()):
        one.send(1), one.connect(), one.check(), asyncio.run(one.stream()), one.later().result()
sent = {"work": work, "send": Special().send, "connect": Heir.connect, "check": Client.check, "Heir": Heir}
cloudpickle.dump(sent, open(sys.argv[1], "wb"))
cloudpickle.loads(cloudpickle.dumps(sent))["work"]()
"""

RECEIVER = """
import asyncio, inspect, pickle, sys
from faulttolerance import explain, guards, validate
sent = pickle.load(open(sys.argv[1], "rb"))
work, send, connect, check, Heir = sent.values()
assert work(fails=0) in (1, 2)
fresh = pickle.load(open(sys.argv[1], "rb"))["work"]
assert fresh(fails=2) == 3, "retried"
assert fresh.__name__ == "work" and "maxRetries = 2" in explain(fresh) and str(inspect.signature(fresh)) == "(fails=0)"
assert send(7) == ("Special", 7)
assert connect() == "HeirHeir"
assert check() == "checked"
heir = Heir()
assert heir.own() == ("Heir", "own")
assert asyncio.run(heir.stream()) == "streamed"
assert heir.later().result() == 5
assert "maxRetries = 1" in explain(Heir.send) and "value = 1" in explain(Heir.send)
assert "maxRetries = 4" in explain(Heir, "own"), explain(Heir, "own")
validate()
names = {one.name for one in guards()}
assert {"__main__.made.<locals>.work", "__main__.Heir.send", "__main__.Special.send"} <= names, names
counts = [one.counts for one in guards() if one.method is fresh]
assert counts[0]["ft.retry.retries.total", ()] in (1, 2), counts  # what the body remembers was sent, too
class Later(Heir):
    def added(self): return "added"
assert "maxRetries = 4" in explain(Later, "added")
assert Later().added() == "added"
print("received")
"""


@pytest.mark.parametrize("state", ["fresh", "used"])
def test_guarded_functions_and_classes_are_pickled_by_value(state: str, tmp_path: Path) -> None:
    """They are guarded on the other side as they were here, with counts and circuits of their own."""
    output_of(SENDER, arguments=(str(tmp_path / "sent"), state))

    assert output_of(RECEIVER, arguments=(str(tmp_path / "sent"),)) == "received"


UNDER_GUARDS = """
import sys, cloudpickle
from faulttolerance import *

shared = Guard(retry(max_retries=2, jitter=0), circuit_breaker(request_volume_threshold=6, failure_ratio=1))
named = Guard(bulkhead(1), name="orders")
tries = []

@recommended("9s")
def stock(): return "stock"

@shared
def failing(): raise OSError

@shared
async def refused(): ...

class Client:
    @named
    def send(self): return "sent"

    @apply_guard("orders")
    def send_again(self): return "sent again"

    @timeout(9000)
    @recommended("9s", retry(max_retries=1, jitter=0, retry_on=OSError))
    def receive(self): return "received"

def use():
    print(stock(), Client().send(), Client().send_again(), Client().receive())

if sys.argv[2] == "used":
    use()
sent = [use, stock, Client, failing, refused]
cloudpickle.dump([cloudpickle.dumps(one) for one in sent], open(sys.argv[1], "wb"))
cloudpickle.loads(cloudpickle.dumps(sent))[0]()
"""

BEHIND_GUARDS = """
import asyncio, pickle, sys
from faulttolerance import CircuitBreakerOpenException, guards, validate
use, stock, Client, failing, refused = map(pickle.loads, pickle.load(open(sys.argv[1], "rb")))
use()
for _ in range(2):
    try: failing()
    except OSError: pass
try: asyncio.run(refused())
except CircuitBreakerOpenException: print("refused")
validate()
names = {one.name for one in guards()}
assert names >= {"orders", "__main__:5", "__main__:9"}, names
"""


@pytest.mark.parametrize("state", ["fresh", "used"])
def test_functions_under_guards_are_pickled_by_value(state: str, tmp_path: Path) -> None:
    """Functions that share a guard share one on the other side, too, also where each has a pickle of its own."""
    used = "stock sent sent again received"
    output = output_of(UNDER_GUARDS, arguments=(str(tmp_path / "sent"), state))

    assert output.splitlines() == [used] * (2 if state == "used" else 1)
    assert output_of(QUIET + BEHIND_GUARDS, arguments=(str(tmp_path / "sent"),)).splitlines() == [used, "refused"]
