"""The metric of the link to a fleet."""

from __future__ import annotations

from ..._metrics.catalogue import Metric

FLEET_UP = Metric(
    "ft.fleet.up",
    "gauge",
    "Whether the fleet answers this process: 1, or 0 while it decides alone",
    ("namespace",),
    of_process=True,
)
