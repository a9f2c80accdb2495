"""The instructions of a function show where it handles a failure."""

from __future__ import annotations

import contextlib
import select
import ssl
import sys
from collections.abc import Iterator

from faulttolerance._deadline.threads.instructions import RELEASES, ahead, blocks_at, callee_at, handles_failure


def is_handling() -> bool:
    caller = sys._getframe(1)
    return handles_failure(caller.f_code, caller.f_lasti)


def test_code_that_follows_a_failure_is_told_from_other_code() -> None:
    """By rule S3: an ``except``, a ``finally`` that an exception led to, and all code inside them."""
    seen: dict[str, bool] = {"before": is_handling()}
    for fails in (False, True):
        try:
            seen["body"] = is_handling()
            if fails:
                raise OSError
        except ValueError:
            raise
        except OSError as error:
            seen["except"] = is_handling()
            try:
                seen["body in except"] = is_handling()
                if fails:
                    raise ValueError from error
            except ValueError:
                seen["except in except"] = is_handling()
            seen["end of except"] = is_handling()
        else:
            seen["else"] = is_handling()
        finally:
            seen[f"finally of {fails}"] = is_handling()
        seen["behind"] = is_handling()
    for fails in (False, True):
        with contextlib.suppress(OSError):
            try:
                if fails:
                    raise OSError
            finally:
                seen[f"finally, {fails}"] = is_handling()

    assert [place for place, handles in seen.items() if handles] == [
        "except",
        "body in except",
        "except in except",
        "end of except",
        "finally, True",
    ]


def test_a_finally_begins_before_an_interruption() -> None:
    """R2a: an exception where its first call begins would skip all of it."""
    seen: list[frozenset[str]] = []

    def look() -> None:
        caller = sys._getframe(1)
        seen.append(ahead(caller.f_code, caller.f_lasti))

    try:
        look()
        look()
    finally:
        look()
        look()

    assert seen[:3] == [set(), {RELEASES}, set()]


def test_a_block_that_a_failure_ends_is_left_as_one() -> None:
    """By rule S3: seen by the code that has the block, and by the generator behind the context manager."""
    seen: list[bool] = []

    class Block:
        def __enter__(self) -> None:
            self.look()

        def __exit__(self, *raised: object) -> bool:
            self.look()
            return True

        def look(self) -> None:
            frame = sys._getframe(2)
            seen.append(handles_failure(frame.f_code, frame.f_lasti))

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        try:
            yield
        except OSError:
            seen.append(is_handling())

    with Block():
        pass
    with Block():
        raise OSError
    with block():
        raise OSError

    assert seen == [False, False, False, True, True]


def test_nothing_is_known_of_what_follows_the_last_instruction_of_a_function() -> None:
    """An exception that is sent to a thread there may come in any code of its callers."""
    code = is_handling.__code__

    assert ahead(code, len(code.co_code) - 2) == {RELEASES}


def test_callee_of_a_call_is_known_however_the_arguments_are_passed() -> None:
    """Messages name it, and by its name a call counts as one that blocks."""
    seen: list[tuple[str, bool]] = []

    def called(*_: object, **__: object) -> None:
        caller = sys._getframe(1)
        seen.append(callee_at(caller.f_code, caller.f_lasti))

    one, named = (1,), {"two": 2}
    called(1, 2)
    called(1, two=2)
    called(*one)
    called(**named)
    called(*one, **named)

    assert seen == [("called", False)] * 5


def test_a_read_over_tls_waits_in_a_socket_only() -> None:
    """That of an object for TLS in memory, as of a loop of asyncio, is not interrupted: its transport would end."""
    waits = {
        code: any(blocks_at(code, offset) for offset in range(0, len(code.co_code), 2))
        for code in (ssl.SSLSocket.read.__code__, ssl.SSLObject.read.__code__)
    }

    assert [*waits.values()] == [True, False]


def test_a_poll_that_only_looks_does_not_wait() -> None:
    """Pools look so whether a connection is still good, as httpcore does while it assigns connections to requests."""
    looks = (lambda poller: poller.poll(0), lambda sock: select.select([sock], [], [], 0.0))
    waits = (
        lambda poller: poller.poll(),
        lambda poller: poller.poll(10),
        lambda sock: select.select([sock], [], []),
        lambda sock: sock.recv(0),
    )

    for functions, expected in ((looks, False), (waits, True)):
        for code in (function.__code__ for function in functions):
            assert any(blocks_at(code, offset) for offset in range(0, len(code.co_code), 2)) is expected
