"""gRPC: real servers of threads and of asyncio, clients of both, all four kinds of calls, and a server that is killed.

Its C library minds forks, and stays in a process once it was there; so all of it runs in processes of its own.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from kit.surroundings import needs, run

pytestmark = pytest.mark.outside

_SERVICE = """
import asyncio, json, pickle, subprocess, sys, threading, time
from concurrent import futures
import grpc
from faulttolerance import *
from faulttolerance.policies import *
from faulttolerance.integrations.grpc import *
from grpc import StatusCode

taken = []
ended = threading.Event()

def echo(request, context):
    taken.append(request)
    if request == b"busy" and taken.count(b"busy") < 2 or request == b"gone":
        context.abort(StatusCode.UNAVAILABLE, "gone")
    if request == b"none":
        context.abort(StatusCode.NOT_FOUND, "none")
    if request == b"open":
        raise ExceptionGroup("", [CircuitBreakerOpenException("shop.open", 200.1)])
    if request == b"rate":
        raise RateLimitException("shop.rate")
    if request == b"broken":
        raise ValueError("shop.broken")
    if request == b"sleep":
        try:
            sleep(30)
        finally:
            ended.set()
    return str(remaining()).encode() if request == b"left" else request

def many(request, context):
    for number in range(3):
        yield echo(request, context) + str(number).encode()

def gather(requests, context):
    return b" ".join(echo(request, context) for request in requests)

def both(requests, context):
    for request in requests:
        yield echo(request, context)

def handlers(echo, many, gather, both):
    return (grpc.method_handlers_generic_handler("acme.Echo", {
        "echo": grpc.unary_unary_rpc_method_handler(echo),
        "many": grpc.unary_stream_rpc_method_handler(many),
        "gather": grpc.stream_unary_rpc_method_handler(gather),
        "both": grpc.stream_stream_rpc_method_handler(both),
    }),)

def serve():
    server = grpc.server(futures.ThreadPoolExecutor(12), interceptors=[RefusalInterceptor()])
    server.add_generic_rpc_handlers(handlers(echo, many, gather, both))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port

def stubs(channel):
    return (channel.unary_unary("/acme.Echo/echo"), channel.unary_stream("/acme.Echo/many"),
            channel.stream_unary("/acme.Echo/gather"), channel.stream_stream("/acme.Echo/both"))

def describe(value):
    if not isinstance(value, BaseException):
        return repr(value)
    code = value.code().name if isinstance(value, grpc.RpcError) else ""
    return f"{type(value).__name__} {code}".replace("_InactiveRpcError", "Error").replace(
        "_MultiThreadedRendezvous", "Error").replace("AioRpcError", "Error")

def tell(name, value):
    plain = isinstance(value, (int, list)) and not (isinstance(value, list) and isinstance(value[0], bytes))
    print(json.dumps([name, value if plain else describe(value)]), flush=True)
    return value

def policies(**more):
    return {"retry": Retry(max_retries=2, delay=0, jitter=0, retry_on=(grpc.RpcError, TimeoutException)), **more}

breaking = CircuitBreaker(request_volume_threshold=4, delay="60s")
"""

_CLIENT = """
def said(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as failure:
        return failure

server, port = serve()
with grpc.insecure_channel(f"127.0.0.1:{port}") as raw:
    guarded = GuardedCalls(**policies(), methods=["echo", "acme.Echo/m*"])
    echo_, many_, gather_, both_ = stubs(grpc.intercept_channel(raw, guarded))
    for request in (b"ada", b"busy", b"gone", b"none", b"rate", b"broken"):
        tell(request.decode(), said(echo_, request))
        tell(request.decode() + " taken", taken.count(request))
    failure = tell("open", said(echo_, b"open"))
    tell("words", failure.details())
    tell("open taken", taken.count(b"open"))
    named = GuardedCalls(retry=Retry(max_retries=2, delay=0, jitter=0), again=[StatusCode.UNKNOWN])
    for request in (b"broken", b"gone"):
        taken.clear()
        said(stubs(grpc.intercept_channel(raw, named))[0], request)
        tell(f"named {request.decode()} taken", taken.count(request))
    taken.clear()
    tell("many", said(lambda: list(many_(b"ada"))))
    tell("many gone", said(lambda: list(many_(b"gone"))))
    tell("many gone taken", taken.count(b"gone"))
    tell("gather", said(gather_, iter([b"1", b"2"])))
    tell("gather gone", said(gather_, iter([b"gone", b"2"])))
    tell("gather gone taken", taken.count(b"gone"))
    tell("both", said(lambda: list(both_(iter([b"1", b"2"])))))
    later = [echo_.future(b"later") for _ in range(3)]
    tell("future", [one.result(30).decode() for one in later])
    stream = many_(b"ada")
    tell("stream", [next(stream).decode(), stream.is_active(), stream.cancel() is not None])
    tell("stream cancelled", said(lambda: list(stream)))

    timed = GuardedCalls(timeout=Timeout("20s"))
    echo_, many_, gather_, both_ = stubs(grpc.intercept_channel(raw, timed))
    tell("left of time-out", 0 < float(echo_(b"left")) <= 20)
    with deadline("10s"):
        tell("left of deadline", 0 < float(echo_(b"left")) <= 10)
        tell("left of stream", 0 < float(next(both_(iter([b"left"])))) <= 10)
    tell("left of own", 0 < float(echo_(b"left", timeout=5)) <= 5)
    timed = GuardedCalls(timeout=Timeout("150ms"))
    echo_, many_, gather_, both_ = stubs(grpc.intercept_channel(raw, timed))
    began = time.monotonic()
    failure = tell("sleep", said(echo_, b"sleep"))
    tell("sleep is", [isinstance(failure, TimeoutException), isinstance(failure, grpc.RpcError)])
    tell("sleep notes", ["after its deadline" in note for note in failure.__notes__])
    tell("sleep ended", ended.wait(30))
    tell("many sleep", said(lambda: list(many_(b"sleep", timeout=1))))
    tell("sleep took", time.monotonic() - began < 15)

    for name, way in {
        "echo": lambda stubs: said(stubs[0], b"broken"),
        "future": lambda stubs: said(stubs[0].future(b"broken").result),
        "many": lambda stubs: said(lambda: list(stubs[1](b"broken"))),
        "gather": lambda stubs: said(stubs[2], iter([b"broken"])),
        "both": lambda stubs: said(lambda: list(stubs[3](iter([b"broken"])))),
    }.items():
        broken = GuardedCalls(circuit_breaker=breaking)
        ways = stubs(grpc.intercept_channel(raw, broken))
        for _ in range(4):
            way(ways)
        until = time.monotonic() + 30
        while circuit_breakers.state(broken.guard.name, key="acme.Echo") != "open" and time.monotonic() < until:
            threading.Event().wait(0.001)
        tell("refused " + name, way(ways))
    refused = ways[0].future(b"1")
    tell("refusal", [refused.code().name, refused.done(), refused.retry_after > 50, type(refused.exception()).__name__])
    copy = pickle.loads(pickle.dumps(refused))
    tell("pickled", [type(copy).__name__, copy.args == refused.args, isinstance(copy, CircuitBreakerOpenException)])
    found = GuardedCalls(circuit_breaker=breaking)
    ways = stubs(grpc.intercept_channel(raw, found))
    for _ in range(5):
        last = said(ways[0], b"none")
    tell("not found", last)
    outer = GuardedCalls(circuit_breaker=breaking)
    around = stubs(grpc.intercept_channel(raw, outer, broken))
    tell("around", said(around[0], b"1"))

    class Traced(grpc.UnaryStreamClientInterceptor):
        def intercept_unary_stream(self, continuation, details, request):
            yield from continuation(details, request)

    for request in b"ada", b"broken":
        guarded = GuardedCalls(circuit_breaker=breaking)
        many_ = stubs(grpc.intercept_channel(raw, guarded, Traced()))[1]
        answers = [said(lambda: list(many_(request))) for _ in range(4)]
        state = circuit_breakers.state(guarded.guard.name, key="acme.Echo")
        tell(f"traced {request.decode()}", [len(answers), describe(answers[-1]), state])
server.stop(None).wait(10)
"""

_KILLED = """
if len(sys.argv) > 1:
    server, port = serve()
    print(port, flush=True)
    server.wait_for_termination()
    sys.exit()
child = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
port = int(child.stdout.readline())
with grpc.insecure_channel(f"127.0.0.1:{port}") as raw:
    guarded = GuardedCalls(circuit_breaker=CircuitBreaker(request_volume_threshold=2, delay="60s"))
    echo_, many_, gather_, both_ = stubs(grpc.intercept_channel(raw, guarded))
    tell("alive", echo_(b"ada"))
    responses = both_(iter([b"1", b"sleep"]))
    tell("begun", next(responses))
    child.kill()
    child.wait()
    try:
        next(responses)
    except grpc.RpcError as failure:
        tell("killed", failure)
    while circuit_breakers.state(guarded.guard.name, key="acme.Echo") != "open":
        threading.Event().wait(0.001)
    try:
        echo_(b"1")
    except grpc.RpcError as failure:
        tell("refused", failure)
child.stdout.close()
"""

_AIO = """
async def said(awaited):
    try:
        return await awaited
    except Exception as failure:
        return failure

async def everything(call):
    return [response async for response in call]

async def aecho(request, context):
    if request == b"sleep":
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()
    if request in (b"open", b"rate", b"left"):
        return echo(request, None)
    return request

async def amany(request, context):
    yield request
    yield await aecho(request, context)

async def agather(requests, context):
    async for request in requests:
        return await aecho(request, context)

async def aboth(requests, context):
    async for request in requests:
        await context.write(await aecho(request, context))

async def main():
    server, port = serve()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", interceptors=AsyncGuardedCalls(**policies())) as channel:
        echo_, many_, gather_, both_ = stubs(channel)
        for request in (b"ada", b"busy", b"gone", b"none", b"broken"):
            tell(request.decode(), await said(echo_(request)))
            tell(request.decode() + " taken", taken.count(request))
        taken.clear()
        tell("many", await said(everything(many_(b"ada"))))
        tell("many gone", await said(everything(many_(b"gone"))))
        tell("many gone taken", taken.count(b"gone"))
        tell("gather", await said(gather_(iter([b"1", b"2"]))))
        tell("gather gone", await said(gather_(iter([b"gone"]))))
        tell("gather gone taken", taken.count(b"gone"))
        tell("both", await said(everything(both_(iter([b"1", b"2"])))))
        call = both_()
        await call.write(b"1")
        first = await call.read()
        await call.write(b"2")
        tell("written", [first.decode(), (await call.read()).decode()])
        await call.done_writing()
        tell("code", (await call.code()).name == "OK")
        async with deadline("10s"):
            tell("left of task", 0 < float(await echo_(b"left")) <= 10)

    timed = AsyncGuardedCalls(timeout=Timeout("150ms"))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", interceptors=timed) as channel:
        echo_, many_, gather_, both_ = stubs(channel)
        failure = tell("sleep", await said(echo_(b"sleep")))
        tell("sleep is", [isinstance(failure, TimeoutException), isinstance(failure, grpc.aio.AioRpcError)])
        tell("sleep notes", ["after its deadline" in note for note in failure.__notes__])
        tell("many sleep", await said(everything(many_(b"sleep", timeout=1))))
    one = AsyncGuardedCalls(bulkhead=Bulkhead(1, waiting_task_queue=1))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", interceptors=one) as channel:
        echo_ = stubs(channel)[0]
        call = echo_(b"sleep")
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(said(echo_(b"ada")))
        call.cancel()
        tell("after a cancelled one", await waiting)

    for name, way in {
        "echo": lambda stubs: stubs[0](b"broken"),
        "many": lambda stubs: everything(stubs[1](b"broken")),
        "gather": lambda stubs: stubs[2](iter([b"broken"])),
        "both": lambda stubs: everything(stubs[3](iter([b"broken"]))),
    }.items():
        broken = AsyncGuardedCalls(circuit_breaker=breaking)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", interceptors=[*broken]) as channel:
            ways = stubs(channel)
            for _ in range(4):
                await said(way(ways))
            until = time.monotonic() + 30
            while circuit_breakers.state(broken.guard.name, key="acme.Echo") != "open" and time.monotonic() < until:
                await asyncio.sleep(0.001)
            tell("refused " + name, await said(way(ways)))
    both = [*AsyncGuardedCalls(circuit_breaker=breaking), *broken]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", interceptors=both) as channel:
        tell("around", await said(stubs(channel)[0](b"1")))
    server.stop(None).wait(10)

    ended.clear()
    served = grpc.aio.server(interceptors=[AsyncRefusalInterceptor()])
    served.add_generic_rpc_handlers(handlers(aecho, amany, agather, aboth))
    port = served.add_insecure_port("127.0.0.1:0")
    await served.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        ways = stubs(channel)
        for name, way in {
            "echo": lambda request, **given: ways[0](request, **given),
            "many": lambda request, **given: everything(ways[1](request, **given)),
            "gather": lambda request, **given: ways[2](iter([request]), **given),
            "both": lambda request, **given: everything(ways[3](iter([request]), **given)),
        }.items():
            answers = [await said(way(request, timeout=20)) for request in (b"ada", b"open", b"rate")]
            tell("aio " + name, [describe(answer) for answer in answers])
            tell("aio left " + name, "19." in str(await way(b"left", timeout=20)))
        tell("aio none left", await ways[0](b"left"))
        tell("aio sleep", await said(ways[0](b"sleep", timeout=0.1)))
        tell("aio sleep ended", await asyncio.to_thread(ended.wait, 30))
    await served.stop(None)

    served = grpc.aio.server(futures.ThreadPoolExecutor(2), interceptors=[AsyncRefusalInterceptor()])
    served.add_generic_rpc_handlers(handlers(echo, many, gather, both))
    port = served.add_insecure_port("127.0.0.1:0")
    await served.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        echo_, many_, _, _ = stubs(channel)
        refusals = [await said(echo_(b"open")), await said(everything(many_(b"open")))]
        tell("plain", [describe(refusal) for refusal in refusals])
        tell("plain comes back", [len(refusal.trailing_metadata()) for refusal in refusals])
    await served.stop(None)

asyncio.run(main())
"""


_ENDS = """
limits = {
    "alone": {},
    "full bulkhead": {"bulkhead": Bulkhead(1)},
    "queue": {"bulkhead": Bulkhead(1, waiting_task_queue=9, max_wait="60s")},
    "spent rate limit": {"rate_limit": RateLimit(3, window="60s", max_wait="60s")},
}

def guarded(kind, limit):
    return kind(circuit_breaker=CircuitBreaker(request_volume_threshold=2, delay="60s"), **limits[limit])

def state(calls):
    return circuit_breakers.state(calls.guard.name, key="acme.Echo")

def of_threads(limit, request):
    go, held, over, ends = threading.Event(), threading.Event(), threading.Event(), []

    def requests():
        go.wait(30)
        yield request

    def hold(service):
        held.set()
        over.wait(30)

    calls = guarded(GuardedCalls, limit)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as raw:
        begin = stubs(grpc.intercept_channel(raw, calls))[3]
        started = [begin(requests()) for _ in range(2)]
        holder = threading.Thread(target=calls.guard.call, args=(hold, "acme.Echo"))
        holder.start()
        held.wait(30)
        for call in started:
            ends.append(threading.Event())
            call.add_done_callback(lambda _, end=ends[-1]: end.set())  # behind that of the guard
        go.set()
        for call in started:
            try:
                list(call)
            except grpc.RpcError:
                pass
        found = [end.wait(15) for end in ends], state(calls)
        over.set()
        holder.join(30)
    tell(f"{limit} {request.decode()} on threads", [*found[0], found[1]])

async def of_tasks(limit, request):
    go, over = asyncio.Event(), asyncio.Event()

    async def requests():
        await go.wait()
        yield request

    async def end(call):
        try:
            async for _ in call:
                pass
        except grpc.RpcError:
            pass

    async def hold(service):
        await over.wait()

    calls = guarded(AsyncGuardedCalls, limit)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", interceptors=calls) as channel:
        started = [stubs(channel)[3](requests()) for _ in range(2)]
        for call in started:
            await call.wait_for_connection()
        holder = asyncio.create_task(calls.guard.call_async(hold, "acme.Echo"))
        await asyncio.sleep(0.01)
        go.set()
        began = time.monotonic()
        await asyncio.gather(*map(end, started))
        while (request == b"broken" and state(calls) == "closed" or calls._told) and time.monotonic() < began + 15:
            await asyncio.sleep(0.001)
        tell(f"{limit} {request.decode()} in tasks", [True, time.monotonic() < began + 15, state(calls)])
        over.set()
        await holder

server, port = serve()
for limit in limits:
    for request in (b"ada", b"broken"):
        of_threads(limit, request)
        asyncio.run(of_tasks(limit, request))
server.stop(None).wait(10)
"""


@functools.cache
def told(program: str) -> dict[str, Any]:
    """Return the outcome of each step of *program*."""
    needs("grpc")
    return dict(json.loads(line) for line in run(_SERVICE + program))


@pytest.mark.parametrize("program", [_CLIENT, _AIO], ids=["threads", "asyncio"])
def test_a_call_that_the_service_did_not_take_is_made_again_and_an_answered_call_is_not(program: str) -> None:
    """``UNAVAILABLE`` is retried up to ``max_retries``; errors for missing or broken data come out."""
    answers = told(program)

    outcome = {name: (answers[name], answers[f"{name} taken"]) for name in ("ada", "busy", "gone", "none", "broken")}
    assert outcome == {
        "ada": ("b'ada'", 1),
        "busy": ("b'busy'", 2),
        "gone": ("Error UNAVAILABLE", 3),
        "none": ("Error NOT_FOUND", 1),
        "broken": ("Error UNKNOWN", 1),
    }


def test_the_codes_after_which_a_call_is_made_again_can_be_named() -> None:
    """A guard without named failures retries all failed calls."""
    assert (told(_CLIENT)["named broken taken"], told(_CLIENT)["named gone taken"]) == (3, 1)


@pytest.mark.parametrize("program", [_CLIENT, _AIO], ids=["threads", "asyncio"])
def test_a_call_with_a_stream_is_never_made_again(program: str) -> None:
    answers = told(program)

    assert (answers["many gone"], answers["many gone taken"]) == ("Error UNAVAILABLE", 1)
    assert (answers["gather"], answers["gather gone"], answers["gather gone taken"]) == (
        "b'1 2'",
        "Error UNAVAILABLE",
        2,
    )
    assert "1" in str(answers["both"])


def test_streams_and_futures_stay_streams_and_futures() -> None:
    """A stream can be cancelled, a future exists before its result, and requests may follow responses."""
    assert told(_CLIENT)["future"] == ["later"] * 3
    assert told(_CLIENT)["many"] == "[b'ada0', b'ada1', b'ada2']"
    assert told(_CLIENT)["stream"] == ["ada0", True, True]
    assert told(_CLIENT)["stream cancelled"] == "Error CANCELLED"
    assert told(_AIO)["written"] == ["1", "2"]
    assert told(_AIO)["code"] == 1


def test_a_call_has_the_time_that_is_left() -> None:
    """The remaining time is its time-out, which the server sees; a shorter one of the caller's counts."""
    assert [value for name, value in {**told(_CLIENT), **told(_AIO)}.items() if "left of" in name] == [True] * 5


@pytest.mark.parametrize("program", [_CLIENT, _AIO], ids=["threads", "asyncio"])
def test_a_late_call_is_ended_on_both_sides(program: str) -> None:
    """The exception is one of the library and of gRPC; the handler of the server is interrupted by its own deadline.

    A stream of responses has its own time-out alone.
    """
    answers = told(program)

    assert answers["sleep"] == "CallTimeout DEADLINE_EXCEEDED"
    assert answers["many sleep"] == "Error DEADLINE_EXCEEDED"
    assert answers["sleep is"] == [True, True]
    assert answers["sleep notes"] == [True]
    assert told(_CLIENT)["sleep ended"]
    assert told(_CLIENT)["sleep took"]


@pytest.mark.parametrize("program", [_CLIENT, _AIO], ids=["threads", "asyncio"])
def test_every_kind_of_call_opens_the_circuit_and_is_refused_by_it(program: str) -> None:
    refusals = {name: value for name, value in told(program).items() if name.startswith("refused ")}

    assert set(refusals.values()) == {"CircuitOpen UNAVAILABLE"}
    assert len(refusals) == (5 if program is _CLIENT else 4)


@pytest.mark.parametrize("way", ["on threads", "in tasks"])
@pytest.mark.parametrize("limit", ["alone", "full bulkhead", "queue", "spent rate limit"])
def test_the_end_of_a_call_is_judged_at_once_and_by_its_code_whatever_limits_the_next_call(
    limit: str, way: str
) -> None:
    """Two calls begin and fill the limit, and end: well, which leaves the circuit closed, or with a failure."""
    answers = told(_ENDS)

    assert answers[f"{limit} ada {way}"] == [True, True, "closed"]
    assert answers[f"{limit} broken {way}"] == [True, True, "open"]


def test_a_refusal_is_one_of_the_library_and_one_of_grpc() -> None:
    """It can be asked as a call or a future, pickled, and read by an interceptor of another library."""
    answers = told(_CLIENT)

    assert answers["refusal"] == ["UNAVAILABLE", True, True, "CircuitOpen"]
    assert answers["pickled"] == ["CircuitOpen", True, True]


@pytest.mark.parametrize("program", [_CLIENT, _AIO], ids=["threads", "asyncio"])
def test_a_refusal_of_an_inner_guard_passes_through_an_outer_one(program: str) -> None:
    assert told(program)["around"] == "CircuitOpen UNAVAILABLE"


def test_a_stream_through_an_interceptor_that_makes_a_generator_of_it_is_judged_at_its_end() -> None:
    """OpenTelemetry's makes one, which has no methods of a call."""
    assert told(_CLIENT)["traced ada"] == [4, "[b'ada0', b'ada1', b'ada2']", "closed"]
    assert told(_CLIENT)["traced broken"] == [4, "Error UNKNOWN", "open"]


def test_answers_of_the_service_open_no_circuit() -> None:
    assert told(_CLIENT)["not found"] == "Error NOT_FOUND"


def test_a_cancelled_call_gives_its_permit_back() -> None:
    assert told(_AIO)["after a cancelled one"] == "b'ada'"


def test_a_server_names_its_refusals_and_when_to_come_back() -> None:
    """The codes of gRPC leave out the names of guards; a client waits no longer than 30 seconds for ``RetryInfo``."""
    answers = told(_CLIENT)

    assert answers["open"] == "Error UNAVAILABLE"
    assert answers["words"] == "'The service cannot accept this request now.'"
    assert answers["open taken"] == 1
    assert (answers["rate"], answers["rate taken"]) == ("Error RESOURCE_EXHAUSTED", 3)


def test_a_server_of_asyncio_names_refusals_of_every_kind_of_handler() -> None:
    answers = told(_AIO)

    for kind in ("echo", "many", "gather", "both"):
        first, *others = answers[f"aio {kind}"]
        assert "ada" in first
        assert others == ["Error UNAVAILABLE", "Error RESOURCE_EXHAUSTED"]
        assert answers[f"aio left {kind}"]
    assert answers["aio none left"] == "b'None'"
    assert answers["aio sleep"] == "Error DEADLINE_EXCEEDED"
    assert answers["aio sleep ended"]


def test_a_server_of_asyncio_names_refusals_of_plain_functions_too() -> None:
    """Their context has no method that shows the trailing metadata."""
    assert told(_AIO)["plain"] == ["Error UNAVAILABLE"] * 2
    assert told(_AIO)["plain comes back"] == [1, 1]


def test_a_server_that_is_killed_in_the_middle_opens_the_circuit() -> None:
    """The stream that it was sending fails, and the guard counts the failure; the next call is not sent."""
    assert list(told(_KILLED).items()) == [
        ("alive", "b'ada'"),
        ("begun", "b'1'"),
        ("killed", "Error UNAVAILABLE"),
        ("refused", "CircuitOpen UNAVAILABLE"),
    ]


def test_wrong_values_are_refused() -> None:
    """A single value stands for a collection of it, as a pattern or a code."""
    lines = run(
        """
        from faulttolerance import FaultToleranceDefinitionException
        from faulttolerance.policies import Hedge, RetryWhen
        from faulttolerance.integrations.grpc import AsyncGuardedCalls, GuardedCalls
        for kind, given in (GuardedCalls, {"failures": "UNKNOWN"}), (AsyncGuardedCalls, {"methods": [7]}), (
            GuardedCalls, {"again": 14}), (GuardedCalls, {"hedge": Hedge(delay=5)}
        ):
            try:
                kind(**given)
            except FaultToleranceDefinitionException as error:
                print(error)
        """
    )

    assert lines[:3] == [
        "GuardedCalls(failures) contains 'UNKNOWN'; allowed: members of grpc.StatusCode",
        "AsyncGuardedCalls(methods) contains 7; allowed: patterns, such as 'Get*'",
        "GuardedCalls(again) contains 14; allowed: members of grpc.StatusCode",
    ]
    assert lines[3].startswith("GuardedCalls(hedge) is set; allowed: None: it would send a call twice")
