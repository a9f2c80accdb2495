"""The fixtures for the tests of an application, in runs of pytest of their own."""

from __future__ import annotations

import importlib.metadata
import textwrap
from typing import Protocol

import pytest

import faulttolerance.testing  # noqa: F401  # imported here, and so kept where pytester puts sys.modules back
from kit.program import python

pytest_plugins = ["pytester"]

IMPORTED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Before pytest 9.2 it is a warning that the plugin is imported already, by the tests around these."""

APPLICATION = """
import asyncio
import pytest
import faulttolerance
from faulttolerance import circuit_breaker, circuit_breakers, retry


class Outage(Exception):
    pass


attempts = []


@pytest.fixture(autouse=True)
def count_anew():
    attempts.clear()


@retry(max_retries=3, delay=20_000, jitter=10_000)
def charge():
    attempts.append(1)
    raise Outage


@retry(max_retries=3, delay=20_000, jitter=0)
async def charge_async():
    raise Outage


@circuit_breaker(request_volume_threshold=2, delay=3_600_000)
def query():
    raise Outage


def fail_twice():
    for _ in range(2):
        with pytest.raises(Outage):
            query()
    with pytest.raises(faulttolerance.CircuitBreakerOpenException):
        query()


"""


def is_installed(distribution: str, *at_least: int) -> bool:
    """Return whether the inner run can use a package, without importing it for this one."""
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return tuple(int(part) for part in version.split(".")[:2]) >= at_least


class Run(Protocol):
    def __call__(self, tests: str, *options: str, plugins: tuple[str, ...] = ()) -> pytest.RunResult: ...


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a file of tests with the plugin, and with no other one that happens to be installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run_file(tests: str, *options: str, plugins: tuple[str, ...] = ()) -> pytest.RunResult:
        pytester.makepyfile(test_application=APPLICATION + textwrap.dedent(tests))
        chosen = [part for name in ("faulttolerance.pytest_plugin", *plugins) for part in ("-p", name)]
        return pytester.runpytest_inprocess(*chosen, "-W", "error", *IMPORTED, "--strict-markers", *options)

    return run_file


def test_delays_pass_at_once_under_the_clock(run: Run) -> None:
    """``ft_clock`` is virtual time for the length of the test, for threads and for coroutines."""
    done = run("""
        def test_blocking(ft_clock):
            began = ft_clock.monotonic()
            with pytest.raises(Outage):
                charge()
            assert len(attempts) == 4
            assert ft_clock.monotonic() - began > 30

        def test_coroutine(ft_clock):
            began = ft_clock.monotonic()
            with pytest.raises(Outage):
                ft_clock.run(charge_async())
            assert ft_clock.monotonic() - began == 60

        def test_circuit(ft_clock):
            fail_twice()
            ft_clock.advance(3_600)
            with pytest.raises(Outage):
                query()

        def test_real_time_is_back():
            import time
            from faulttolerance._deadline.clock import clock
            assert clock.monotonic is time.monotonic
    """)

    done.assert_outcomes(passed=4)


def test_a_marker_chooses_the_seed(run: Run) -> None:
    """Two tests with one seed see the same jitter, and a test with another seed sees another one."""
    done = run("""
        seen = []

        def total(clock):
            began = clock.monotonic()
            with pytest.raises(Outage):
                charge()
            seen.append(clock.monotonic() - began)

        @pytest.mark.ft_clock(seed=7)
        def test_first(ft_clock):
            total(ft_clock)

        @pytest.mark.ft_clock(7)
        def test_second(ft_clock):
            total(ft_clock)

        def test_third(ft_clock):
            total(ft_clock)
            assert seen[0] == seen[1] != seen[2]
    """)

    done.assert_outcomes(passed=3)


LEAKING = """
        def test_that_trips_the_circuit():
            fail_twice()

        def test_that_comes_next():
            assert circuit_breakers.state("test_application.query") == "closed"
"""


def test_state_leaks_unless_asked_for(run: Run) -> None:
    """The plugin changes nothing for tests that do not ask: a tripped circuit stays tripped."""
    done = run(LEAKING)

    done.assert_outcomes(passed=1, failed=1)


def test_every_test_begins_anew_where_the_setting_says_so(run: Run) -> None:
    """The setting is ``ft_reset = true`` in the configuration of pytest."""
    done = run(LEAKING, "-o", "ft_reset=true")

    done.assert_outcomes(passed=2)


def test_a_single_test_begins_anew_by_the_fixture(run: Run) -> None:
    """``ft_reset`` forgets what came before its test, and what its test leaves behind."""
    done = run("""
        def test_that_trips_the_circuit():
            fail_twice()

        def test_that_begins_anew(ft_reset):
            assert circuit_breakers.state("test_application.query") == "closed"
            fail_twice()

        def test_that_comes_next():
            assert circuit_breakers.state("test_application.query") == "closed"
    """)

    done.assert_outcomes(passed=3)


def test_configuration_lasts_as_long_as_its_test(run: Run) -> None:
    """``ft_configured`` may be called more than once; each call adds to what holds already."""
    done = run("""
        def test_with(ft_clock, ft_configured):
            ft_configured({"Retry/maxRetries": 1})
            with pytest.raises(Outage):
                charge()
            assert len(attempts) == 2
            ft_configured({"Retry/enabled": "false"})
            with pytest.raises(Outage):
                charge()
            assert len(attempts) == 3

        def test_without(ft_clock):
            with pytest.raises(Outage):
                charge()
            assert len(attempts) == 4
    """)

    done.assert_outcomes(passed=2)


LOOP_PER_TEST = """
        @pytest.mark.parametrize("again", [1, 2, 3])
        async def test_coroutine(ft_clock, again):
            began = ft_clock.monotonic()
            with pytest.raises(Outage):
                await charge_async()
            await asyncio.sleep(20)
            assert ft_clock.monotonic() - began == 80

        async def test_without_the_clock():
            await asyncio.sleep(0)
"""


@pytest.mark.skipif(not is_installed("anyio", 4, 0), reason="anyio is not installed")
def test_loops_of_anyio_follow_the_clock(run: Run, pytester: pytest.Pytester) -> None:
    """Each test has a loop of its own, made by ``loop_factory``; the tests may share guards."""
    pytester.makeconftest("""
        import pytest
        from faulttolerance.testing.active_clock import loop_factory

        @pytest.fixture
        def anyio_backend():
            return "asyncio", {"loop_factory": loop_factory}
    """)

    done = run("        pytestmark = pytest.mark.anyio\n" + LOOP_PER_TEST, plugins=("anyio.pytest_plugin",))

    done.assert_outcomes(passed=4)


@pytest.mark.skipif(not is_installed("pytest-asyncio", 1, 4), reason="pytest-asyncio 1.4 is not installed")
def test_loops_of_pytest_asyncio_follow_the_clock(run: Run, pytester: pytest.Pytester) -> None:
    """Its hook takes ``loop_factory`` as it is."""
    pytester.makeconftest("""
        from faulttolerance.testing.active_clock import loop_factory

        def pytest_asyncio_loop_factories(config, item):
            return {"virtual": loop_factory}
    """)

    settings = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")
    done = run(LOOP_PER_TEST, *settings, plugins=("pytest_asyncio.plugin",))

    done.assert_outcomes(passed=4)


@pytest.mark.skipif(not is_installed("anyio", 4, 0), reason="anyio is not installed")
@pytest.mark.parametrize("backend", ["'asyncio'", "('asyncio', {'debug': True})"])
def test_anyio_makes_loops_that_follow_the_clock_by_itself(run: Run, pytester: pytest.Pytester, backend: str) -> None:
    """A test that asks for the clock does not have to say how loops are made."""
    pytester.makeconftest(f"""
        import pytest

        @pytest.fixture
        def anyio_backend():
            return {backend}
    """)

    done = run("        pytestmark = pytest.mark.anyio\n" + LOOP_PER_TEST, plugins=("anyio.pytest_plugin",))

    done.assert_outcomes(passed=4)


@pytest.mark.skipif(not is_installed("anyio", 4, 0), reason="anyio is not installed")
def test_a_coroutine_fixture_of_anyio_after_the_clock_runs_on_a_loop_that_follows_it(run: Run) -> None:
    """The first coroutine makes the loop of the test; a fixture of a test without the clock has an ordinary one."""
    done = run(
        """
        pytestmark = pytest.mark.anyio

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.fixture
        async def service(ft_clock):
            await asyncio.sleep(3_600)
            yield charge_async
            await asyncio.sleep(3_600)

        @pytest.fixture
        async def plain(anyio_backend):
            return anyio_backend

        async def test_with(service, ft_clock):
            began = ft_clock.monotonic()
            with pytest.raises(Outage):
                await service()
            assert ft_clock.monotonic() - began == 60

        async def test_without(plain):
            assert plain == "asyncio"
            assert not hasattr(asyncio.get_running_loop(), "virtual_clock")
        """,
        plugins=("anyio.pytest_plugin",),
    )

    done.assert_outcomes(passed=2)


@pytest.mark.skipif(not is_installed("anyio", 4, 0), reason="anyio is not installed")
def test_the_clock_works_with_the_fixtures_that_anyio_brings(run: Run) -> None:
    """The backend may be the default one, and its name and a free port are ordinary fixtures."""
    done = run(
        """
        pytestmark = pytest.mark.anyio

        async def test_coroutine(ft_clock, anyio_backend_name, free_tcp_port):
            began = ft_clock.monotonic()
            with pytest.raises(Outage):
                await charge_async()
            assert ft_clock.monotonic() - began == 60
            assert anyio_backend_name == "asyncio"
        """,
        *("-k", "asyncio"),
        plugins=("anyio.pytest_plugin",),
    )

    done.assert_outcomes(passed=1)


PYTEST_ASYNCIO = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")


@pytest.mark.skipif(not is_installed("pytest-asyncio", 1, 4), reason="pytest-asyncio 1.4 is not installed")
def test_pytest_asyncio_makes_loops_that_follow_the_clock_by_itself(run: Run) -> None:
    """This holds for tests that ask for the clock only; the others have the loops that they always had."""
    done = run(
        LOOP_PER_TEST
        + """
        async def test_a_loop_without_the_clock_is_an_ordinary_one():
            assert not hasattr(asyncio.get_running_loop(), "virtual_clock")
        """,
        *PYTEST_ASYNCIO,
        plugins=("pytest_asyncio.plugin",),
    )

    done.assert_outcomes(passed=5)


LOOP_BEFORE_THE_CLOCK = """
        @pytest.fixture
        async def service():
            await asyncio.sleep(0)
            yield charge_async
            await asyncio.sleep(0)

        async def test_coroutine(service, ft_clock):
            began = ft_clock.monotonic()
            with pytest.raises(Outage):
                await service()
            await asyncio.sleep(20)
            assert ft_clock.monotonic() - began == 80
"""


@pytest.mark.skipif(not is_installed("pytest-asyncio", 1, 4), reason="pytest-asyncio 1.4 is not installed")
def test_a_loop_of_pytest_asyncio_follows_the_clock_although_a_fixture_made_it_earlier(run: Run) -> None:
    """The order in which a test requests its fixtures makes no difference."""
    done = run(LOOP_BEFORE_THE_CLOCK, *PYTEST_ASYNCIO, plugins=("pytest_asyncio.plugin",))

    done.assert_outcomes(passed=1)


@pytest.mark.skipif(not is_installed("anyio", 4, 0), reason="anyio is not installed")
def test_a_loop_of_anyio_follows_the_clock_although_a_fixture_made_it_earlier(run: Run) -> None:
    """The order in which a test requests its fixtures makes no difference."""
    mark = "        pytestmark = pytest.mark.anyio\n"
    done = run(mark + LOOP_BEFORE_THE_CLOCK, *("-k", "asyncio"), plugins=("anyio.pytest_plugin",))

    done.assert_outcomes(passed=1)


LOOP_OF_A_MODULE = """
        pytestmark = pytest.mark.asyncio(loop_scope="module")

        async def test_without_the_clock():
            await asyncio.sleep(0)

        @pytest.mark.parametrize("again", [1, 2])
        async def test_coroutine(ft_clock, again):
            with pytest.raises(Outage):
                await charge_async()
"""


@pytest.mark.skipif(not is_installed("pytest-asyncio", 1, 4), reason="pytest-asyncio 1.4 is not installed")
def test_a_loop_of_a_module_follows_the_clock_of_each_test(run: Run, pytester: pytest.Pytester) -> None:
    """It lives on between the tests, in real time."""
    pytester.makeconftest("""
        from faulttolerance.testing.active_clock import loop_factory

        def pytest_asyncio_loop_factories(config, item):
            return {"virtual": loop_factory}
    """)

    done = run(LOOP_OF_A_MODULE, *PYTEST_ASYNCIO, plugins=("pytest_asyncio.plugin",))

    done.assert_outcomes(passed=3)


@pytest.mark.skipif(not is_installed("pytest-asyncio", 1, 4), reason="pytest-asyncio 1.4 is not installed")
def test_an_ordinary_loop_is_refused_at_once_under_the_clock(run: Run) -> None:
    """It would wait in real time for an event that is due in an hour of the clock."""
    done = run(LOOP_OF_A_MODULE, *PYTEST_ASYNCIO, plugins=("pytest_asyncio.plugin",))

    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(["*VirtualTimeStalled*pytest_asyncio_loop_factories*"])


SHARED_LOOP = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=module")


@pytest.mark.skipif(not is_installed("pytest-asyncio", 1, 4), reason="pytest-asyncio 1.4 is not installed")
def test_a_test_with_the_clock_leaves_the_loops_and_fixtures_that_others_share(run: Run) -> None:
    """Neither a pool of connections nor its loop is made once more, before or after it."""
    done = run(
        """
        made = []

        @pytest.fixture(scope="module")
        async def pool():
            made.append(1)
            pool = asyncio.create_task(asyncio.sleep(1e9))
            yield pool
            pool.cancel()

        @pytest.mark.asyncio(loop_scope="module")
        async def test_before(pool):
            await asyncio.wait([pool], timeout=0)

        async def test_with_the_clock(ft_clock):
            with pytest.raises(Outage):
                await charge_async()

        @pytest.mark.asyncio(loop_scope="module")
        async def test_on_the_shared_loop(ft_clock, pool):
            await asyncio.wait([pool], timeout=0)

        @pytest.mark.asyncio(loop_scope="module")
        async def test_after(pool):
            await asyncio.wait([pool], timeout=0)
            assert made == [1]
        """,
        *SHARED_LOOP,
        plugins=("pytest_asyncio.plugin",),
    )

    done.assert_outcomes(passed=4)


@pytest.mark.outside
@pytest.mark.skipif(not is_installed("pytest-xdist", 3, 0), reason="pytest-xdist is not installed")
def test_processes_of_xdist_have_a_clock_each(run: Run) -> None:
    """The processes share nothing."""
    done = run(
        """
        @pytest.mark.parametrize("again", range(8))
        def test_blocking(ft_clock, again):
            fail_twice()
            ft_clock.advance(3_600)
            with pytest.raises(Outage):
                query()
        """,
        *("-n", "2", "-o", "ft_reset=true"),
        plugins=("xdist",),
    )

    done.assert_outcomes(passed=8)


@pytest.mark.outside
def test_the_plugin_costs_nothing_until_it_is_used() -> None:
    """It is loaded in every run of pytest, so the needs of the fixtures are loaded with the first fixture."""
    program = "import sys, faulttolerance.pytest_plugin; print('faulttolerance.testing' in sys.modules)"

    done = python(program)

    assert done.stdout.strip() == "False"


def test_the_setting_for_every_test_is_ft_autouse(run: Run) -> None:
    """Its prefix says whose setting it is, as that of ``ft_reset`` does, which stays another name."""
    done = run(LEAKING, "-o", "ft_autouse=true")

    done.assert_outcomes(passed=2)


LOOKING = """
        def test_calls(ft_clock, ft_calls, ft_events):
            calls, others = ft_calls(charge), ft_calls(query)
            with pytest.raises(Outage):
                charge()
            assert len(calls[0].attempts) == 4 and calls[0].stop == "max_retries reached"
            assert others == []
            assert [event.method for event in ft_events] == ["test_application.charge"] * 4

        def test_nothing_is_left(ft_calls, ft_events):
            assert ft_calls(charge) == ft_events == []

        @pytest.mark.parametrize("again", [1, 2])
        async def test_coroutine(ft_calls, ft_events, again):
            calls = ft_calls(charge_async)
            with faulttolerance.testing.no_wait(), pytest.raises(Outage):
                await charge_async()
            assert calls[0].delays == (20.0,) * 3
            assert len(ft_events) == 4
"""


@pytest.mark.skipif(not is_installed("pytest-asyncio", 1, 4), reason="pytest-asyncio 1.4 is not installed")
def test_a_test_looks_at_its_calls_and_events(run: Run) -> None:
    """``ft_calls`` is called with each target; ``ft_events`` is the list itself. Both end with the test."""
    done = run(LOOKING, *PYTEST_ASYNCIO, plugins=("pytest_asyncio.plugin",))

    done.assert_outcomes(passed=4)


@pytest.mark.skipif(not is_installed("anyio", 4, 0), reason="anyio is not installed")
def test_a_test_looks_at_its_calls_and_events_under_anyio(run: Run) -> None:
    """There, too, every test has another loop."""
    backend = '        anyio_backend = pytest.fixture(lambda: "asyncio")\n        pytestmark = pytest.mark.anyio\n'
    done = run(backend + LOOKING, plugins=("anyio.pytest_plugin",))

    done.assert_outcomes(passed=4)
