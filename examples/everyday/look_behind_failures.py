"""Retry what a broken connection causes, however the libraries between wrapped it, and nothing else."""

from __future__ import annotations

from faulttolerance import caused_by, retry


class StorageError(Exception):
    """All that a storage library ever raises."""


attempts: list[str] = []


@retry(max_retries=2, delay="10ms", jitter="5ms", retry_on=caused_by(ConnectionError))
def load(key: str) -> str:
    attempts.append(key)
    try:
        if key == "no such key":
            raise KeyError(key)
        if len(attempts) < 3:
            raise ConnectionResetError("the other side hung up")
    except (KeyError, ConnectionError) as error:
        raise StorageError(f"cannot load {key!r}") from error
    return f"value of {key}"


print(load("colour"), "after", len(attempts), "attempts")
if len(attempts) != 3:
    raise SystemExit("a broken connection should be retried")

attempts.clear()
try:
    load("no such key")
except StorageError as error:
    print(repr(error.__cause__), "after", len(attempts), "attempt")
if len(attempts) != 1:
    raise SystemExit("what is not there should not be asked for again")
