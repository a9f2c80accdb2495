"""Which time-out holds in this deployment, and who said so?

The code says one second, the operator's variable says two, and nobody remembers. `explain` does; it also names the
variable that would change each value.
"""

from __future__ import annotations

import os

from faulttolerance import TimeoutException, explain, retry, timeout

os.environ["FAULTTOLERANCE_TIMEOUT_VALUE"] = "2s"  # as in the deployment


class Billing:
    @retry(max_retries=2, delay="100ms", jitter="50ms", retry_on=(ConnectionError, TimeoutException))
    @timeout("1s")
    def charge(self, order: str) -> str:
        return f"charged {order}"


explanation = explain(Billing.charge)
print(explanation)

# For programs, and for tests of a deployment:
timeout_of_charge = explanation.as_dict()["policies"][1]["parameters"]["value"]

assert timeout_of_charge["value"] == "2s"
assert "FAULTTOLERANCE_TIMEOUT_VALUE" in timeout_of_charge["source"]
assert timeout_of_charge["variable"].endswith("BILLING_CHARGE_TIMEOUT_VALUE")  # reaches this method alone
assert "delay = 100ms  [decorator]" in explanation
