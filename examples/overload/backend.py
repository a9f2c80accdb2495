"""A web service with a fixed number of workers and one queue before them, in a process of its own.

A worker sleeps instead of computing, so what the service can do depends on no processor. As in most services, nobody
looks whether the caller of a request that waits is still there: what was given up is worked on all the same.

    python -m examples.overload.backend

It prints the port that it listens at, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import random
import sys

WORKERS = 5
MEAN, SPREAD = 0.09, 0.5
"""Seconds that a worker needs for a request, on average, and the spread of their logarithm: the 90th percentile is
150 ms."""

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


class Backend:
    """Answers requests, one per worker at a time and in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        self._chance = random.Random(1)

    async def serve(self) -> None:
        """Listen until the standard input ends."""
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._take, "127.0.0.1", 0, backlog=1000)
        workers = [asyncio.create_task(self._work()) for _ in range(WORKERS)]
        print(server.sockets[0].getsockname()[1], flush=True)
        await loop.run_in_executor(None, sys.stdin.read)
        server.close()
        for worker in workers:
            worker.cancel()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):
            writer.close()
        else:
            self._waiting.put_nowait(writer)

    async def _work(self) -> None:
        while True:
            writer = await self._waiting.get()
            await asyncio.sleep(MEAN * self._chance.lognormvariate(-(SPREAD**2) / 2, SPREAD))
            writer.write(_ANSWER)
            writer.close()


if __name__ == "__main__":
    asyncio.run(Backend().serve())
