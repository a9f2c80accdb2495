"""Fixtures for the tests of applications; pytest finds them by its entry point.

``ft_clock`` lets time pass at once, ``ft_reset`` forgets what earlier tests left behind, ``ft_configured`` sets
configuration keys, ``ft_calls`` writes down what calls do and ``ft_events`` what is told of them. With ``ft_autouse =
true`` in pytest's configuration every test begins as if no guard had been used.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ._event import Event
    from .testing import RecordedCall, VirtualClock

# What the fixtures need is imported when a test asks for them: this module is loaded in every run of pytest.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings in pytest's configuration."""
    parser.addini("ft_autouse", "use the fixture ft_reset in every test", type="bool", default=False)
    parser.addini("ft_reset", "another name of ft_autouse", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and reset around every test where that is wanted."""
    config.addinivalue_line("markers", "ft_clock(seed): where the jitter under the fixture ft_clock comes from")
    if config.getini("ft_autouse") or config.getini("ft_reset"):
        config.pluginmanager.register(_ResetAroundEveryTest(), "faulttolerance-reset")


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """Let pytest-asyncio make a loop that follows ``ft_clock``, where nobody else says how to make loops."""
    hook = getattr(metafunc.config.hook, "pytest_asyncio_loop_factories", None)
    if hook is None or "ft_clock" not in metafunc.fixturenames or hook.get_hookimpls():
        return (yield)
    # Once it is known to the hook, pytest-asyncio asks for a factory for every test; so it is for this one only.
    factories = _LoopFactories()
    metafunc.config.pluginmanager.register(factories)
    try:
        return (yield)
    finally:
        metafunc.config.pluginmanager.unregister(factories)


class _LoopFactories:
    def pytest_asyncio_loop_factories(self) -> dict[str, Callable[[], AbstractEventLoop]]:
        from .testing import loop_factory

        return {"virtual": loop_factory}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Let anyio make a loop that follows ``ft_clock``, where its fixture does not say how to make one."""
    arguments = pyfuncitem.funcargs
    backend = arguments.get("anyio_backend")
    if "ft_clock" in arguments and backend:
        name, options = (backend, {}) if isinstance(backend, str) else cast("tuple[str, dict[str, Any]]", backend)
        if name == "asyncio":
            from .testing import loop_factory

            arguments["anyio_backend"] = name, {"loop_factory": loop_factory, **options}
    return (yield)


class _ResetAroundEveryTest:
    @pytest.fixture(autouse=True)
    def _ft_reset_around_every_test(self, ft_reset: None) -> None:
        """Use ``ft_reset``, as the setting ``ft_autouse`` asks."""


@pytest.fixture
def ft_reset() -> Iterator[None]:
    """Forget before and after the test what guards remember, values given to ``configure(...)``, and listeners.

    Circuits are closed, bulkheads empty, rate windows and counts at zero; declarations stay. What a test wants to have
    configured it sets itself, or by ``ft_configured``.
    """
    from .testing import reset

    reset()
    yield
    reset()


@pytest.fixture
def ft_clock(request: pytest.FixtureRequest) -> Iterator[VirtualClock]:
    """Let delays and deadlines pass at once; ``ft_clock.advance(seconds)`` moves time on.

    ``@pytest.mark.ft_clock(seed=7)`` chooses the jitter. Coroutines run by ``ft_clock.run(main())``; tests that are
    coroutines run on a loop that follows the clock, where pytest-asyncio 1.4 or anyio runs them.
    """
    from .testing import virtual_time

    marker = request.node.get_closest_marker("ft_clock")
    with virtual_time(*marker.args, **marker.kwargs) if marker is not None else virtual_time() as clock:
        yield clock


@pytest.fixture
def ft_configured() -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Set configuration keys until the test is over: ``ft_configured({"Retry/delay": 0})``, as often as needed."""
    from .testing import configured

    with ExitStack() as until_the_test_is_over:

        def configure(properties: Mapping[str, Any]) -> None:
            until_the_test_is_over.enter_context(configured(properties))

        yield configure


@pytest.fixture
def ft_events() -> Iterator[list[Event]]:
    """The events that guards tell until the test is over, in the order in which they happen."""
    from .testing import captured_events

    with captured_events() as events:
        yield events


@pytest.fixture
def ft_calls() -> Iterator[Callable[[Any], list[RecordedCall]]]:
    """Write down the calls of each target that it is given, until the test is over.

    ``calls = ft_calls(Client.charge)`` is a list of ``RecordedCall`` that grows with each call.
    """
    from .testing import recorded

    with ExitStack() as until_the_test_is_over:

        def calls_of(target: Any) -> list[RecordedCall]:
            return until_the_test_is_over.enter_context(recorded(target))

        yield calls_of
