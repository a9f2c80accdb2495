"""The pages for people: functions that turn values into HTML."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

from .markup import Child, Markup, TableRow, element as e, table
from .reading import GuardFilter, JsonObject, name_of

_MARKS = {"up": "\u25cf", "degraded": "\u25b2", "down": "\u2716"}
"""A shape for each status, so that nobody needs to distinguish colours."""

_STATUS_TEXTS = {
    "up": "Calls get through.",
    "degraded": "Some calls are refused, or have to wait.",
    "down": "The service cannot do its work.",
}

_ACTION_TEXTS = {
    "reset": ("Reset", "close the circuit, and clear its counts and its forced state"),
    "force-open": ("Force open", "refuse every call until a reset"),
    "force-closed": ("Force closed", "admit every call until a reset"),
}

_FIGURE_TITLES = {
    "calls": "Calls",
    "retries": "Retries",
    "timed_out": "Timed out",
    "refused": "Refused",
    "fallbacks": "Fallbacks",
}


class Frame(NamedTuple):
    """The frame of every page: its title, and the relative link to the first page."""

    title: str
    root: str


def guards_page(frame: Frame, values: JsonObject, guard_filter: GuardFilter) -> str:
    """Return the page of the status of the process, and of the guards that *guard_filter* accepts."""
    content = _status(values), _filter(values, guard_filter), _guards(frame, values)
    return _page(frame, "", content, values["process"])


def message_page(frame: Frame, status: int, words: str) -> str:
    """Return the page of an error or a rejected request."""
    title = f"{status}: {words}"
    words_alone = e("section", e("h1", title), class_="card")
    return _page(frame, title, (_back(frame), words_alone), is_live=False)


def guard_page(frame: Frame, values: JsonObject, *, may_act: bool) -> str:
    """Return the page of one guard, with forms for the actions on its circuit if the page *may act*."""
    module, name = _split(values["name"])
    title = e("h1", e("small", module) if module else None, name, class_="name")
    alike = f"{values['alike']} guards have this name; this is the newest." if values["alike"] > 1 else None
    content = (
        _back(frame),
        e("header", title, _chips(values), e("p", alike) if alike else None),
        e("div", _now(values), _circuit(values), _actions(frame, values) if may_act else None, class_="cards"),
        _configuration(values),
        _counts(values),
    )
    return _page(frame, values["name"], content, values["process"])


# The frame


def _page(frame: Frame, title: str, content: Child, process: JsonObject | None = None, *, is_live: bool = True) -> str:
    root = frame.root
    head = e(
        "head",
        e("meta", charset="utf-8"),
        e("meta", name="viewport", content="width=device-width, initial-scale=1"),
        e("meta", name="color-scheme", content="light dark"),
        e("title", f"{title} \u2013 {frame.title}" if title else frame.title),
        e("link", rel="icon", href=f"{root}icon.svg", type="image/svg+xml"),
        e("link", rel="stylesheet", href=f"{root}page.css"),
        e("script", src=f"{root}page.js", defer=True),
        e("noscript", e("meta", http_equiv="refresh", content="10")) if is_live else None,
    )
    top = e(
        "div",
        e("a", e("span", "\u2301", class_="logo", aria_hidden="true"), frame.title, href=root, class_="brand"),
        e("button", "Pause", type="button", id="pause", hidden=True),
        e("p", id="news", role="status"),
        class_="top",
    )
    which = name_of(process) if process else None
    body = e("body", top, e("main", content, data_live=is_live, data_process=which), _foot(process))
    return f"<!doctype html>\n{e('html', head, body, lang='en')}\n"


def _foot(process: JsonObject | None) -> Markup:
    if process is None:
        return e("footer")
    started, now = (_moment(process[name]) for name in ("started", "now"))
    which = e(
        "p",
        f"One process: {process['pid']} on {process['host']}, since {started}. Where a service runs several, each "
        "shows itself here, and its metrics show all of them.",
    )
    return e("footer", which, e("p", f"As of {now}"))


def _back(frame: Frame) -> Markup:
    return e("nav", e("a", "\u2190 All guards", href=frame.root), aria_label="Back")


# The status


def _status(values: JsonObject) -> Markup:
    status = values["status"]
    reasons = [e("li", _mark("down" if " is open" in reason else "degraded"), reason) for reason in values["reasons"]]
    facts = _facts(
        ("Guards", _number(values["total"])),
        ("In trouble", _number(values["impaired"])),
        ("Critical", ", ".join(values["critical"]) or "none"),
        ("Configuration", e("code", values["fingerprint"])),
        ("Last reload", _moment(values.get("reload", "none"))),
    )
    title = e("h1", _mark(status), e("span", status), class_=f"status {status}")
    lead = e("p", _STATUS_TEXTS[status], class_="lead")
    listed = e("ul", reasons, class_="reasons") if reasons else None
    return e("section", title, lead, listed, facts, class_="card", aria_label="Status")


def _mark(kind: str) -> Markup:
    return e("span", _MARKS[kind], class_=f"mark {kind}", aria_hidden="true")


def _facts(*facts: tuple[str, Child]) -> Markup:
    """Return a list of terms, each with its value; a term without a value is left out."""
    pairs = (e("div", e("dt", term), e("dd", value)) for term, value in facts if value is not None)
    return e("dl", pairs, class_="facts")


def _card(title: str, *content: Child, kind: str = "") -> Markup:
    return e("section", e("h2", title), content, class_=f"card {kind}".rstrip())


# The table of guards


def _filter(values: JsonObject, guard_filter: GuardFilter) -> Markup:
    shown = len(values["guards"])
    found = f"{_number(shown)} of {_number(values['matching'])}" if shown < values["matching"] else _number(shown)
    whether = e("input", type="checkbox", name="impaired", value="1", checked=guard_filter.impaired)
    return e(
        "form",
        e("label", "Filter", for_="q"),
        e("input", type="search", id="q", name="q", value=guard_filter.query, placeholder="name or policy"),
        e("label", whether, "in trouble only", class_="check"),
        e("button", "Show", type="submit"),
        e("p", f"{found} shown", class_="found"),
        e("button", "Show all", type="submit", name="limit", value="") if shown < values["matching"] else None,
        id="filter",
        role="search",
        autocomplete="off",
    )


def _guards(frame: Frame, values: JsonObject) -> Markup:
    if not values["guards"]:
        words = "No guard matches." if values["total"] else "Nothing is guarded in this process yet."
        return e("p", words, class_="card lead")
    columns = ("Guard", "Now", "Outcomes", *_FIGURE_TITLES.values())
    rows = (_guard_row(frame, guard) for guard in values["guards"])
    return e("div", table("Guards", columns, rows, _FIGURE_TITLES.values()), class_="card guards")


def _guard_row(frame: Frame, guard: JsonObject) -> TableRow:
    module, name = _split(guard["name"])
    link = e("a", name, href=_link_to(frame, guard))
    figures = guard["figures"]
    numbers = (_number(figures.get(key)) for key in _FIGURE_TITLES)
    title = (e("small", module) if module else None, link, _chips(guard))
    return TableRow(title, (_conditions(guard), _outcomes(guard), *numbers), is_marked=bool(guard["impaired"]))


def _chips(guard: JsonObject) -> Markup:
    """Return the list of the policies, outermost first."""
    observed = guard["observed"]
    kept = (e("li", f"{one} (observed)" if one in observed else one) for one in guard["policies"])
    off = (e("li", e("s", one), " (off)") for one in guard["disabled"])
    return e("ul", kept, off, class_="chips", aria_label="Policies")


def _conditions(guard: JsonObject) -> Markup:
    lines = [
        e("li", _mark(_severity(guard, kind)), e("span", e("span", kind, class_="kind"), f" {words}"))
        for kind, words in sorted(guard["conditions"].items(), key=lambda one: one[0] not in guard["impaired"])
    ]
    words = "no state" if guard["figures"] else "not called yet"
    return e("ul", lines, class_="conditions") if lines else e("span", words, class_="quiet")


def _severity(guard: JsonObject, kind: str) -> str:
    if kind not in guard["impaired"]:
        return "up"
    return "down" if kind == "CircuitBreaker" and guard["conditions"][kind].startswith("open") else "degraded"


def _outcomes(guard: JsonObject) -> Markup:
    """Return the shares of calls that failed or got a fallback, in the last minute or, if that had no calls, in all."""
    figures, recent = guard["figures"], guard["recent"]
    when = " since the start"
    if recent and recent.get("calls"):
        figures, when = recent, f" in {max(1, round(recent['seconds']))} s"
    calls, failed = figures.get("calls", 0), figures.get("failed", 0)
    if not calls:
        return e("span", "\u2013", class_="quiet")
    parts = (failed, "failed", "bad"), (min(figures.get("fallbacks", 0), calls - failed), "by fallback", "warn")
    words = [f"{_share(part, calls)} {name}" for part, name, _ in parts if part]
    bars, end = [e("rect", width="100", height="6", class_="good")], 100.0
    for part, _, kind in parts:
        width = max(3.0, 100 * part / calls) if part else 0.0  # a small share stays visible
        end -= width
        if part:
            bars.append(e("rect", x=f"{end:.1f}", width=f"{width:.1f}", height="6", class_=kind))
    bar = e("svg", bars, viewBox="0 0 100 6", preserveAspectRatio="none", aria_hidden="true", class_="bar")
    return e("div", bar, e("span", (", ".join(words) or "all succeeded") + when), class_="outcomes")


# One guard


def _now(values: JsonObject) -> Markup:
    figures = values["figures"]
    facts = [(name, _number(figures[key])) for key, name in _FIGURE_TITLES.items() if key in figures]
    counted = _facts(("Counted since", _moment(values["process"]["started"])), *facts) if facts else None
    return _card("Now", _conditions(values), _outcomes(values) if figures else None, counted)


def _circuit(values: JsonObject) -> Markup | None:
    circuit = values["circuit"]
    if circuit is None:
        return None
    states = [one for one in values["counts"] if one["name"] == "ft.circuitbreaker.state.total"]
    times = {one["tags"]["state"]: one["value"] for one in states}
    whole = sum(times.values())
    state, failures = circuit["state"], f"{circuit['failures']} of {circuit['results']}"
    facts = _facts(
        ("State", f"{state}, forced until a reset" if circuit["forced"] else state),
        ("Failures in the window", failures if state == "closed" else None),
        ("Times opened", _number(circuit["opened"])),
        ("Last failure", circuit["last_failure"] or "none"),
        ("Time open", _share(times.get("open", 0), whole) if whole else None),
    )
    return _card("Circuit", facts)


def _actions(frame: Frame, values: JsonObject) -> Markup:
    way = _link_to(frame, values)
    forms = [
        e(
            "form",
            e("input", type="hidden", name="process", value=name_of(values["process"])),
            e("button", title, type="submit", id=act, aria_describedby=f"{act}-does"),
            e("span", effect, id=f"{act}-does"),
            method="post",
            action=f"{way}/{act}",
        )
        for act, (title, effect) in _ACTION_TEXTS.items()
    ]
    note = f"Of process {values['process']['pid']} alone; the log names the author of each action."
    return _card("Act on the circuit", forms, e("p", note, class_="quiet"), kind="acts")


def _configuration(values: JsonObject) -> Markup:
    fingerprint = e("p", "Fingerprint ", e("code", values["fingerprint"]), class_="quiet")
    return _card("Configuration in force", fingerprint, map(_policy, values["configuration"]))


def _policy(policy: JsonObject) -> Markup:
    parameters = policy["parameters"]
    chosen = {name: one for name, one in parameters.items() if one["source"] != "default"}
    others = {name: one for name, one in parameters.items() if name not in chosen}
    place = policy["declared_on"]
    where = "not declared: by configuration" if place == "nothing" else f"declared on {place}"
    state = "switched off" if not policy["enabled"] else "only observed" if policy.get("mode") == "observe" else ""
    words = ", ".join(filter(None, (where, state)))
    annotation = policy["annotation"]
    rest = e("summary", f"{len(others)} at the default"), _parameters(annotation, others)
    return e(
        "div",
        e("h3", annotation, e("small", words)),
        _parameters(annotation, chosen) if chosen else None,
        e("details", rest) if others else None,
        class_="policy",
    )


def _parameters(annotation: str, parameters: dict[str, JsonObject]) -> Markup:
    rows = []
    for name, one in parameters.items():
        value, default = (e("code", _value(one[key])) for key in ("value", "default"))
        variable = e("code", one["variable"]) if one["variable"] else "\u2013"
        rows.append(TableRow(name, (value, one["source"], default, variable)))
    columns = ("Parameter", "Value", "Source", "Default", "Environment variable")
    return table(f"Parameters of {annotation}", columns, rows)


def _counts(values: JsonObject) -> Markup:
    rows = [
        TableRow(one["name"], (", ".join(map("=".join, one["tags"].items())), _number(one["value"])))
        for one in values["counts"]
    ]
    nothing = e("p", "Nothing was counted: it was not called yet, or metrics are switched off.", class_="quiet")
    return _card("Counts", table("Series", ("Series", "Tags", "Count"), rows, ("Count",)) if rows else nothing)


# Words


def _link_to(frame: Frame, guard: JsonObject) -> str:
    """Return the link to a guard. Slashes stay, so the browser and the application count the same steps back."""
    return f"{frame.root}guards/{quote(guard['name'], safe='/', errors='replace')}"


def _moment(iso: str) -> str:
    return iso.replace("T", " ").replace("+00:00", " UTC")


def _split(name: str) -> tuple[str, str]:
    """Separate the module and the class from the last part of a name, which distinguishes guards."""
    outer, dot, last = name.rpartition(".")
    return (f"{outer}.", last) if dot and last else ("", name)


def _number(value: float | None) -> str:
    if value is None:
        return "\u2013"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


def _share(part: float, whole: float) -> str:
    share = 100 * part / whole
    return f"{share:.1f} %" if 0 < share < 10 else f"{share:.0f} %"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)
