"""The guards of a process as a page for people, and as JSON for machines.

>>> from faulttolerance.web import asgi_app
>>> status = asgi_app(critical="acme.payments*", title="Shop")

That is an ASGI application, to be mounted under any prefix or served alone; ``wsgi_app`` makes the same for WSGI.
"""

from __future__ import annotations

from .asgi import asgi_app
from .exchange import Request
from .wsgi import wsgi_app

__all__ = ["Request", "asgi_app", "wsgi_app"]
