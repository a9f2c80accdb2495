"""grpcio alone, without protobuf: a server on a real port, and a port where nobody is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
from outage import POLICIES, shown
from serving import nobody

from faulttolerance.integrations.grpc import GuardedCalls, RefusalInterceptor

guarded = GuardedCalls(name="shop", **POLICIES)


def call(address: str) -> bytes:
    with grpc.intercept_channel(grpc.insecure_channel(address), guarded) as channel:
        return channel.unary_unary("/shop.Tea/Get")(b"", timeout=10)


def badly() -> None:
    try:
        call(down)
    except grpc.RpcError:
        pass


down = nobody().partition("//")[2]
handlers = {"Get": grpc.unary_unary_rpc_method_handler(lambda request, context: b"green")}
server = grpc.server(ThreadPoolExecutor(1), interceptors=[RefusalInterceptor()])
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("shop.Tea", handlers)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
shown("grpcio", lambda: call(f"127.0.0.1:{port}"), badly)
server.stop(0).wait()
