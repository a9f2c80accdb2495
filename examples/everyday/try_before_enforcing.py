"""A limit for a service in use is tried out first: a week of numbers, then one line of configuration."""

from __future__ import annotations

from faulttolerance import RateLimitException, configure, guards, rate_limit
from faulttolerance.testing import virtual_time


class Mailer:
    @rate_limit(10, window="1m")
    def send(self, to: str) -> str:
        return f"sent to {to}"


def too_many() -> float:
    """How many mails the limit would have refused until now."""
    [mine] = [one for one in guards() if one.name.endswith("Mailer.send")]
    return mine.counts["ft.observed.total", (("policy", "RateLimit"),)]


with virtual_time() as time:
    configure(properties={"RateLimit/mode": "observe"})
    for minute in range(60):
        for number in range(14 if minute == 8 else 6):  # the newsletter goes out at eight
            assert Mailer().send(f"{number}@acme.example").startswith("sent")
        time.sleep(60)
    print("mails that the limit would have refused:", too_many())
    assert too_many() == 4

    for change in configure(properties={"RateLimit/value": 14}):  # enforced, and with room for the newsletter
        print(change)
    for number in range(14):
        Mailer().send(f"{number}@acme.example")
    try:
        Mailer().send("one@too.many")
    except RateLimitException as refusal:
        print(refusal)
    else:
        raise AssertionError("it is enforced now")
