"""A cold cache under load: a hundred requests for one page ask the backend once."""

from __future__ import annotations

import asyncio

from faulttolerance import TimeoutException, coalesce, retry, timeout

asked: list[str] = []


class Pages:
    """A cache in front of a slow backend; a miss of many is a call of one."""

    def __init__(self) -> None:
        self.cached: dict[str, str] = {}

    async def page(self, path: str, trace_id: str) -> str:
        if path not in self.cached:
            self.cached[path] = await self.render(path, trace_id)
        return self.cached[path]

    @coalesce(key="path")
    @retry(max_retries=2, jitter=0, retry_on=(ConnectionError, TimeoutException))
    @timeout("2s")
    async def render(self, path: str, trace_id: str) -> str:
        asked.append(path)
        await asyncio.sleep(0.05)
        if len(asked) == 1:
            raise ConnectionError(f"{trace_id}: try again")
        return f"<h1>{path}</h1>"


async def main() -> None:
    pages = Pages()
    answers = await asyncio.gather(*(pages.page("/tea", f"request {number}") for number in range(100)))

    assert set(answers) == {"<h1>/tea</h1>"}
    assert asked == ["/tea", "/tea"]  # one call, which was retried once for all
    print(f"{len(answers)} requests, {len(asked)} attempts")


asyncio.run(main())
