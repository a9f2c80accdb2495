"""Clients that use the remaining time as their own time-out, where nothing can interrupt (rule S3)."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from faulttolerance import Guard, TimeoutException, remaining
from faulttolerance.policies import Retry, Timeout
from kit.crowd import on_thread

pytestmark = [pytest.mark.outside, pytest.mark.timeout(200)]  # programs say themselves that they hang


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """Yield the address of a server that accepts all connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=32) as server:
        yield server.getsockname()


def by_socket(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.settimeout(remaining())
        connection.recv(1)


def by_urllib(address: tuple[str, int]) -> None:
    with urllib.request.urlopen("http://{}:{}/".format(*address), timeout=remaining()):
        pass


def by_httpx(address: tuple[str, int]) -> None:
    httpx = pytest.importorskip("httpx")
    httpx.get("http://{}:{}/".format(*address), timeout=remaining())


CLIENTS: list[Callable[[tuple[str, int]], None]] = [by_socket, by_urllib, by_httpx]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_a_client_that_knows_the_remaining_time_ends_in_time(
    client: Callable[[tuple[str, int]], None], address: tuple[str, int]
) -> None:
    """The caller gets the time-out of its guard, caused by the exception of the client."""
    guard = Guard(timeout=Timeout("300ms"))
    failure, elapsed = on_thread(lambda: guard.call(client, address))

    assert isinstance(failure, TimeoutException)
    assert failure.__cause__ is not None
    assert elapsed < 10  # without a time-out of its own it would wait for ever


def test_each_attempt_gets_the_remaining_time_of_the_call(address: tuple[str, int]) -> None:
    """``remaining`` tells an enclosing deadline that comes first, in the second attempt too."""
    left: list[float | None] = []
    whole = Guard(timeout=Timeout("500ms"))
    inner = Guard(retry=Retry(max_retries=5, delay=0, jitter=0, retry_on=TimeoutException), timeout=Timeout("300ms"))

    def attempt() -> None:
        left.append(remaining())
        by_socket(address)

    failure, _ = on_thread(lambda: whole.call(inner.call, attempt))

    assert isinstance(failure, TimeoutException)
    assert len(left) == 2
    first, second = left
    assert first is not None
    assert second is not None
    assert second < 0.25 < first


@pytest.mark.parametrize("later", [0, 0.1])
def test_a_client_that_ends_by_itself_cleans_up_in_peace(address: tuple[str, int], later: float) -> None:
    """By rule S3: an interruption after the client's own time-out, which may count from *later* on, would be lost."""
    guard = Guard(timeout=Timeout("100ms"))
    cleaned: list[int] = []

    def body() -> None:
        connection = socket.create_connection(address)
        try:
            connection.settimeout((remaining() or 0) + later)
            connection.recv(1)
        finally:
            for step in range(100):
                cleaned.append(step)  # noqa: PERF402  # a hundred places in which an exception could be raised
            connection.close()

    for _ in range(10):
        cleaned.clear()
        failure, _ = on_thread(lambda: guard.call(body))

        assert isinstance(failure, TimeoutException)
        assert len(cleaned) == 100


def fails(steps: list[float]) -> None:
    raise OSError


def cleanup_in_finally(steps: list[float]) -> None:
    try:
        fails(steps)
    finally:
        clean_up(steps)


def cleanup_in_except(steps: list[float]) -> None:
    try:
        fails(steps)
    except OSError as error:
        clean_up(steps)
        raise TimeoutError from error


@contextmanager
def cleaning(steps: list[float]) -> Iterator[None]:
    try:
        yield
    except OSError:
        clean_up(steps)
        raise


def cleanup_in_a_block(steps: list[float]) -> None:
    with cleaning(steps):
        fails(steps)


def clean_up(steps: list[float]) -> None:
    """Work, from before the deadline until behind it."""
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        steps.append(end - time.monotonic())
    steps.append(0)


@pytest.mark.parametrize("body", [cleanup_in_finally, cleanup_in_except, cleanup_in_a_block])
def test_a_cleanup_has_some_time_when_the_deadline_passes(body: Callable[[list[float]], None]) -> None:
    """By rule S3: for a failure just before the deadline it is at work already, and not interrupted for 40 ms."""
    guard = Guard(timeout=Timeout("40ms"))
    is_whole: list[bool] = []

    for _ in range(5):
        steps: list[float] = []
        failure, _ = on_thread(lambda steps=steps: guard.call(body, steps))

        assert isinstance(failure, TimeoutException)
        is_whole.append(steps[-1] == 0)

    assert sum(is_whole) > 2  # a machine that is busy may have kept the thread waiting for all of its time


def test_a_cleanup_without_end_is_interrupted() -> None:
    """By rule S3: after 40 ms, as all other code."""

    def body() -> None:
        try:
            raise OSError
        finally:
            while True:
                time.monotonic()

    failure, elapsed = on_thread(lambda: Guard(timeout=Timeout("40ms")).call(body))

    assert isinstance(failure, TimeoutException)
    assert elapsed > 0.08
