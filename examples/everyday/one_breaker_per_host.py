"""A crawler that talks to many hosts: the one that is down is left alone, all others are served."""

from __future__ import annotations

from urllib.parse import urlsplit

from faulttolerance import CircuitBreakerOpenException, circuit_breaker, circuit_breakers, partition_by

asked: list[str] = []


class Web:
    @partition_by(lambda url: urlsplit(url).netloc, max_partitions=100)
    @circuit_breaker(request_volume_threshold=4, fail_on=ConnectionError, delay="1h")
    def get(self, url: str) -> str:
        asked.append(url)
        if urlsplit(url).netloc == "down.example":
            raise ConnectionError(f"no answer from {url}")
        return f"<h1>{url}</h1>"


web, name, refused = Web(), f"{__name__}.Web.get", 0
for number in range(1000):
    try:
        web.get(f"https://down.example/{number}")
    except ConnectionError:
        pass
    except CircuitBreakerOpenException:
        refused += 1
    web.get(f"https://host-{number}.example/")  # ten times as many hosts as are told apart

assert refused == 996
assert len(asked) == 1004
assert circuit_breakers.state(name, key="down.example") == "open"
assert circuit_breakers.state(name, key="host-999.example") == "closed"
print(f"{len(asked)} requests, {refused} refused; down.example is", circuit_breakers.state(name, key="down.example"))
