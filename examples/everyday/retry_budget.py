"""A payment service goes down: each order is tried once, and not four times, and the first good answers pay again."""

from __future__ import annotations

from faulttolerance import explain, retry, retry_budget


class Payments:
    is_down = False
    hiccups = 0
    requests = 0

    @retry(max_retries=3, delay=0, jitter=0, retry_on=ConnectionError)
    @retry_budget(name="payments")
    def charge(self, order: int) -> str:
        self.requests += 1
        if self.is_down or self._hiccup():
            raise ConnectionError("no answer")
        return f"charged {order}"

    @retry(max_retries=3, delay=0, jitter=0, retry_on=ConnectionError)
    @retry_budget(name="payments")
    def refund(self, order: int) -> str:
        self.requests += 1
        return f"refunded {order}"

    def _hiccup(self) -> bool:
        self.hiccups += 1
        return self.hiccups % 4 == 0


def served(payments: Payments, orders: int) -> tuple[int, float]:
    """Charge so many orders: how many were, and the requests for each of them."""
    before, charged = payments.requests, 0
    for order in range(orders):
        try:
            payments.charge(order)
            charged += 1
        except ConnectionError as error:
            reason = error.__notes__[-1].rpartition("because ")[2]
            if order == orders - 1:
                print(f"order {order}: {error}, and {reason}")
    return charged, (payments.requests - before) / orders


payments = Payments()
charged, each = served(payments, 300)
print(f"one request in four fails: {charged} of 300 orders are charged, {each:.2f} requests each")

payments.is_down = True
lost, each_lost = served(payments, 1000)
print(f"down: {each_lost:.2f} requests each")
print(str(explain(payments.charge)).partition("now ")[2].partition("\n")[0])

payments.is_down = False
for order in range(50):
    payments.refund(order)  # the same budget
again, _ = served(payments, 300)
print(f"up again, after fifty refunds: {again} of 300 orders are charged")
if (charged, lost, again) != (300, 0, 300) or each_lost > 1.02:
    raise SystemExit("hiccups should not be seen, and an outage should not be amplified")
