"""The table of paths and their responses, independent of any server."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterable
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qs, quote

from .._log import ERROR, log
from .._shown import one_or_several, shown
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import action, page, reading
from .exchange import Form, Request, Response, as_html, as_json, form_for, redirect, response
from .hosts import is_known

Hook: TypeAlias = Callable[[Request], Any]
"""A function of the application that decides: true or an identity for yes, false for no. It may be ``async def``."""


class Question(NamedTuple):
    """A hook, and the request that it decides on."""

    hook: Hook
    request: Request

    def asked(self) -> Verdict:
        """Return the result of the hook, or its exception as a value: a future cannot hold a ``StopIteration``."""
        try:
            return self.hook(self.request), None
        except Exception as error:  # noqa: BLE001  # errors of the application's hook
            return None, error


Verdict: TypeAlias = tuple[object, Exception | None]
Steps: TypeAlias = Generator[Question, Verdict, Response]

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
_INDEX = "/index"
"""The path of the first page before ``.json``, where an empty name would not do."""

_GUARDS = "/guards/"


class Refusal(Exception):
    """The early end of an answer: a status, words and further headers."""

    def __init__(self, status: int, words: str, *headers: tuple[str, str]) -> None:
        super().__init__(status, words)
        self.status = status
        self.words = words
        self.headers = headers


class Status:
    """The part that the ASGI and WSGI applications share.

    ``answer`` is a generator, because an application may have to await the hook of a question.
    """

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
        faults = [
            Fault(f"{where}({argument})", f"is {shown(one)}", one, allowed)
            for argument, patterns, allowed in (
                ("critical", self._critical, "names of guards, or patterns such as 'acme.payments.*'"),
                ("hosts", self._hosts, "names of hosts, or patterns such as '*.shop.example'"),
            )
            for one in patterns
            if not isinstance(one, str) or not one
        ]
        if not isinstance(title, str) or not title.strip():
            faults.append(Fault(f"{where}(title)", f"is {shown(title)}", title, "text for the head of the page"))
        hooks: dict[str, tuple[object, str]] = {
            "admit": (admit, "whoever reaches it"),
            "authorize": (authorize, "nobody"),
        }
        for argument, (hook, others) in hooks.items():
            if hook is not None and not callable(hook):
                allowed = f"a callable that takes the request, or None: {others} may"
                faults.append(Fault(f"{where}({argument})", f"is {shown(hook)}", hook, allowed))
        if faults:
            raise FaultToleranceDefinitionException(*faults)
        self._admit = admit
        self._authorize = authorize
        self._title = title
        self._secret = secrets.token_bytes(32)

    def answer(self, request: Request) -> Steps:
        """Yield each question, receive its verdict, and return the response to *request*."""
        try:
            if not is_known(request, self._hosts):
                raise Refusal(421, "this is not served under the name in Host; hosts=... sets the names")
            if self._admit is not None:
                who, error = yield Question(self._admit, request)
                if error is not None:
                    log(ERROR, "admit failed: nothing was shown", error=error)
                    raise Refusal(500, "the check of admit failed")
                if not who:
                    raise Refusal(403, "not admitted")
            if self._authorize is not None and (wanted := _wanted(request)) is not None:
                answer = yield from self._acted(self._authorize, wanted)
            else:
                answer = self._shown_at(request)
        except Refusal as refusal:
            answer = self.said(request, refusal.status, refusal.words).also(*refusal.headers)
        return answer.without_body() if request.method == "HEAD" else answer

    def _acted(self, authorize: Hook, request: Request) -> Steps:
        if wrong := action.refusal(request, self._secret):
            raise Refusal(*wrong)
        who, error = yield Question(authorize, request)
        if error is not None:
            action.failed(request, error)
            raise Refusal(500, "the check of authorize failed; nothing was done")
        if not who:
            action.refused(request)
            raise Refusal(403, "not authorised")
        if not action.performed(request, who):
            raise Refusal(404, "no circuit has this name any more")
        if form_for(request) == "html":
            return redirect(303, f"{_root(request.path)}guards/{quote(request.guard, errors='replace')}")
        return as_json(200, reading.guard_called(request.guard) or {})

    def _shown_at(self, request: Request) -> Response:
        path = request.path
        if path in _ASSETS:
            _check_method(request)
            return _asset(request)
        is_explicit = path.endswith(".json")
        views = {
            "/": self._overview, "/guards": self._listing, "/health": self._health, "/ready": self._ready,
        }  # fmt: skip
        stem = path.removesuffix(".json") if is_explicit else path
        view = views.get("/" if is_explicit and stem == _INDEX else stem)
        told = None
        if view is None and path.startswith(_GUARDS):
            name = path.removeprefix(_GUARDS)
            told = reading.guard_called(name)
            if told is not None:
                is_explicit = False  # the name of a guard may end in .json
            elif is_explicit:
                told = reading.guard_called(name.removesuffix(".json"))
        if view is None and told is None:
            self._check_act(request)
            if not path:
                raise Refusal(307, "the page has a slash at its end", ("location", _with_slash(request)))
            raise Refusal(404, "nothing is here")
        _check_method(request)
        form = "json" if is_explicit else form_for(request)
        if form is None:
            raise Refusal(406, "only text/html and application/json are available")
        if told is not None:
            return self._guard(request, form, told)
        assert view is not None
        return view(request, form)

    def _check_act(self, request: Request) -> None:
        if self._authorize is not None and _acted_on(request.path) is not None:
            raise Refusal(405, "actions need POST", ("allow", "POST"))

    def _overview(self, request: Request, form: Form) -> Response:
        wanted = _filter(request.query, form)
        return self._shown(request, form, reading.overview(self._critical, wanted), wanted)

    def _listing(self, request: Request, form: Form) -> Response:
        wanted = _filter(request.query, form)
        return self._shown(request, form, reading.listing(wanted), wanted)

    def _shown(self, request: Request, form: Form, told: reading.Told, wanted: reading.Wanted) -> Response:
        if form == "json":
            return as_json(200, told)
        return as_html(200, page.of_guards(self._frame(request), told, wanted))

    def _health(self, request: Request, form: Form, status: int = 200) -> Response:
        told = reading.readiness(self._critical)
        if form == "json":
            return as_json(status, told)
        return as_html(status, page.of_health(self._frame(request), told))

    def _ready(self, request: Request, form: Form) -> Response:
        is_down = reading.readiness(self._critical)["status"] == "down"
        return self._health(request, form, 503 if is_down else 200)

    def _guard(self, request: Request, form: Form, told: reading.Told) -> Response:
        if form == "json":
            return as_json(200, told)
        frame = self._frame(request)
        if self._authorize is None or "CircuitBreaker" not in told["policies"]:
            return as_html(200, page.of_guard(frame, told, None))
        nonce = action.nonce_of(request) or secrets.token_hex(16)
        key = page.Key(tuple(action.ACTIONS), action.this_process(), action.token(self._secret, nonce))
        # Without a path the cookie belongs to the pages beside this page, under any prefix of a proxy.
        secure = "; Secure" if request.scheme == "https" else ""
        cookie = f"{action.COOKIE}={nonce}; HttpOnly; SameSite=Strict{secure}"
        return as_html(200, page.of_guard(frame, told, key)).also(("set-cookie", cookie))

    def said(self, request: Request, status: int, words: str) -> Response:
        """Return a response of words alone."""
        if form_for(request) == "html":
            return as_html(status, page.of_words(self._frame(request), status, words))
        return as_json(status, {"status": status, "error": words})

    def _frame(self, request: Request) -> page.Frame:
        return page.Frame(self._title, _root(request.path))


def advanced(steps: Steps, verdict: Verdict | None = None) -> Response | Question:
    """Return the next question of *steps*, or the response that ends them."""
    try:
        return next(steps) if verdict is None else steps.send(verdict)
    except StopIteration as end:
        response: Response = end.value
        return response


def _check_method(request: Request) -> None:
    if request.method not in ("GET", "HEAD"):
        raise Refusal(405, f"{request.method} changes nothing here", ("allow", "GET, HEAD"))


def _acted_on(path: str) -> tuple[str, str] | None:
    """Return the guard and the action that *path* names; ``None`` if it names no action."""
    name, slash, verb = path.removeprefix(_GUARDS).rpartition("/")
    return (name, verb) if path.startswith(_GUARDS) and slash and verb in action.ACTIONS else None


def _wanted(request: Request) -> Request | None:
    """Return *request* with the guard and the action that it names; ``None`` if it is no request to act."""
    named = _acted_on(request.path) if request.method == "POST" else None
    if named is None:
        return None
    told = reading.guard_called(named[0])
    if told is None or "CircuitBreaker" not in told["policies"]:
        raise Refusal(404, "no guard of this name has a circuit")
    return request._replace(guard=named[0], action=named[1])


def _filter(query: str, form: Form) -> reading.Wanted:
    sent = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    limit = sent.get("limit", "" if form == "json" else str(_ROWS))
    if limit and not (limit.isascii() and limit.isdigit() and len(limit) < 10):
        raise Refusal(400, "limit is a number of guards")
    return reading.Wanted(sent.get("q", "").strip(), sent.get("impaired", "") == "1", int(limit) if limit else None)


def _root(path: str) -> str:
    """Return the relative link from *path* to the first page: a proxy may serve the page under any prefix."""
    return "../" * (path.count("/") - 1) or "./"


def _with_slash(request: Request) -> str:
    """Return the relative link from the prefix itself to the first page below it."""
    prefix = request.native.get("root_path") or request.native.get("SCRIPT_NAME") or ""
    last = prefix.rpartition("/")[2]
    return f"./{quote(last, errors='replace')}/" + (f"?{request.query}" if request.query else "")


@cache
def _read(path: str) -> tuple[bytes, str]:
    from hashlib import sha256

    content = files(__name__.rpartition(".")[0]).joinpath(path.removeprefix("/")).read_bytes()
    return content, f'"{sha256(content).hexdigest()[:16]}"'


def _asset(request: Request) -> Response:
    content, tag = _read(request.path)
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    # ``no-cache`` lets a browser keep its copy but revalidate it, so it sees an upgrade at once.
    answer = response(200, _ASSETS[request.path], content, ("etag", tag), ("cache-control", "no-cache"))
    return answer.unchanged() if tag in known or "*" in known else answer
