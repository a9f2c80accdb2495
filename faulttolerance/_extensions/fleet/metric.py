"""The metric of the link to a fleet."""

from __future__ import annotations

from ..._metrics.catalogue import Metric

FLEET_UP = Metric(
    "ft.fleet.up",
    "gauge",
    "1 while the fleet answers this process; 0 while the process decides alone",
    ("namespace",),
    of_process=True,
)
