"""A mail service that takes ten messages a second: calls take turns instead of being refused."""

from __future__ import annotations

import asyncio
import time

from faulttolerance import RateLimitException, rate_limit


@rate_limit(10, type="smooth", max_wait=500)
async def send(message: str) -> str:
    return f"sent {message}"


async def main() -> None:
    began = time.monotonic()
    sent = await asyncio.gather(*(send(f"number {number}") for number in range(12)), return_exceptions=True)
    refused = [end for end in sent if isinstance(end, RateLimitException)]
    print(f"{len(sent) - len(refused)} sent within {time.monotonic() - began:.1f} s, one each 0.1 s")
    print(f"{len(refused)} refused at once: {refused[0]}")
    assert len(sent) - len(refused) in (6, 7)


asyncio.run(main())
