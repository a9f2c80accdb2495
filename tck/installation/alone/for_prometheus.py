"""Prometheus' client alone: metrics are where it exports them."""

from __future__ import annotations

import prometheus_client
from outage import down, guard, shown

shop = guard("shop")


def badly() -> None:
    try:
        shop.call(down)
    except ConnectionError:
        pass


shown("prometheus-client", lambda: shop.call(lambda: "green"), badly)
text = prometheus_client.generate_latest().decode()
assert 'ft_invocations_total{fallback="notDefined",method="shop",result="valueReturned"} 1.0' in text, text
