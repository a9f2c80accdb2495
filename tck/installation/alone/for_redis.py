"""redis-py alone, without hiredis: a server that knows one command, and a port where nobody is."""

from __future__ import annotations

import socketserver
import threading

import redis
from outage import guard, shown
from serving import nobody

from faulttolerance.integrations.redis import install


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while size := self.rfile.readline():
            words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2).strip() for _ in range(int(size[1:]))]
            self.wfile.write(b"$5\r\ngreen\r\n" if words[0] == b"GET" else b"+OK\r\n")


def client(port: int) -> redis.Redis:
    return install(redis.Redis(port=port, protocol=2), shop)


def badly() -> None:
    try:
        client(int(nobody().rpartition(":")[2])).get("tea")
    except redis.RedisError:
        pass


shop = guard("shop")
with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    shown("redis", lambda: client(server.server_address[1]).get("tea"), badly)
    server.shutdown()
