"""The first deadline of a process: guards that were in use before obey it, and making it touches none of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kit.program import LIBRARY, output_of
from kit.struck import sampled

pytestmark = pytest.mark.outside

KIT = str(Path(__file__).parents[1])
PATHS = os.pathsep.join([KIT, *filter(None, [os.environ.get("PYTHONPATH")])])
"""The kit's folder, for programs that use it."""
IMPORTS = f"{LIBRARY}; import asyncio, faulttolerance.testing, sys; sys.path.append({KIT!r}); import kit.struck"

GUARDS = """
import asyncio
import os
import sys

from faulttolerance import Guard, TimeoutException, configure, deadline, fingerprint, retry
from faulttolerance.policies import Deadline, Retry
from faulttolerance.testing import virtual_time

class Client:
    @retry
    def method(self):
        ran.append("method")

    @classmethod
    @retry
    def of_class(cls):
        ran.append("class method")

    @retry
    async def awaited(self):
        ran.append("coroutine")

class Inheriting(Client):
    pass

guard = Guard(retry=Retry(), name="guard")

@retry
def function():
    ran.append("function")

@guard
def decorated():
    ran.append("under a guard")

@guard
async def decorated_coroutine():
    ran.append("coroutine under a guard")

def block():
    with guard.attempt():
        ran.append("block")

def passed():
    ran.append("passed")

async def passed_coroutine():
    ran.append("passed coroutine")

BLOCKING = [
    function, Client().method, Inheriting().method, Client.of_class, Inheriting.of_class, decorated, block,
    lambda: guard.call(passed),
]
AWAITED = [Client().awaited, decorated_coroutine, lambda: guard.call_async(passed_coroutine)]
ran = []

def calls_of(action):
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls
"""


@pytest.mark.parametrize(
    "limit",
    ["with deadline(100): late()", "deadline(100)(late)()", "Guard(deadline=Deadline(100), name='limit').call(late)"],
    ids=["block", "call", "guard"],
)
def test_guards_in_use_before_the_first_deadline_start_nothing_when_it_has_passed(limit: str) -> None:
    """By rule D2: in each way of calling, nothing starts without time left; afterwards everything does."""
    program = f"""{GUARDS}

def call_all(run):
    refused = 0
    for call in [*BLOCKING, *(lambda call=call: run(call()) for call in AWAITED)]:
        try:
            call()
        except TimeoutException as error:
            refused += "no time is left" in str(error)
    return refused

def finish(coroutine):
    try:
        coroutine.send(None)
    except StopIteration:
        pass

def late():
    time.advance(0.2)
    print(call_all(finish), len(ran))

call_all(asyncio.run)
before = len(ran)
ran.clear()
with virtual_time() as time:
    try:
        {limit}
    except TimeoutException:
        pass
print(call_all(asyncio.run), len(ran) == before)
"""
    assert output_of(program, after=IMPORTS).splitlines() == ["11 0", "0 True"]


@pytest.mark.parametrize("first", ["deadline(100_000)", "deadline(100_000).__enter__()", "limited.call(int)"])
def test_the_first_deadline_concerns_no_guard_in_use(first: str) -> None:
    """However many guards there are, making it, entering it and calling under it cost the same."""
    program = f"""{GUARDS}
limited = Guard(deadline=Deadline(100_000), name="limited")

kept = [Guard(retry=Retry(), name=str(number)) for number in range(int(sys.argv[1]))]
for each in kept:
    each.call(int)
read = calls_of(fingerprint), calls_of(fingerprint)
print(calls_of(lambda: {first}))
assert calls_of(fingerprint) <= read[1] + 100, "the paths are still there"
"""
    few, many = (int(output_of(program, arguments=(number,), after=IMPORTS)) for number in ("2", "40"))

    assert few == many


def test_a_guard_is_resolved_again_only_at_its_first_call_after_the_first_deadline() -> None:
    program = f"""{GUARDS}

for call in BLOCKING:
    call()
with deadline(100_000):
    pass
first, *later = ([calls_of(call) for call in BLOCKING] for _ in range(3))
print(later[0] == later[1], all(3 * one < other for one, other in zip(later[1], first)), len(ran) == 4 * len(BLOCKING))
"""
    assert output_of(program, after=IMPORTS) == "True True True"


@pytest.mark.parametrize(
    ("interrupted", "called"),
    [
        ("function()", ""),
        ("decorated()", "guard.call(passed)"),
        ("reload_all()", "call_all()"),
    ],
    ids=["a function", "a guard in another way", "a reload"],
)
@pytest.mark.parametrize("is_cut_short", [False, True], ids=["called meanwhile", "called meanwhile without success"])
@sampled(step=53, every=29)
def test_a_deadline_may_begin_while_guards_are_resolved(
    interrupted: str, called: str, is_cut_short: bool, step: int
) -> None:
    """By rule D2: wherever another thread begins the first deadline, no path from before outlives the next call."""
    program = f"""{GUARDS}
from contextlib import suppress
from threading import Thread
from kit.struck import Strike, Struck

FILES = "assembly.py", "guard_resolver.py", "registry.py", "resolver.py", "swap.py", "transaction.py"
CALLS = [function, Inheriting().method, decorated]

def call_all():
    for call in CALLS:
        call()

def reload_all():
    configure(properties={{"Retry/maxRetries": 2}})

def begin():
    with deadline(100_000):
        pass
    for call in CALLS:
        with suppress(Struck), Strike(1 if {is_cut_short} else 0, "assembly.py"):
            call()

def begin_elsewhere():
    thread = Thread(target=begin)
    thread.start()
    thread.join()

def all_refuse():
    refused = 0
    with virtual_time() as time, suppress(TimeoutException), deadline(100):
        time.advance(0.2)
        for call in CALLS:
            try:
                call()
            except TimeoutException:
                refused += 1
    return refused == len(CALLS)

def struck(number):
    with Strike(number, *FILES, handle=begin_elsewhere) as strike:
        {interrupted}
    return END if not strike.where else RIGHT if all_refuse() else WRONG

retry(lambda: None)()  # loads what the first guard of a process needs, as the other two do
Guard(retry=Retry()).call(int)
reload_all()
{called}
END, RIGHT, WRONG = range(3)
found = []
while END not in found:
    child = os.fork()
    if not child:
        os._exit(struck(1 + {step} * len(found)))
    found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(found.count(RIGHT), len(found) - 1)
"""
    right, places = output_of(program, environment=os.environ | {"PYTHONPATH": PATHS}, after=IMPORTS).split()

    assert right == places != "0"
