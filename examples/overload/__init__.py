"""A service that is offered up to three times what it can do, and four ways of calling it.

    python -m examples.overload [--plain] [--plot FILE]

It takes about 50 seconds and needs nothing but this library. The exit status is 0 only if the promises were kept
(`promises.py`). The guarded functions are in `ways.py`, and are meant to be copied.
"""
