"""Calls of gRPC: its C library waits in turns of 0.2 s, and looks only between them whether a signal has come."""

from __future__ import annotations

import pytest

from kit.surroundings import needs, run

pytestmark = [pytest.mark.outside, pytest.mark.timeout(200)]  # programs say themselves that they hang


def test_blocking_call_of_the_main_thread_is_interrupted() -> None:
    """A signal makes a turn begin anew; sent more often than that, it is never noticed."""
    needs("grpc")
    lines = run(
        """
        import threading
        from concurrent import futures

        import grpc
        from faulttolerance import TimeoutException, timeout

        over = threading.Event()

        def echo(request, context):
            over.wait(15.0)
            return request

        server = grpc.server(futures.ThreadPoolExecutor(2))
        method = grpc.unary_unary_rpc_method_handler(echo)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("acme.Echo", {"echo": method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/acme.Echo/echo")
            try:
                timeout(300)(call)(b"request")
            except TimeoutException as error:
                print(type(error.__cause__).__name__, over.is_set())
            over.set()
        server.stop(None).wait(10.0)
        """
    )

    assert lines == ["Interrupted False"]


def test_a_call_on_a_thread_ends_by_the_callback_of_on_deadline() -> None:
    """S1: off the main thread no signal reaches it; ``call.cancel`` does, and the caller goes on at once."""
    needs("grpc")
    lines = run(
        """
        import threading, time
        from concurrent import futures

        import grpc
        from faulttolerance import TimeoutException, on_deadline, timeout

        over = threading.Event()

        def echo(request, context):
            over.wait(15.0)
            return request

        server = grpc.server(futures.ThreadPoolExecutor(2))
        method = grpc.unary_unary_rpc_method_handler(echo)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("acme.Echo", {"echo": method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = channel.unary_unary("/acme.Echo/echo")

            @timeout(300)
            def ask():
                call = stub.future(b"request")
                with on_deadline(call.cancel):
                    return call.result()

            def run():
                try:
                    ask()
                except TimeoutException as error:
                    print(type(error.__cause__).__name__, over.is_set(), call_seconds() < 5)

            began = time.monotonic()
            call_seconds = lambda: time.monotonic() - began
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            over.set()
        server.stop(None).wait(10.0)
        """
    )

    assert lines[0] in ("FutureCancelledError False True", "Interrupted False True")
