"""Old and new code of a migration, side by side, behave as the pages on migration say."""

from __future__ import annotations

import ast
import inspect
import itertools
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

import faulttolerance
from faulttolerance import Guard, circuit_breakers
from faulttolerance.testing import VirtualClock, reset, virtual_time
from kit.migration import Case, Rejected, Row, Service, Told, cases, matches, outcome
from kit.peers import PEERS, on_clock

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "how-to" / "migrate").glob("from-*.md"))
CASES = [case for page in PAGES for case in cases(page)]
DRAWS = 30
SIDES = ("old", "new")
_numbers = itertools.count()

Runs = list[list[Told]]
"""The results of each row, for each draw of chance."""


def named(case: Case) -> str:
    return f"{case.page.stem}:{case.line}"


def as_written(code: str, way: str) -> str:
    """Return the code, or the same code with coroutine functions."""
    if way == "def" or "async def fetch(" in code:
        return code
    return code.replace("def fetch(", "async def fetch(").replace(" service(order)", " await service(order)")


class Play:
    """One side of a pair, in a module of its own."""

    def __init__(self, case: Case, side: str, way: str, clock: VirtualClock) -> None:
        self.clock = clock
        self.way = way
        self.service = Service(clock)
        self.module = ModuleType(f"migration_{next(_numbers)}")  # no two circuits of one name
        sys.modules[self.module.__name__] = self.module
        vars(self.module).update(service=self.service.later if way == "async def" else self.service, Rejected=Rejected)
        code = as_written(getattr(case, side), way)
        exec(compile(code, f"{case.page}, after line {case.line}", "exec", dont_inherit=True), vars(self.module))

    def close(self) -> None:
        for value in vars(self.module).values():
            if isinstance(value, Guard):
                value.close()
        del sys.modules[self.module.__name__]
        vars(self.module).clear()  # others look at all that this process guards

    def play(self, row: Row) -> Told:
        """Call once, or as often as the row of time says, and return the result."""
        if row.at is None:
            return self._call(row, row.script)
        self.clock.advance(row.at - self.clock.monotonic() + self.began)
        told = [self._call(row, [answer]) for answer in row.script]
        assert {(one.outcome, one.calls) for one in told} == {(told[0].outcome, told[0].calls)}, f"line {row.line}"
        told[0].state = self.state()
        return told[0]

    began = 0.0

    def _call(self, row: Row, script: Any) -> Told:
        self.service.follow(script)
        fetch = vars(self.module)["fetch"]

        async def later() -> Any:
            return await fetch(7)

        became = outcome((lambda: fetch(7)) if self.way == "def" else lambda: self.clock.run(later()))
        return Told(became, len(self.service.began), self.service.delays)

    def state(self) -> str:
        """Return the state of the circuit, ours or that of the other library, in our words."""
        for peer in ("pybreaker", "aiobreaker"):
            if peer in vars(self.module):
                kind = sys.modules[peer].CircuitBreaker
                [breaker] = [one for one in vars(self.module).values() if isinstance(one, kind)]
                state = breaker.current_state
                return str(getattr(state, "name", state)).lower().replace("_", "-")
        if "circuitbreaker" in sys.modules and "circuit" in vars(self.module):
            return str(sys.modules["circuitbreaker"].CircuitBreakerMonitor.get("fetch").state).replace("_", "-")
        guards = [one.name for one in vars(self.module).values() if isinstance(one, Guard)]
        name = guards[0] if guards else f"{self.module.__name__}.fetch"
        return circuit_breakers.state(name) if name in circuit_breakers.names() else ""


def peers_of(case: Case) -> list[str]:
    return [peer for peer in PEERS if re.search(rf"^(import|from) {peer}\b", case.old, re.MULTILINE)]


def play(case: Case, side: str, way: str, seed: int) -> tuple[list[Told], list[Any]]:
    """Run all rows of one side: rows of calls begin anew each time, rows of time go on."""
    told, heard = [], []
    on_time = case.rows[0].at is not None
    with virtual_time(seed=seed) as clock, warnings.catch_warnings():
        if side == "old":
            warnings.simplefilter("ignore", DeprecationWarning)  # deprecated functions that other libraries still use
        with on_clock(peers_of(case) if side == "old" else (), clock):
            random.seed(seed)
            actor = None
            for row in case.rows:
                if actor is None or not on_time:
                    if actor is not None:
                        actor.close()
                    actor = Play(case, side, way, clock)
                    actor.began = clock.monotonic()
                told.append(actor.play(row))
                heard.append([*vars(actor.module).get("heard", ())])
            if actor is not None:
                actor.close()
    reset()
    return told, heard


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Isolate chance and the state of guards from other tests."""
    state = random.getstate()
    reset()
    yield
    random.setstate(state)
    if monitor := getattr(sys.modules.get("circuitbreaker"), "CircuitBreakerMonitor", None):
        monitor.circuit_breakers.clear()


def ways(case: Case) -> Iterator[str]:
    """Yield the ways to run a pair: as it stands, and with coroutine functions where these differ."""
    written = case.old + case.new
    if "async def fetch(" not in written:
        yield "def"
    if "sync" not in case.options:
        yield "async def"


@pytest.mark.parametrize(
    ("case", "way"), [pytest.param(case, way, id=f"{named(case)}-{way}") for case in CASES for way in ways(case)]
)
def test_old_and_new_code_behaves_as_the_table_says(case: Case, way: str) -> None:
    """Each cell is run: the number of calls, the delays between them, the outcome and the circuit."""
    for peer in peers_of(case):
        pytest.importorskip(peer)
    heard = {}
    for side in SIDES:
        if not getattr(case, side):
            continue
        draws = [play(case, side, way, seed) for seed in range(DRAWS if case.is_drawn else 1)]
        heard[side] = draws[0][1]
        for number, row in enumerate(case.rows):
            wrong = matches(getattr(row, side), [told[number] for told, _ in draws])
            assert not wrong, f"{case.page.name}:{row.line}: {side} {way}: {wrong}"

    if len(heard) == len(SIDES) and "heard" in case.old:
        assert heard["new"] == heard["old"]


SPECIFIED = {
    faulttolerance.policies.Bulkhead: {"max_wait", "latency"},
    faulttolerance.policies.CircuitBreaker: {"slow", "window", "max_delay", "name"},
    faulttolerance.policies.Fallback: set(),
    faulttolerance.policies.Retry: {"jitter_kind"},
    faulttolerance.policies.Timeout: {"interrupt", "adaptive"},
}
"""The annotations of the specification, and the parameters that only this library adds."""

_SPAN = re.compile(r"`@?([^`]+)`")
KNOWN: dict[str, Callable[..., Any]] = {name: getattr(faulttolerance, name) for name in faulttolerance.__all__}
MADE_BY = {
    "tenacity": ["Retrying", "retry"],
    "stamina": ["retry", "set_testing"],
    "backoff": ["on_exception", "on_predicate", "expo", "fibo", "constant", "runtime"],
    "pybreaker": ["CircuitBreaker"],
    "circuitbreaker": ["circuit"],
}
"""The callables that have the parameters in the tables of a page."""


def spans(page: Path, column: int) -> Iterator[str]:
    """Yield the code in one column of the tables."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            yield from _SPAN.findall(line.replace("\\|", " or ").strip("| ").split(" | ")[column])


def calls(span: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each call in *span*: its function and its keywords."""
    try:
        tree = ast.parse(span.replace("...", "*_"), mode="eval")
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), [one.arg for one in node.keywords if one.arg]


def parameters_of(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names that *function* takes, or None where it takes any."""
    parameters = inspect.signature(function).parameters
    return None if any(one.kind is one.VAR_KEYWORD for one in parameters.values()) else frozenset(parameters)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_parameters_that_tables_name_exist(page: Path) -> None:
    """A reader copies these parameters."""
    wrong = []
    for span in spans(page, -1):
        for name, keywords in calls(span):
            if name in KNOWN and (known := parameters_of(KNOWN[name])) is not None:
                wrong += [f"{one} of {span}" for one in keywords if one not in known]

    assert wrong == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem.removeprefix("from-") in PEERS], ids=lambda page: page.stem
)
def test_the_parameters_of_others_that_tables_name_exist(page: Path) -> None:
    """A reader looks for these parameters in the other library."""
    peer = pytest.importorskip(page.stem.removeprefix("from-"))
    makers = [getattr(peer, name) for name in MADE_BY[peer.__name__]]
    given = {name for maker in makers for name in inspect.signature(maker).parameters}
    wrong, seen = [], 0
    for span in spans(page, 0):
        if lone := re.match(r"(\w+)=(?!=)", span):
            wrong += [span] if lone[1] not in given else []
            seen += 1
        for called, keywords in calls(span):
            found = getattr(peer, called.removeprefix(f"{peer.__name__}."), None)
            if found is not None and (known := parameters_of(found)) is not None:
                wrong += [f"{one} of {span}" for one in keywords if one not in known]
                seen += 1

    assert wrong == []
    assert seen > 5


_ROW = re.compile(r"^\| `([A-Z]\w+)\.(\w+)` \| `(\w+\([^`]*\))`", re.MULTILINE)


def test_the_defaults_of_the_specification_are_those_of_the_page() -> None:
    """Each annotation with each parameter has a row with true values."""
    page = next(page for page in PAGES if page.stem == "from-microprofile")
    rows = {(kind, name): call for kind, name, call in _ROW.findall(page.read_text(encoding="utf-8"))}
    wanted = {
        (kind.__name__, re.sub("_(.)", lambda found: found[1].upper(), one))
        for kind, ours in SPECIFIED.items()
        for one in inspect.signature(kind).parameters
        if one not in ours
    }

    assert rows.keys() == wanted
    for call in rows.values():
        node = cast("ast.Call", ast.parse(call, mode="eval").body)
        [(name, shown)] = [(str(one.arg), ast.unparse(one.value)) for one in node.keywords]
        default = inspect.signature(KNOWN[ast.unparse(node.func)]).parameters[name].default
        value = eval(shown, vars(faulttolerance).copy())
        assert default in (value, (value,)), call


TOLD = Told("`ConnectionError` from `OSError`", 3, [1.0, 2.0])


@pytest.mark.parametrize(
    ("cell", "told", "fits"),
    [
        ("3 calls, after 1 s, 2 s: `ConnectionError`", [TOLD], True),
        ("3 calls, after 1 s, 2 s: `ConnectionError` from `OSError`", [TOLD], True),
        ("3 calls, after 0.5 to 1.5 s, 2 s: `ConnectionError`", [TOLD], True),
        ("2 calls, after 1 s, 2 s: `ConnectionError`", [TOLD], False),
        ("3 calls, after 1 s x2: `ConnectionError`", [TOLD], False),
        ("3 calls, after 1 s: `ConnectionError`", [TOLD], False),
        ("3 calls: `ConnectionError`", [TOLD], False),
        ("3 calls, after 1 s, 2 s: `OSError`", [TOLD], False),
        ("3 calls, after 1 s, 2 s: `ConnectionError` from `KeyError`", [TOLD], False),
        ("3 calls, after 0.5 to 1.5 s, 2 s: `ConnectionError`", [TOLD, TOLD], False),  # chance has no say in it
        ("`ConnectionError`, open", [Told("`ConnectionError`", 1, [], "open")], True),
        ("`ConnectionError`, closed", [Told("`ConnectionError`", 1, [], "open")], False),
        ("refused, open", [Told("`CircuitBreakerOpenException`", 0, [], "open")], True),
        ("refused, open", [Told("`CircuitBreakerError`", 1, [], "open")], False),  # the service was asked
        ("refused, open", [Told('`"fresh"`', 0, [], "open")], False),
        ("refused", [Told("`RateLimitException`", 0, [], "")], True),
    ],
)
def test_a_cell_that_is_wrong_is_noticed(cell: str, told: list[Told], fits: bool) -> None:
    """These are the number of calls, each delay, the ends of a range, the outcome, the state and the asked service."""
    assert (not matches(cell, told)) is fits


def test_there_are_pairs() -> None:
    """Pairs that are not found are not tested."""
    assert {case.page for case in CASES} == {*PAGES}
