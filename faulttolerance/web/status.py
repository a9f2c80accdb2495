"""The table of paths and their responses, independent of any server."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import cache, partial
from importlib.resources import files
from typing import Any, TypeAlias
from urllib.parse import parse_qs, quote

from .. import health
from .._log import ERROR, log
from .._shown import one_or_several, shown
from ..exceptions import Fault, raise_faults
from . import action, page, reading
from .hosts import is_known
from .messages import Request, Response, as_html, as_json, is_for_people, response

Hook: TypeAlias = Callable[[Request], Any]
"""A function of the application that decides: true or an identity for yes, false for no. It may be ``async def``."""

Run: TypeAlias = Callable[..., Awaitable[Any]]
"""A way of calling a function with arguments that may take long."""
View: TypeAlias = Callable[[Request], Response]

MOST_BYTES = 16_384
"""The maximum size of a body; forms have some hundreds of bytes."""
TOO_LONG = f"at most {MOST_BYTES} bytes are accepted"

_ROWS = 100
"""The number of guards that the page shows at first; programs get all guards."""

_ASSETS = {
    "/page.css": "text/css; charset=utf-8",
    "/page.js": "text/javascript; charset=utf-8",
    "/icon.svg": "image/svg+xml",
}
_GUARDS = "/guards/"


class EarlyResponse(Exception):
    """The early end of an answer, with a status, words and further headers."""


class StatusPage:
    """The part that the ASGI and WSGI applications share."""

    def __init__(
        self,
        where: str,
        critical: Iterable[str] | str,
        hosts: Iterable[str] | str,
        admit: Hook | None,
        authorize: Hook | None,
        title: str,
    ) -> None:
        self._critical, self._hosts = one_or_several(critical), one_or_several(hosts)
        names = "names of guards, or patterns such as 'acme.payments.*'"
        texts: list[tuple[str, object, str]] = [
            *(("critical", one, names) for one in self._critical),
            *(("hosts", one, "names of hosts, or patterns such as '*.shop.example'") for one in self._hosts),
            ("title", title, "text for the head of the page"),
        ]
        callables = "a callable that takes the request, or None"
        hooks: list[tuple[str, object, str]] = [("admit", admit, callables), ("authorize", authorize, callables)]
        wrong = [one for one in texts if not (isinstance(one[1], str) and one[1].strip())]
        wrong += [one for one in hooks if not (one[1] is None or callable(one[1]))]
        raise_faults(Fault(f"{where}({name})", f"is {shown(value)}", value, allowed) for name, value, allowed in wrong)
        self._admit = admit
        self._authorize = authorize
        self._title = title

    async def answer(self, request: Request, run: Run) -> Response:
        """Return the response to *request*. It waits for nothing but *run*, and for hooks that are awaited."""
        try:
            if not is_known(request, self._hosts):
                raise EarlyResponse(421, "this is not served under the name in Host; hosts=... sets the names")
            if self._admit is not None and not await _decision(self._admit, request, run):
                raise EarlyResponse(403, "not admitted")
            if self._authorize is not None and (acting := await run(_action_request, request)) is not None:
                if wrong := action.rejection(acting):
                    raise EarlyResponse(*wrong)
                answer: Response = await run(_perform, acting, await _decision(self._authorize, acting, run))
            else:
                answer = await run(self._view, request)
        except EarlyResponse as early:
            answer = self.message(request, *early.args)
        return answer._replace(body=b"") if request.method == "HEAD" else answer

    def _view(self, request: Request) -> Response:
        path = request.path
        view = self._view_at(path)
        if view is None:
            if self._authorize is not None and _action_in(path) is not None:
                raise EarlyResponse(405, "actions need POST", ("allow", "POST"))
            if not path:
                raise EarlyResponse(307, "the page has a slash at its end", ("location", _with_slash(request)))
            raise EarlyResponse(404, "nothing is here")
        if request.method not in ("GET", "HEAD"):
            raise EarlyResponse(405, f"{request.method} changes nothing here", ("allow", "GET, HEAD"))
        return view(request)

    def _view_at(self, path: str) -> View | None:
        if path in _ASSETS:
            return lambda request: _asset(path)
        if path.startswith(_GUARDS):
            values = reading.guard_called(path.removeprefix(_GUARDS))
            return None if values is None else partial(self._guard, values)
        views: dict[str, View] = {
            "/": self._guards,
            "/health": self._health,
            "/ready": partial(self._health, down_status=503),
        }
        return views.get(path)

    def _guards(self, request: Request) -> Response:
        guard_filter = _filter(request)
        values = reading.overview(self._critical, guard_filter)
        if not is_for_people(request):
            return as_json(200, values)
        return as_html(200, page.guards_page(self._frame(request), values, guard_filter))

    def _health(self, request: Request, down_status: int = 200) -> Response:
        values = health(self._critical).as_dict()
        return as_json(down_status if values["status"] == "down" else 200, values)

    def _guard(self, values: reading.JsonObject, request: Request) -> Response:
        if not is_for_people(request):
            return as_json(200, values)
        may_act = self._authorize is not None and "CircuitBreaker" in values["policies"]
        return as_html(200, page.guard_page(self._frame(request), values, may_act=may_act))

    def message(self, request: Request, status: int, words: str, *headers: tuple[str, str]) -> Response:
        """Return a response of words alone."""
        if is_for_people(request):
            return as_html(status, page.message_page(self._frame(request), status, words), *headers)
        return as_json(status, {"status": status, "error": words}, *headers)

    def _frame(self, request: Request) -> page.Frame:
        return page.Frame(self._title, _root(request.path))


async def _decision(hook: Hook, request: Request, run: Run) -> object:
    """Return the result of *hook*; if it fails, nothing is shown or done."""
    try:
        identity = await run(_called, hook, request)
        return await identity if inspect.isawaitable(identity) else identity
    except Exception as error:  # noqa: BLE001  # errors of the application's hook
        log(ERROR, "a hook of the status page failed: nothing was shown or done", error=error)
        raise EarlyResponse(500, "the check failed; nothing was shown or done") from None


def _called(hook: Hook, request: Request) -> object:
    try:
        return hook(request)
    except StopIteration as error:
        raise RuntimeError("the hook raised StopIteration") from error  # no future can hold it


def _perform(request: Request, identity: object) -> Response:
    if not identity:
        action.log_unauthorized(request)
        raise EarlyResponse(403, "not authorised")
    if not action.perform(request, identity):
        raise EarlyResponse(404, "no circuit has this name any more")
    if is_for_people(request):
        # Relative: a proxy may serve the page under any prefix.
        location = f"{_root(request.path)}guards/{quote(request.guard, errors='replace')}"
        return response(303, "text/plain; charset=utf-8", b"", ("location", location))
    return as_json(200, reading.guard_called(request.guard) or {})


def _action_in(path: str) -> tuple[str, str] | None:
    """Return the guard and the action that *path* names; ``None`` if it names no action."""
    name, slash, verb = path.removeprefix(_GUARDS).rpartition("/")
    return (name, verb) if path.startswith(_GUARDS) and slash and verb in action.ACTIONS else None


def _action_request(request: Request) -> Request | None:
    """Return *request* with the guard and the action that it names; ``None`` if it is no request to act."""
    named = _action_in(request.path) if request.method == "POST" else None
    if named is None:
        return None
    values = reading.guard_called(named[0])
    if values is None or "CircuitBreaker" not in values["policies"]:
        raise EarlyResponse(404, "no guard of this name has a circuit")
    return request._replace(guard=named[0], action=named[1])


def _filter(request: Request) -> reading.GuardFilter:
    sent = {name: values[-1] for name, values in parse_qs(request.query, keep_blank_values=True).items()}
    limit = sent.get("limit", str(_ROWS) if is_for_people(request) else "")
    if limit and not (limit.isascii() and limit.isdigit() and len(limit) < 10):
        raise EarlyResponse(400, "limit is a number of guards")
    return reading.GuardFilter(
        sent.get("q", "").strip(), sent.get("impaired", "") == "1", int(limit) if limit else None
    )


def _root(path: str) -> str:
    """Return the relative link from *path* to the first page: a proxy may serve the page under any prefix."""
    return "../" * (path.count("/") - 1) or "./"


def _with_slash(request: Request) -> str:
    """Return the relative link from the prefix itself to the first page below it."""
    prefix = request.native.get("root_path") or request.native.get("SCRIPT_NAME") or ""
    last = prefix.rpartition("/")[2]
    return f"./{quote(last, errors='replace')}/" + (f"?{request.query}" if request.query else "")


@cache
def _asset(path: str) -> Response:
    content = files(__name__.rpartition(".")[0]).joinpath(path.removeprefix("/")).read_bytes()
    return response(200, _ASSETS[path], content)
