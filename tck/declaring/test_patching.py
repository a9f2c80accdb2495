"""Decorators on code that one does not own: `faulttolerance.patching`."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    apply_guard,
    around_invoke,
    bulkhead,
    circuit_breaker,
    circuit_breakers,
    explain,
    fallback,
    guards,
    retry,
    timeout,
    unguarded,
)
from faulttolerance.policies import Retry
from faulttolerance.testing import configured
from kit.definition import refused
from kit.program import python

wrapt = pytest.importorskip("wrapt")

from faulttolerance.patching import Patch, patch  # noqa: E402  # it needs wrapt

VENDOR = '''
"""Somebody else's library."""
from __future__ import annotations

class Base:
    def ping(self, times: int = 1) -> str:
        """Return a sign of life."""
        return self._fail("pong")

    @classmethod
    def shared(cls):
        return cls.__name__

    @staticmethod
    def plain(value):
        return value

class Client(Base):
    failures = 0

    def __init__(self):
        self.attempts = 0

    def _fail(self, answer):
        self.attempts += 1
        if self.attempts <= self.failures:
            raise ConnectionError(self.attempts)
        return answer

    def send(self, request, *, stream=False):
        """Send it."""
        return self._fail((request, stream))

    async def send_later(self, request):
        return self._fail(request)

    def stale(self, request, *, stream=False):
        return "stale"

    @classmethod
    def named(cls, name):
        return cls.__name__, name

    @staticmethod
    def encoded(text):
        return text.encode()

    @property
    def address(self):
        return "here"

    def pages(self):
        yield 1

def get(url):
    return Client().send(url)

limit = 3
'''

again = retry(max_retries=2, delay=0, jitter=0)


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Yield a function that imports the module `vendor`, anew in each test."""
    (tmp_path / "vendor.py").write_text(VENDOR, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def imported() -> Any:
        import vendor

        return vendor

    yield imported
    sys.modules.pop("vendor", None)


@pytest.fixture
def flaky(vendor: Callable[[], ModuleType]) -> Any:
    """Return the module, with clients that fail twice before they answer."""
    module: Any = vendor()
    module.Client.failures = 2
    return module


def recording(seen: list[Any]) -> Any:
    """Return a wrapper of wrapt's, as instrumentation puts it on a method: it records each call."""

    def noted(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        seen.append((type(instance).__name__ if not isinstance(instance, type) else instance.__name__, args))
        return wrapped(*args, **kwargs)

    return noted


# Targets of a patch


def test_a_method_is_guarded_as_if_the_decorators_were_written_above_it(flaky: Any) -> None:
    """Every instance, also those that were made before, follows the policies; the signature stays."""
    client, signature = flaky.Client(), inspect.signature(flaky.Client.send)

    patch(flaky, "Client.send", again, timeout(500))

    assert client.send("a", stream=True) == ("a", True)
    assert client.attempts == 3
    assert inspect.signature(flaky.Client.send) == signature
    assert inspect.getdoc(flaky.Client.send) == "Send it."


def test_a_coroutine_function_stays_one(flaky: Any) -> None:
    """Policies await it, and so do callers."""
    patch(flaky, "Client.send_later", again, bulkhead(3))
    client = flaky.Client()

    assert inspect.iscoroutinefunction(flaky.Client.send_later)
    assert asyncio.run(client.send_later("a")) == "a"
    assert client.attempts == 3


def test_a_function_of_a_module_is_guarded_where_it_is_looked_up(flaky: Any) -> None:
    """Its name, in keys and metrics, is that of the module that defines it."""
    alias = ModuleType("alias")
    alias.get = flaky.get  # type: ignore[attr-defined]

    patch(alias, "get", fallback(lambda context: context.args))

    assert alias.get("a") == ("a",)
    assert explain(alias.get).startswith("vendor.get\n")
    with pytest.raises(ConnectionError):
        flaky.get("a")


@pytest.mark.parametrize("attribute", ["named", "encoded", "shared", "plain"])
def test_class_and_static_methods_stay_what_they_are(vendor: Callable[[], Any], attribute: str) -> None:
    """They are called on the class and on instances as before, whether defined there or inherited."""
    module = vendor()
    cls = type("Special", (module.Client,), {})
    calls = [cls, cls(), module.Client]
    arguments = () if attribute == "shared" else ("a",)
    before = [getattr(one, attribute)(*arguments) for one in calls]

    made = patch(module, f"Client.{attribute}", again, timeout(500))
    kind = staticmethod if attribute in ("encoded", "plain") else classmethod

    assert [getattr(one, attribute)(*arguments) for one in calls] == before
    assert isinstance(vars(module.Client)[attribute], kind)
    assert "vendor.Client." + attribute in explain(getattr(module.Client, attribute))
    made.undo()
    assert [getattr(one, attribute)(*arguments) for one in calls] == before


def test_an_inherited_method_is_overridden_in_the_class_that_is_named(flaky: Any) -> None:
    """Other classes that inherit it keep theirs; a patch that is taken back leaves nothing in the class."""
    made = patch(flaky, "Client.ping", again)
    client = flaky.Client()

    assert client.ping() == "pong"
    assert client.attempts == 3
    assert explain(flaky.Client.ping).startswith("vendor.Client.ping\n")
    assert inspect.getdoc(flaky.Client.ping) == "Return a sign of life."
    assert "ping" in vars(flaky.Base)
    made.undo()
    assert "ping" not in vars(flaky.Client)


def test_an_override_by_patching_keeps_the_method_resolution_order(vendor: Callable[[], Any]) -> None:
    """Another base of a subclass overrides the method, too, and its code still runs."""
    module = vendor()

    class Polite(module.Base):  # type: ignore[name-defined, misc]
        def ping(self, times: int = 1) -> str:
            return "please: " + super().ping(times)

    class Both(module.Client, Polite):  # type: ignore[name-defined, misc]
        pass

    before = Both().ping()
    patch(module, "Client.ping", again)

    assert before == Both().ping() == "please: pong"


def test_a_class_is_guarded_as_one_with_decorators_above_it(flaky: Any) -> None:
    """Its public methods, and those that living subclasses override; `undo` leaves no trace in any of them."""

    class Special(flaky.Client):  # type: ignore[misc, name-defined]
        def stale(self, request: str, *, stream: bool = False) -> str:
            return str(self._fail("fresh"))

    before = [dict(vars(cls)) for cls in (flaky.Client, Special)]
    made = patch(flaky, "Client", again)
    answers = [flaky.Client().send("a"), Special().stale("a"), Special().ping()]
    made.undo()

    assert answers == [("a", False), "fresh", "pong"]
    assert [dict(vars(cls)) for cls in (flaky.Client, Special)] == before
    with pytest.raises(ConnectionError):
        Special().stale("a")


def test_a_subclass_made_while_its_base_was_patched_is_free_once_that_is_undone(flaky: Any) -> None:
    """The inherited part of the patch goes with it, also for methods that were called."""
    with patch(flaky, "Client", again):

        class Special(flaky.Client):  # type: ignore[misc, name-defined]
            def stale(self, request: str, *, stream: bool = False) -> str:
                return str(self._fail("fresh"))

        assert Special().stale("a") == "fresh"

    with pytest.raises(ConnectionError):
        Special().stale("a")


def test_a_method_of_one_object_is_guarded(flaky: Any) -> None:
    """Other instances of its class are left alone."""
    client = flaky.Client()

    made = patch(client, "send", again)

    assert client.send("a") == ("a", False)
    with pytest.raises(ConnectionError):
        flaky.Client().send("a")
    made.undo()
    assert vars(client) == {"attempts": 3}


def test_a_fallback_method_is_looked_for_in_the_class(flaky: Any) -> None:
    """It is checked when the patch is made, as it is when a class is created."""
    patch(flaky, "Client.send", fallback(fallback_method="stale"))

    assert flaky.Client().send("a") == "stale"
    with refused("fallback_method", "gone"):
        patch(flaky, "Client.send_later", fallback(fallback_method="gone"))
    assert not explain_or_none(flaky.Client.send_later)


def explain_or_none(method: Any) -> str | None:
    try:
        return explain(method)
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("made", "name"), [(lambda: Guard(retry=Retry(max_retries=2, jitter=0), name="up"), "up"), (None, "up")]
)
def test_guards_are_decorators_like_others(flaky: Any, made: Any, name: str) -> None:
    """A `Guard`, or one that `apply_guard` finds by its name, keeps its state across all functions that it guards."""
    guard = Guard(retry=Retry(max_retries=2, jitter=0), name=name)

    patch(flaky, "Client.send", guard if made else apply_guard(name))

    assert flaky.Client().send("a") == ("a", False)
    guard.close()


def test_interceptors_stand_outside_and_inside_the_policies_by_priority(flaky: Any) -> None:
    """The order in which they are given does not matter, as above a function of one's own."""
    seen: list[Any] = []

    @around_invoke(priority=3000)
    def per_call(invocation: Any) -> Any:
        seen.append(("call", type(invocation.target).__name__, invocation.args))
        return invocation.proceed()

    @around_invoke(priority=5000)
    def per_attempt(invocation: Any) -> Any:
        seen.append(("attempt", type(invocation.target).__name__, invocation.args))
        return invocation.proceed()

    patch(flaky, "Client.send", per_attempt, again, per_call)
    flaky.Client().send("a")

    assert seen == [("call", "Client", ("a",))] + [("attempt", "Client", ("a",))] * 3


def test_interceptors_alone_need_no_policy(vendor: Callable[[], Any]) -> None:
    """An audit of foreign code is a use of its own."""
    module = vendor()

    @around_invoke
    def shouted(invocation: Any) -> Any:
        return str(invocation.proceed()).upper()

    patch(module, "Client.ping", shouted)

    assert module.Client().ping() == "PONG"


def test_unguarded_exempts_a_method_of_a_class_that_is_patched(flaky: Any) -> None:
    """As in a class of one's own, it comes before the decorator of the class."""
    patch(flaky, "Client.stale", unguarded)
    patch(flaky, "Client", again)

    assert explain_or_none(flaky.Client.stale) is None
    assert flaky.Client().send("a") == ("a", False)


# Names


def test_keys_and_metrics_have_the_name_of_the_patched_class(flaky: Any) -> None:
    """A key for the method sets its parameters, and its counts stand under its name."""
    patch(flaky, "Client.ping", again)
    client = flaky.Client()

    with configured({"vendor.Client/ping/Retry/maxRetries": 1}):
        with pytest.raises(ConnectionError):
            client.ping()
        explained = explain(client.ping)

    assert client.attempts == 2
    assert "maxRetries = 1  [vendor.Client/ping/Retry/maxRetries in" in explained
    assert "vendor.Client.ping" in {guard.name for guard in guards()}


def test_a_subclass_has_a_state_of_its_own(flaky: Any) -> None:
    """One breaker per concrete class, as for every method."""
    flaky.Client.failures = 100
    special = type("Special", (flaky.Client,), {"__module__": "mine"})
    patch(flaky, "Client.send", circuit_breaker(request_volume_threshold=1))

    with pytest.raises(ConnectionError):
        special().send("a")

    assert circuit_breakers.state("mine.Special.send") == "open"
    assert circuit_breakers.state("vendor.Client.send") == "closed"


def test_a_client_of_httpx_is_known_by_the_name_that_its_users_import() -> None:
    """The classes of httpx, and so their keys, name the module `httpx`, and not the one that defines them."""
    httpx = pytest.importorskip("httpx")
    answers = iter([503, 503, 200])
    seen: list[str] = []

    class Busy(Exception):
        pass

    @around_invoke(priority=5000)
    def refusing(invocation: Any) -> Any:
        response = invocation.proceed()
        seen.append(str(invocation.args[0].url))
        if response.status_code == 503:
            raise Busy
        return response

    with patch("httpx", "Client.send", again, timeout(5000), refusing):
        client = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(next(answers))))
        response = client.get("http://storage/")
        explained = explain(httpx.Client.send)

    assert response.status_code == 200
    assert seen == ["http://storage/"] * 3
    assert explained.startswith("httpx.Client.send\n")
    assert explain_or_none(httpx.Client.send) is None


# Modules that are imported later


def test_a_module_is_patched_as_soon_as_it_is_imported(vendor: Callable[[], Any]) -> None:
    """The patch itself imports nothing."""
    made = patch("vendor", "Client.send", again)
    waiting = ("vendor" in sys.modules, made.is_applied, repr(made))

    module = vendor()
    module.Client.failures = 2

    assert waiting == (False, False, "<patch of vendor.Client.send: waits for the import>")
    assert made.is_applied
    assert module.Client().send("a") == ("a", False)
    made.undo()


def test_a_patch_that_is_undone_before_the_import_is_never_made(vendor: Callable[[], Any]) -> None:
    """The import finds no patch to make."""
    made = patch("vendor", "Client.send", again)
    made.undo()

    module = vendor()

    assert explain_or_none(module.Client.send) is None
    assert repr(made) == "<patch of vendor.Client.send: undone>"


def test_the_import_fails_where_the_patch_does_not_fit(vendor: Callable[[], Any]) -> None:
    """The code does not run unguarded unnoticed; the message names the line that made the patch."""
    with (
        patch("vendor", "Client.sned", again),
        pytest.raises(FaultToleranceDefinitionException, match=r"vendor\.Client\.sned does not exist.*test_patching"),
    ):
        vendor()


def test_every_import_fails_until_a_patch_that_does_not_fit_is_taken_back(vendor: Callable[[], Any]) -> None:
    """Services import again; other patches of the module are made once the import succeeds."""
    fits = patch("vendor", "Client.send", again)
    unfit = patch("vendor", "Client.sned", again)
    also_fits = patch("vendor", "Client.ping", again)
    with fits, also_fits:
        for _ in range(3):
            with pytest.raises(FaultToleranceDefinitionException, match="sned does not exist"):
                vendor()
            assert "vendor" not in sys.modules

        unfit.undo()

        module = vendor()
        assert "maxRetries = 2" in explain(module.Client.send)
        assert "maxRetries = 2" in explain(module.Client.ping)
    assert explain_or_none(module.Client.send) is None


def test_an_import_that_fails_for_another_reason_leaves_the_next_one_guarded(vendor: Callable[[], Any]) -> None:
    """A foreign hook may come after ours, and raise."""
    made = patch("vendor", "Client.send", again)

    def fail(_: ModuleType) -> None:
        raise OSError

    wrapt.register_post_import_hook(fail, "vendor")
    with made:
        with pytest.raises(OSError):
            vendor()

        assert "maxRetries = 2" in explain(vendor().Client.send)


def test_a_foreign_wrapper_that_is_put_there_at_the_import_stays_inside(vendor: Callable[[], Any]) -> None:
    """The foreign hook was registered before, and its finder comes before one that waits for another patch already."""
    seen: list[Any] = []
    with patch("this", "d", again):
        wrapt.register_post_import_hook(
            lambda module: wrapt.wrap_function_wrapper(module, "Client.send", recording(seen)), "vendor"
        )
        finder = next(one for one in sys.meta_path if isinstance(one, wrapt.importer.ImportHookFinder))
        sys.meta_path.remove(finder)
        sys.meta_path.insert(0, finder)
        with patch("vendor", "Client.send", again):
            module = vendor()
            module.Client.failures = 2
            module.Client().send("a")

    assert len(seen) == 3


@pytest.mark.parametrize("path", ["Client.send", "Client", "get"])
@pytest.mark.parametrize("is_late", [True, False])
def test_a_module_that_is_run_again_is_patched_again(vendor: Callable[[], Any], path: str, is_late: bool) -> None:
    """A reload patches it until the patch is taken back; after that, nothing waits for imports any more."""
    finders = list(sys.meta_path)

    def found(module: Any) -> str | None:
        return explain_or_none(module.get if path == "get" else module.Client.send)

    if not is_late:
        vendor()
    with patch("vendor", path, again) as made:
        module = vendor()
        for _ in range(2):
            importlib.reload(module)
            assert "maxRetries = 2" in str(found(module))
            assert made.is_applied

    assert found(module) is None
    importlib.reload(module)
    assert found(module) is None
    assert {type(one) for one in sys.meta_path if one not in finders} <= {wrapt.importer.ImportHookFinder}


def test_an_attribute_that_a_reload_leaves_alone_is_not_patched_twice(vendor: Callable[[], Any]) -> None:
    """Foreign code may have put there an attribute that the module itself does not define."""
    module = vendor()
    module.theirs = module.get
    with patch("vendor", "theirs", again):
        importlib.reload(module)

        assert "maxRetries = 2" in explain(module.theirs)
    assert explain_or_none(module.theirs) is None


@pytest.mark.parametrize(
    ("path", "decorator"),
    [
        ("Client.send", again),
        ("Client.send", Guard(retry=Retry(max_retries=2, delay=0, jitter=0))),
        ("Client", again),
    ],
)
def test_a_class_that_a_module_imports_again_is_guarded_once(
    flaky: Any, path: str, decorator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that is run again finds the patched class of the other module, which is taken back whole."""
    (tmp_path / "facade.py").write_text("from vendor import Client\n", encoding="utf-8")
    flaky.Client.failures = 100
    with patch("facade", path, decorator):
        importlib.import_module("facade")
        monkeypatch.delitem(sys.modules, "facade")
        importlib.reload(importlib.import_module("facade"))
        client = flaky.Client()
        with pytest.raises(ConnectionError):
            client.send("a")
        assert client.attempts == 3
    monkeypatch.delitem(sys.modules, "facade")
    assert explain_or_none(flaky.Client.send) is None


def test_a_patch_that_failed_at_once_does_not_wait_for_a_reload(vendor: Callable[[], Any]) -> None:
    """A caller that got the exception has no patch that it could take back."""
    module = vendor()
    with refused("sned does not exist"):
        patch("vendor", "Client.sned", again)

    importlib.reload(module)


@pytest.mark.parametrize("module", ["no_such_module", "no_such_module.client", "vendor.client", "json.no_such_module"])
def test_a_module_that_cannot_be_imported_is_refused_at_once(vendor: Callable[[], Any], module: str) -> None:
    """A misspelled name would wait for ever, and guard nothing."""
    vendor()

    with pytest.raises(ModuleNotFoundError, match=module.partition(".")[0]):
        patch(module, "Client.send", again)


def test_a_module_of_a_package_that_is_not_imported_is_looked_for_at_once(
    vendor: Callable[[], Any], tmp_path: Path
) -> None:
    """Only the package is imported; an existing module is patched by any import."""
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "vendors" / "client.py").write_text(VENDOR, encoding="utf-8")
    try:
        with pytest.raises(ModuleNotFoundError, match=r"vendors\.clint"):
            patch("vendors.clint", "get", again)
        with patch("vendors.client", "get", again) as made:
            before = "vendors.client" in sys.modules, made.is_applied
            importlib.import_module("vendors.client")

            assert (before, made.is_applied) == ((False, False), True)
    finally:
        for name in ("vendors", "vendors.client"):
            sys.modules.pop(name, None)


def test_a_package_that_exports_a_function_exports_the_patched_one(vendor: Callable[[], Any], tmp_path: Path) -> None:
    """The package is imported to look for its module, and imports that module."""
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors" / "__init__.py").write_text("from .client import get, limit", encoding="utf-8")
    (tmp_path / "vendors" / "client.py").write_text(VENDOR, encoding="utf-8")
    try:
        with patch("vendors.client", "get", again):
            vendors = importlib.import_module("vendors")

            assert explain_or_none(vendors.get) is not None
    finally:
        for name in ("vendors", "vendors.client"):
            sys.modules.pop(name, None)


def test_a_package_that_cannot_be_imported_leaves_no_patch(vendor: Callable[[], Any], tmp_path: Path) -> None:
    """Its module may be imported already."""
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors" / "__init__.py").write_text("from .client import get, nothing", encoding="utf-8")
    (tmp_path / "vendors" / "client.py").write_text(VENDOR, encoding="utf-8")
    try:
        with pytest.raises(ImportError, match="nothing"):
            patch("vendors.client", "get", again)

        assert explain_or_none(sys.modules["vendors.client"].get) is None
    finally:
        for name in ("vendors", "vendors.client"):
            sys.modules.pop(name, None)


# Taking it back


def test_a_patch_is_a_context_manager(flaky: Any) -> None:
    """At the end of the block the attribute is the very object that it was."""
    before = vars(flaky.Client)["send"]

    with patch(flaky, "Client.send", again) as made:
        inside = (vars(flaky.Client)["send"] is before, made.is_applied)

    assert inside == (False, True)
    assert vars(flaky.Client)["send"] is before
    assert not made.is_applied
    made.undo()


def test_a_patch_on_a_patch_comes_off_first(flaky: Any) -> None:
    """Policies add up; each patch takes back its own, the later one first."""
    first = patch(flaky, "Client.send", again)
    second = patch(flaky, "Client.send", timeout(500))
    explained = explain(flaky.Client.send)

    with refused("vendor.Client.send", "undo the later change first"):
        first.undo()
    second.undo()

    assert "Retry" in explained
    assert "Timeout" in explained
    assert "Timeout" not in explain(flaky.Client.send)
    first.undo()
    assert explain_or_none(flaky.Client.send) is None


def test_a_later_foreign_patch_is_not_clobbered(flaky: Any) -> None:
    """The end of ours would remove the foreign one; that comes off as usual, and ours after it."""
    seen: list[Any] = []
    original = vars(flaky.Client)["send"]
    made = patch(flaky, "Client.send", again)
    wrapt.wrap_function_wrapper(flaky, "Client.send", recording(seen))

    with refused("vendor.Client.send", "undo the later change first"):
        made.undo()

    assert flaky.Client().send("a") == ("a", False)
    assert seen == [("Client", ("a",))]
    flaky.Client.send = vars(flaky.Client)["send"].__wrapped__  # as unwrap of OpenTelemetry does
    made.undo()
    assert vars(flaky.Client)["send"] is original


# Foreign patches that were there before


def test_a_foreign_wrapper_still_runs_once_per_attempt(flaky: Any) -> None:
    """It gets the instance and the arguments apart, as before."""
    seen: list[Any] = []
    wrapt.wrap_function_wrapper(flaky, "Client.send", recording(seen))
    wrapt.wrap_function_wrapper(flaky, "Client.send_later", recording(seen))

    patch(flaky, "Client.send", again)
    patch(flaky, "Client.send_later", again)

    assert flaky.Client().send("a") == ("a", False)
    assert inspect.iscoroutinefunction(flaky.Client.send_later)
    assert asyncio.run(flaky.Client().send_later("b")) == "b"
    assert seen == [("Client", ("a",))] * 3 + [("Client", ("b",))] * 3


@pytest.mark.parametrize(
    ("attribute", "instance"), [("named", "Client"), ("encoded", "NoneType"), ("shared", "Client")]
)
def test_class_and_static_methods_that_others_have_wrapped_keep_their_wrapper(
    vendor: Callable[[], Any], attribute: str, instance: str
) -> None:
    """wrapt's wrappers pass for class and static methods; a patch that unwrapped them as such would lose them."""
    module, seen = vendor(), list[Any]()
    arguments = () if attribute == "shared" else ("a",)
    wrapt.wrap_function_wrapper(module, f"Client.{attribute}", recording(seen))
    expected = getattr(module.Client, attribute)(*arguments)
    seen.clear()

    made = patch(module, f"Client.{attribute}", again, timeout(500))

    assert getattr(module.Client, attribute)(*arguments) == expected
    assert getattr(module.Client(), attribute)(*arguments) == expected
    assert seen == [(instance, arguments)] * 2
    made.undo()
    assert getattr(module.Client, attribute)(*arguments) == expected
    assert len(seen) == 3


def test_a_class_with_methods_that_others_have_wrapped_is_guarded(flaky: Any) -> None:
    """Class-level decorators leave each wrapper in place."""
    seen: list[Any] = []
    for attribute in ("send", "named", "encoded"):
        wrapt.wrap_function_wrapper(flaky, f"Client.{attribute}", recording(seen))

    patch(flaky, "Client", again)

    assert flaky.Client().send("a") == ("a", False)
    assert flaky.Client.named("b") == ("Client", "b")
    assert flaky.Client.encoded("c") == b"c"
    assert seen == [("Client", ("a",))] * 3 + [("Client", ("b",)), ("NoneType", ("c",))]


def test_a_wrapped_function_of_a_module_is_guarded(flaky: Any) -> None:
    """A function has no instance that its wrapper would get."""
    seen: list[Any] = []
    wrapt.wrap_function_wrapper(flaky, "get", recording(seen))

    patch(flaky, "get", again)

    with pytest.raises(ConnectionError):
        flaky.get("a")
    assert seen == [("NoneType", ("a",))] * 3


# Refusals


@pytest.mark.parametrize(
    ("path", "decorators", "message"),
    [
        ("Client.sned", (again,), r"vendor\.Client\.sned does not exist"),
        ("gone", (again,), r"vendor\.gone does not exist"),
        ("Client.address", (again,), "cannot be called"),
        ("limit", (again,), "cannot be called"),
        ("Client.pages", (again,), "generator function"),
        ("get", (), r"got \(\); allowed: decorators"),
        ("get", ("retry",), "'retry'"),
        ("get", (again, retry), "is present twice"),
        ("get", (timeout(500), timeout(100)), "is present twice"),
        ("get", (fallback,), r"fallback\(\.\.\.\) with its arguments"),
        ("get", (around_invoke,), r"around_invoke\(\.\.\.\) with its arguments"),
        ("get", (retry(max_retries=3, delay=10, max_duration=5),), "max_duration"),
    ],
)
def test_a_patch_that_cannot_be_made_is_refused_and_changes_nothing(
    vendor: Callable[[], Any], path: str, decorators: Any, message: str
) -> None:
    """The message has the fault, and the line that made the patch."""
    module = vendor()
    before = dict(vars(module)), dict(vars(module.Client))

    with pytest.raises(FaultToleranceDefinitionException, match=rf"(?s){message}.*test_patching\.py:\d+"):
        patch(module, path, *decorators)

    assert (dict(vars(module)), dict(vars(module.Client))) == before


def test_the_same_patch_twice_is_refused(vendor: Callable[[], Any]) -> None:
    """Code that runs twice would retry three times three times, or audit each call twice."""
    module = vendor()
    audit = around_invoke(lambda invocation: invocation.proceed())
    patch(module, "get", again)
    patch(module, "Client.send", audit)
    patch(module, "Client", audit)

    with refused("vendor.get", "is present twice"):
        patch(module, "get", again)
    for path in ("Client.send", "Client"):
        with refused(f"vendor.{path}", "already"):
            patch(module, path, audit)


@pytest.mark.parametrize("target", [str, sys.flags])
def test_a_target_that_is_not_written_in_python_is_refused(target: object) -> None:
    """A class of the interpreter cannot be changed."""
    with pytest.raises(FaultToleranceDefinitionException, match="cannot be changed"):
        patch(target, "count", again)


def test_a_class_that_is_refused_is_left_as_it_was(vendor: Callable[[], Any]) -> None:
    """Its subclasses are left as they were, too."""
    module = vendor()
    special = type("Special", (module.Client,), {"stale": lambda self, request, *, stream=False: request})
    before = [dict(vars(cls)) for cls in (module.Client, special)]

    with refused("vendor.Client", "is present twice"):
        patch(module, "Client", again, bulkhead(3), retry(max_retries=1))

    assert [dict(vars(cls)) for cls in (module.Client, special)] == before


def test_a_class_whose_holder_cannot_be_changed_is_left_as_it_was(vendor: Callable[[], Any]) -> None:
    """Its holder would have to hold another class, the result of one of the decorators."""
    client = vendor().Client
    before = dict(vars(client))

    class Frozen(type):
        def __setattr__(cls, name: str, value: object) -> None:
            raise TypeError(name)

    class Holder(metaclass=Frozen):
        made = client

    with refused("Holder.made cannot be changed"):
        patch(Holder, "made", lambda cls: type("Other", (cls,), {}), again)

    assert dict(vars(client)) == before


def test_an_attribute_of_the_metaclass_is_refused(vendor: Callable[[], Any]) -> None:
    """An override in the class would find nothing to call."""

    class Meta(type):
        def made(cls) -> None:
            pass

    class Client(vendor().Client, metaclass=Meta):
        pass

    with refused("Client.made comes from the metaclass"):
        patch(Client, "made", again)


@pytest.mark.outside
def test_without_wrapt_the_message_names_the_package_to_install() -> None:
    """The rest of the library does not need it."""
    program = textwrap.dedent("""
        import sys
        sys.modules["wrapt"] = None
        import faulttolerance
        try:
            import faulttolerance.patching
        except ImportError as error:
            print(error)
    """)

    done = python(program)

    assert 'pip install "faulttolerance[patch]"' in done.stdout


def test_a_patch_describes_itself(vendor: Callable[[], Any]) -> None:
    """The text is for logs and debuggers."""
    made = patch(vendor(), "Client.send", again)

    assert isinstance(made, Patch)
    assert repr(made) == "<patch of vendor.Client.send: in place>"


def test_classes_that_were_called_before_follow_a_patch_of_an_inherited_method() -> None:
    """An earlier call makes no difference."""
    attempts = []

    class Base:
        @retry(max_retries=4, jitter=0)
        def ask(self) -> None:
            attempts.append(None)
            raise OSError

    class Client(Base):
        pass

    with pytest.raises(OSError):
        Client().ask()
    attempts.clear()

    with patch(Client, "ask", retry(max_retries=1, jitter=0)), pytest.raises(OSError):
        Client().ask()
    patched = len(attempts)
    attempts.clear()
    with pytest.raises(OSError):
        Client().ask()

    assert (patched, len(attempts)) == (2, 5)
