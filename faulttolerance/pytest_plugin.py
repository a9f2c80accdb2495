"""Fixtures for the tests of applications; pytest finds them by its entry point.

``ft_clock`` skips delays without waiting, ``ft_reset`` removes the state that earlier tests left, ``ft_configured``
sets configuration keys, ``ft_calls`` records calls, and ``ft_events`` records events. With ``ft_autouse = true`` in
pytest's configuration, every test starts as if no guard had been used.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from ._event import Event
    from .testing import RecordedCall, VirtualClock

# The imports for fixtures happen when a test uses them: this module is loaded in every run of pytest.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings in pytest's configuration."""
    parser.addini("ft_autouse", "use the fixture ft_reset in every test", type="bool", default=False)
    parser.addini("ft_reset", "another name of ft_autouse", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and reset around every test if the setting requests it."""
    config.addinivalue_line("markers", "ft_clock(seed): the seed of the jitter under the fixture ft_clock")
    if config.getini("ft_autouse") or config.getini("ft_reset"):
        config.pluginmanager.register(_ResetAroundEveryTest(), "faulttolerance-reset")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Set a loop factory that follows ``ft_clock`` for anyio, unless the ``anyio_backend`` fixture sets one."""
    arguments = pyfuncitem.funcargs
    if "ft_clock" in arguments and arguments.get("anyio_backend"):
        arguments["anyio_backend"] = _with_loop_factory(arguments["anyio_backend"])
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Do the same for a coroutine fixture, if the first one makes the loop, and for the runner of pytest-asyncio.

    The runner is that of one test: other tests share those of wider scopes. The hook ``pytest_asyncio_loop_factories``
    is not used, because pytest-asyncio then makes all runners and coroutine fixtures again, for this test and the next.
    """
    run: Callable[..., Any] = fixturedef.func
    if "ft_clock" not in request.fixturenames:
        return (yield)
    if fixturedef.argname == "_function_scoped_runner" and "_asyncio_loop_factory" in fixturedef.argnames:
        name = "_asyncio_loop_factory"
    elif getattr(run, "__module__", "") == "anyio.pytest_plugin" and isgeneratorfunction(run):
        name = "anyio_backend"  # anyio has replaced the functions of those that it runs by generators
    else:
        return (yield)

    def run_with_loop_factory(**arguments: Any) -> Iterator[Any]:
        yield from run(**{**arguments, name: _with_loop_factory(arguments[name])})

    definition: Any = fixturedef
    definition.func = run_with_loop_factory
    try:
        return (yield)
    finally:
        definition.func = run


def _with_loop_factory(chosen: object) -> object:
    """Return an ``anyio_backend`` or loop factory that follows the clock, or *chosen* if it names a loop factory."""
    if chosen is not None and not isinstance(chosen, (str, tuple)):
        return chosen
    from .testing.active_clock import loop_factory

    if chosen is None:
        return loop_factory
    name, options = (chosen, {}) if isinstance(chosen, str) else cast("tuple[str, dict[str, Any]]", chosen)
    return (name, {"loop_factory": loop_factory, **options}) if name == "asyncio" else chosen


class _ResetAroundEveryTest:
    @pytest.fixture(autouse=True)
    def _ft_reset_around_every_test(self, ft_reset: None) -> None:
        """Use ``ft_reset``, as the setting ``ft_autouse`` requests."""


@pytest.fixture
def ft_reset() -> Iterator[None]:
    """Reset the state of guards, values from ``configure(...)`` and listeners, before and after the test.

    Circuits are closed, bulkheads empty, rate windows and counts at zero; declarations stay. A test sets the
    configuration that it needs itself, or by ``ft_configured``.
    """
    from .testing import reset

    reset()
    yield
    reset()


@pytest.fixture
def ft_clock(request: pytest.FixtureRequest) -> Iterator[VirtualClock]:
    """Skip delays and deadlines without waiting; ``ft_clock.advance(seconds)`` advances the time.

    ``@pytest.mark.ft_clock(seed=7)`` chooses the jitter. ``ft_clock.run(main())`` runs coroutines; tests that are
    coroutines run on a loop that follows the clock, if pytest-asyncio 1.4 or anyio runs them.
    """
    from .testing import virtual_time

    marker = request.node.get_closest_marker("ft_clock")
    with virtual_time(*marker.args, **marker.kwargs) if marker is not None else virtual_time() as clock:
        yield clock


@pytest.fixture
def ft_configured() -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Set configuration keys until the test ends: ``ft_configured({"Retry/delay": 0})``, as often as needed."""
    from .testing import configured

    with ExitStack() as until_the_test_is_over:
        yield lambda properties: until_the_test_is_over.enter_context(configured(properties))


@pytest.fixture
def ft_events() -> Iterator[list[Event]]:
    """Yield the list of events of the guards until the test ends, in their order."""
    from .testing import captured_events

    with captured_events() as events:
        yield events


@pytest.fixture
def ft_calls() -> Iterator[Callable[[Any], list[RecordedCall]]]:
    """Record the calls of each target that is passed to it, until the test ends.

    ``calls = ft_calls(Client.charge)`` is a list of ``RecordedCall`` that grows with each call.
    """
    from .testing import recorded

    with ExitStack() as until_the_test_is_over:
        yield lambda target: until_the_test_is_over.enter_context(recorded(target))
