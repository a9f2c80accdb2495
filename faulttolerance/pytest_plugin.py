"""Fixtures for the tests of applications; pytest finds them by its entry point.

``ft_clock`` lets time pass at once, ``ft_reset`` forgets what earlier tests left behind, ``ft_configured`` sets
configuration keys. With ``ft_reset = true`` in pytest's configuration every test begins as if no guard had been used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .testing import VirtualClock

# What the fixtures need is imported when a test asks for them: this module is loaded in every run of pytest.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings in pytest's configuration."""
    parser.addini("ft_reset", "use the fixture ft_reset in every test", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and reset around every test where that is wanted."""
    config.addinivalue_line("markers", "ft_clock(seed): where the jitter under the fixture ft_clock comes from")
    if config.getini("ft_reset"):
        config.pluginmanager.register(_ResetAroundEveryTest(), "faulttolerance-reset")


class _ResetAroundEveryTest:
    @pytest.fixture(autouse=True)
    def _ft_reset_around_every_test(self, ft_reset: None) -> None:
        """Use ``ft_reset``, as the setting ``ft_reset`` asks."""


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

    ``@pytest.mark.ft_clock(seed=7)`` chooses the jitter. Coroutines run by ``ft_clock.run(main())``; loops that a test
    framework makes follow the clock where it makes them by ``faulttolerance.testing.loop_factory``.
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
