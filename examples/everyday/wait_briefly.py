"""A rush at a service with two places: calls wait briefly, and what matters most goes first."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from faulttolerance import BulkheadException, bulkhead, criticality, sleep
from faulttolerance.policies import Criticality

ended: Counter[str] = Counter()


@bulkhead(2, waiting_task_queue=4, max_wait=500)
def charge(order: int) -> str:
    sleep(0.1)
    return f"order {order} is paid"


def arrive(order: int) -> None:
    level = Criticality.CRITICAL if order % 5 == 0 else Criticality.BEST_EFFORT
    with criticality(level):
        try:
            charge(order)
            ended[f"{level.name}: paid"] += 1
        except BulkheadException as refusal:
            ended[f"{level.name}: {refusal.reason}"] += 1


with ThreadPoolExecutor(20) as crowd:
    list(crowd.map(arrive, range(20)))

for end, times in sorted(ended.items()):
    print(f"{end} {times} times")
assert ended["CRITICAL: paid"] == 4, "they go first, and displace others"
assert ended["BEST_EFFORT: full"] + ended["BEST_EFFORT: displaced"] > 0
