"""The guards of a process as a page for people, and as JSON for machines.

>>> from faulttolerance.web import asgi_app
>>> status = asgi_app(critical="acme.payments*", title="Shop")

This is an ASGI application. Mount it under any prefix, or serve it alone. ``wsgi_app`` returns the same for WSGI.
"""

from __future__ import annotations

from .asgi import asgi_app
from .messages import Request
from .wsgi import wsgi_app

__all__ = ["Request", "asgi_app", "wsgi_app"]
