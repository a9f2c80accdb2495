"""The storefront under an outage, watched by a real Prometheus with this library's alert rules and dashboard.

    python -m examples.observed

It takes about 20 seconds, and starts a prometheus of its own, on a free port and in a directory that is removed at the
end. The exit status is 0 only if every question of the dashboard was answered, and if those alerts fired that ought to
in this outage and no others (`expectations.py`); it is 2 where there is no prometheus. To look at the same in Grafana,
where docker is: `docker compose -f examples/observed/compose.yml up`.
"""
