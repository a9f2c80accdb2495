"""A web service that writes down when each request came, in a process of its own.

    python -m examples.fleet.backend

It prints the port that it listens at, and then four times a second a line of JSON: the requests since the line before,
each with its time by the clock of this process, and whether it was answered with 503. The lines `fail` and `work` on
its standard input change how it answers; it ends when that input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time

STEP = 0.25
"""Seconds between two lines."""
WORK = 0.005
"""Seconds that an answer takes."""
_ANSWERS = {
    "work": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n9.50",
    "fail": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
}


class Backend:
    """Answers requests, and remembers when they came."""

    def __init__(self) -> None:
        self._does = "work"
        self._came: list[tuple[float, bool]] = []

    async def serve(self) -> None:
        """Listen until the standard input ends."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=1000)
        print(server.sockets[0].getsockname()[1], flush=True)
        ended = asyncio.Event()
        threading.Thread(target=self._obey, args=(asyncio.get_running_loop(), ended), daemon=True).start()
        telling = asyncio.create_task(self._tell())
        await ended.wait()
        telling.cancel()
        server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            keep = True
            while keep:
                keep = b"Connection: close" not in await reader.readuntil(b"\r\n\r\n")
                does = self._does
                self._came.append((time.monotonic(), does == "fail"))
                await asyncio.sleep(WORK)
                writer.write(_ANSWERS[does])
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # whoever asked has gone
        finally:
            writer.close()

    def _obey(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
        for line in sys.stdin:
            self._does = line.strip()
        loop.call_soon_threadsafe(ended.set)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(STEP)
            came, self._came = self._came, []
            print(json.dumps({"at": time.monotonic(), "came": came}), flush=True)


if __name__ == "__main__":
    asyncio.run(Backend().serve())
