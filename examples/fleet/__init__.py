"""Four processes with one rate limit and one circuit, a backend that fails, and a Redis server that goes away.

    python -m examples.fleet [--plain] [--seconds 30]

It takes about a minute, or 40 seconds with `--seconds 10`, and starts a redis-server of its own, on a free port and in
a directory that is removed at the end. The exit status is 0 only if the promises were kept (`promises.py`), and 2 where
there is no redis-server. The guarded functions are in `service.py`, and are meant to be copied.
"""
