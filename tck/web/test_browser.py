"""The status page in Chromium: one browser for all of these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from itertools import cycle
from typing import Any

import pytest

from faulttolerance import Guard, circuit_breakers
from faulttolerance.policies import Bulkhead, CircuitBreaker, Retry
from faulttolerance.web import Request, reading, wsgi_app
from kit.browser import Browser, browser
from kit.waiting import wait_until
from kit.web import served_by_wsgiref

pytestmark = pytest.mark.outside

HOSTILE = "till.\"><script>document.title='gone'</script><img src=x onerror=\"document.title='gone'\">"

HASTE = 20
"""How many times as often as for people the page looks whether anything has changed."""

SEES = """
const rgb = (text) => { // of any notation that the browser knows
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  canvas.fillStyle = text;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const light = ([red, green, blue]) => {
  const part = (one) => (one / 255 <= 0.04045 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
};
const ground = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const found = rgb(getComputedStyle(one).backgroundColor);
    if (found[3] === 255) return found;
  }
  return rgb(getComputedStyle(document.documentElement).colorScheme.includes("dark") ? "#000" : "#fff");
};
const poor = [];
for (const element of document.querySelectorAll("body *")) {
  const words = [...element.childNodes].filter((node) => node.nodeType === 3 && node.data.trim());
  if (!words.length || !element.checkVisibility() || element.closest("svg, .logo")) continue;
  const [front, back] = [light(rgb(getComputedStyle(element).color)), light(ground(element))];
  const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
  if (contrast < 4.5) poor.push(`${element.tagName}.${element.className}: ${words[0].data} ${contrast.toFixed(2)}`);
}
return poor;
"""
"""The elements with words that are harder to read than AA allows."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as one:
        one.run_first(f"const later = setTimeout; window.setTimeout = (call, pause) => later(call, pause / {HASTE})")
        yield one


WORKER: ContextVar[dict[str, Any]] = ContextVar("worker")


class Workers:
    """An application whose requests several processes answer in turn, as far as the page can tell."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.says = "alice"
        self._app = wsgi_app(critical="till.payments", authorize=self._authorize, title="Shop")
        self.this = reading.process()
        self.use(self.this)

    def use(self, *processes: dict[str, Any]) -> None:
        self._turns = cycle(processes)

    def _authorize(self, request: Request) -> str:
        self.asked.append(request)
        return self.says

    def __call__(self, environ: Any, start_response: Any) -> Any:
        WORKER.set(next(self._turns))
        return self._app(environ, start_response)


@pytest.fixture(scope="module")
def everyone() -> Workers:
    return Workers()


@pytest.fixture(scope="module")
def address(everyone: Workers) -> Iterator[str]:
    with served_by_wsgiref(everyone) as address:
        yield address


@pytest.fixture
def workers(everyone: Workers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    monkeypatch.setattr(reading, "process", WORKER.get)
    everyone.asked.clear()
    everyone.use(everyone.this)
    yield everyone
    everyone.says = "alice"
    everyone.use(everyone.this)


@pytest.fixture
def page(chromium: Browser, address: str, workers: Workers) -> Iterator[Browser]:
    """Yield the first page of a shop whose payments are down; at its end the console is empty."""
    breaker = CircuitBreaker(request_volume_threshold=4, delay="1h")
    retry = Retry(max_retries=1, delay=0, jitter=0, retry_on=ConnectionError)
    made = [
        Guard(name="till.payments", circuit_breaker=breaker, retry=retry),
        Guard(name="till.pictures", bulkhead=Bulkhead(3)),
        Guard(name=HOSTILE, retry=retry),
    ]
    fail(made[0], 5)
    chromium.show(1280, 900)
    chromium.prefer("light")
    chromium.open(f"{address}/?q=till.")
    yield chromium
    chromium.open("about:blank")  # or it would ask for guards that are gone
    for guard in made:
        guard.close()
    assert chromium.complaints() == []


def fail(guard: Guard, times: int) -> None:
    def refused() -> None:
        raise ConnectionError

    for _ in range(times):
        with suppress(Exception):
            guard.call(refused)


def names(page: Browser) -> list[str]:
    """Return the names of the guards in the table."""
    found: list[str] = page.run("return [...document.querySelectorAll('tbody th a')].map((one) => one.textContent)")
    return found


def soon(condition: Callable[[], Any]) -> None:
    """Wait until *condition* holds of the page, whose elements may vanish while it changes."""

    def holds() -> bool:
        with suppress(Exception):
            return bool(condition())
        return False

    wait_until(holds)


def test_the_page_shows_guards_in_trouble_first(page: Browser) -> None:
    """The status, the reason, and the guards with their states."""
    assert page.driver.title == "Shop"
    assert page.text("h1").lower().endswith("down")
    assert page.text(".reasons").startswith("\u2716")
    assert "till.payments: CircuitBreaker is open for " in page.text(".reasons")
    assert names(page)[0] == "payments"
    assert "100 % failed" in page.text("tbody tr:first-child")


@pytest.mark.parametrize("width", [1280, 360])
def test_the_bar_beside_a_guard_that_is_down_is_red(page: Browser, width: int) -> None:
    """Its mark is red, too; guards that are only in trouble have an amber one."""
    page.show(width, 800)
    mark, bar = page.run("""
        const row = document.querySelector("tbody tr.impaired");
        const [cell, card] = [getComputedStyle(row.querySelector("th")), getComputedStyle(row)];
        const shadow = /rgb\\([^)]*\\)/.exec(cell.boxShadow);
        return [getComputedStyle(row.querySelector(".mark")).color, shadow ? shadow[0] : card.borderLeftColor];
    """)

    assert bar == mark


def test_a_hostile_name_is_shown_and_not_run(page: Browser) -> None:
    """It is text in the table, in its title and on its own page."""
    assert len(names(page)) == 3
    page.run("document.querySelectorAll('tbody th a')[1].click()")
    soon(lambda: page.run("return location.pathname.startsWith('/guards/')"))

    assert HOSTILE.rpartition(".")[2] in page.text("h1")
    assert page.run("return document.querySelectorAll('main script, main img').length") == 0
    assert page.driver.title == f"{HOSTILE} \u2013 Shop"


def test_nothing_inline_runs(page: Browser) -> None:
    """The policy of the page allows only scripts and styles of its own files."""
    page.run(
        "const script = document.createElement('script'); script.textContent = \"document.title = 'gone'\";"
        "document.body.append(script); document.body.setAttribute('style', 'color: rgb(1, 2, 3)');"
    )

    assert page.driver.title == "Shop"
    assert page.run("return getComputedStyle(document.body).color") != "rgb(1, 2, 3)"
    assert sum("Content Security Policy" in one for one in page.complaints()) == 2


def test_dark_and_light_are_both_easy_to_read(page: Browser, address: str) -> None:
    """The two differ, and all text has at least the contrast of AA, on any page."""
    grounds = set()
    for path in ("", "guards/till.payments", "nothing"):
        page.open(f"{address}/{path}")
        for scheme in ("light", "dark"):
            page.prefer(scheme)  # type: ignore[arg-type]
            grounds.add(page.run("return getComputedStyle(document.body).backgroundColor"))
            assert page.run(SEES) == [], (path, scheme)
    page.complaints()  # the page that is not there

    assert len(grounds) == 2


_PARAMETERS_IN_SEVERAL_LINES = """
const range = new Range();
const lines = (one) => { range.selectNodeContents(one); return range.getClientRects().length; };
return [...document.querySelectorAll(".policy tbody th")].filter((one) => lines(one) > 1).map((one) => one.textContent);
"""


@pytest.mark.parametrize("width", [360, 768, 1280, 1920])
def test_no_page_has_to_be_scrolled_sideways(width: int, page: Browser, address: str) -> None:
    """On a telephone a row is a card; each value has its column's name beside it."""
    for path in ("", "guards/till.payments"):
        page.show(width, 800)
        page.open(f"{address}/{path}")

        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), path
        assert page.run(_PARAMETERS_IN_SEVERAL_LINES) == [], path
    page.open(f"{address}/")
    label = page.run("return getComputedStyle(document.querySelector('tbody td'), '::before').content")
    assert (label == '"Now"') == (width <= 768)


def test_pages_are_built_for_screen_readers(page: Browser, address: str) -> None:
    """They have one heading of the first order, all levels, tables with captions and scopes, and names of inputs."""
    for path in ("", "guards/till.payments", "nothing"):
        page.open(f"{address}/{path}")
        levels = page.run("return [...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in zip([0, *levels], levels, strict=False)), levels
        assert page.run("return document.querySelectorAll('table:not(:has(caption)), th:not([scope])').length") == 0
        inputs = "[...document.querySelectorAll('input:not([type=hidden])')]"
        assert page.run(f"return {inputs}.every((one) => one.labels.length > 0)")
        assert page.run("return document.documentElement.lang") == "en"
    assert len(page.complaints()) == 1  # that the last one is not there, once


def test_the_filter_narrows_during_typing(page: Browser) -> None:
    """The page is not loaded anew; the text stays, and the address can be passed on."""
    page.run("window.stays = true; document.getElementById('q').value = ''")

    page.find("#q").send_keys("till.pic")
    soon(lambda: names(page) == ["pictures"])

    assert page.run("return document.activeElement.id") == "q"
    assert page.run("return document.activeElement.value") == "till.pic"
    assert page.run("return location.search") == "?q=till.pic"
    page.run("document.getElementById('q').value = 'till.'")
    page.find("[name=impaired]").click()
    soon(lambda: names(page) == ["payments"])
    assert page.run("return window.stays")


def test_the_page_updates_itself_without_a_reload(page: Browser, address: str) -> None:
    """An element without a change stays the same: nothing flickers, open details stay open."""
    page.open(f"{address}/guards/till.payments")
    page.run("document.querySelector('details').open = true; window.before = document.querySelector('.policy')")

    circuit_breakers.reset("till.payments")
    soon(lambda: "closed" in page.text(".conditions"))

    assert page.run("return window.before === document.querySelector('.policy')")
    assert page.run("return document.querySelector('details').open")


def test_it_stays_with_the_process_that_it_shows(page: Browser, workers: Workers) -> None:
    """It is one of several behind an address, as gunicorn's workers; if it is gone, the page shows another one."""
    this = workers.this
    other = this | {"pid": 4711}
    workers.use(other, other, other, this)
    page.run(
        "window.seen = new Set(); setInterval(() => window.seen.add(document.querySelector('main').dataset.process))"
    )

    circuit_breakers.reset("till.payments")
    soon(lambda: page.text("h1").lower().endswith("up"))

    assert page.run("return window.seen.size") == 1
    workers.use(other)
    soon(lambda: "One process: 4711 on " in page.text("footer"))


def test_an_action_reaches_the_process_that_is_shown(page: Browser, workers: Workers, address: str) -> None:
    """Other processes refuse a form that they have not shown, and are asked no further."""
    page.open(f"{address}/guards/till.payments")
    this = workers.this
    other = this | {"pid": 4711}
    workers.use(other, other, other, this)

    page.find("#reset").click()
    soon(lambda: "closed" in page.text(".conditions"))

    assert [request.action for request in workers.asked] == ["reset"]
    assert all("409" in one for one in page.complaints())


def test_an_action_that_is_refused_says_so(page: Browser, workers: Workers, address: str) -> None:
    """The message stays while the page updates itself."""
    workers.says = ""
    page.open(f"{address}/guards/till.payments")

    page.find("#reset").click()
    soon(lambda: page.text("#news") == "Not done. 403: not authorised")
    circuit_breakers.reset("till.payments")
    soon(lambda: "closed" in page.text(".conditions"))

    assert page.text("#news") == "Not done. 403: not authorised"
    assert len(page.complaints()) == 1


def test_the_page_can_be_paused(page: Browser) -> None:
    """A user may read slowly, or take a picture."""
    page.find("#pause").click()
    page.run("window.paused = performance.now()")
    circuit_breakers.reset("till.payments")
    page.run("window.early = true; setTimeout(() => { window.early = false }, 4000)")
    soon(lambda: not page.run("return window.early"))

    since = "performance.getEntriesByType('resource').filter((one) => one.startTime > window.paused)"
    assert page.run(f"return {since}.length") == 0
    assert page.text("#pause") == "Go on"
    page.find("#pause").click()
    soon(lambda: page.text("h1").lower().endswith("up"))


def test_a_click_acts_on_the_circuit(page: Browser, address: str) -> None:
    """It leads back to the guard, whose page shows the new state."""
    page.open(f"{address}/guards/till.payments")

    page.find("#reset").click()
    soon(lambda: "closed" in page.text(".conditions"))
    assert circuit_breakers.state("till.payments") == "closed"

    page.find("#force-open").click()
    soon(lambda: " s, forced" in page.text(".conditions"))
    assert circuit_breakers.state("till.payments") == "open"
    assert page.run("return location.pathname") == "/guards/till.payments"


def test_a_process_that_is_gone_is_reported(page: Browser) -> None:
    """The page may be old then; it continues with the next answer."""
    page.run("window.fetched = window.fetch; window.fetch = () => Promise.reject(new TypeError('gone'))")
    soon(lambda: "does not answer" in page.text("#news"))
    assert len(names(page)) == 3

    page.run("window.fetch = window.fetched")
    soon(lambda: page.text("#news") == "")


def test_an_error_leaves_the_page_as_it_was(page: Browser) -> None:
    """The page shows the reason why it may be old, and continues with the next answer."""
    page.run("window.fetched = window.fetch; window.fetch = (_, options) => window.fetched('/nowhere', options)")
    soon(lambda: page.text("#news") == "The answer is 404: nothing is here; the page may be old.")
    assert len(names(page)) == 3

    page.run("window.fetch = window.fetched")
    soon(lambda: page.text("#news") == "")
    assert all("404" in one for one in page.complaints())


def test_it_works_without_scripts(page: Browser, address: str) -> None:
    """The filter is a form, and so is each action."""
    page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.open(f"{address}/?q=pictures")
        assert len(page.driver.find_elements("css selector", "tbody tr")) == 1
        page.find("#q").clear()
        page.find("#q").send_keys("till.pay")
        page.find("#filter button").click()
        soon(lambda: "payments" in page.text("tbody"))
        page.open(f"{address}/guards/till.payments")
        page.find("#reset").click()
        soon(lambda: "closed" in page.text(".conditions"))
    finally:
        page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
