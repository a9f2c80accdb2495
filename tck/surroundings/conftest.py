"""The surroundings in which applications really run: servers, workers, event loops and test tools of other people.

What is promised elsewhere is tried here beside those who patch, replace or stop what a library stands on: greenlets
that are switched under their thread, clocks that stand still, a main thread blocked in somebody's C library, loops that
are none of asyncio's, servers that fork, a second life of the application in one process.

- One file for each of them; the packages are in the extra ``test-optional``.
- Most tests run a program of their own, by ``kit.surroundings.run``: what was imported first, and what was patched
  before that, is what they are about, and what hangs must not hang the run. ``kit.surroundings.gunicorn`` serves.
- Public names only, as an application would use them.
- Time is real here. So nothing is asserted on seconds but what differs by an order of magnitude.
"""
