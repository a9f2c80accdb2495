"""One server for all tests that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.redis_server import RedisServer, redis_server


@pytest.fixture(scope="session")
def running_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that no test ends."""
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server
