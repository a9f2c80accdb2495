"""Where the application set up no logging of its own, operators see warnings and errors on standard error, once."""

from __future__ import annotations

import textwrap

import pytest

from kit.program import LIBRARY, python

pytestmark = pytest.mark.outside

OUTAGE = """
import logging
from faulttolerance import Guard
from faulttolerance.policies import CircuitBreaker, Retry

def fails():
    raise ConnectionError

def outage(name):
    circuit = CircuitBreaker(request_volume_threshold=2, failure_ratio=1.0)
    guard = Guard(name=name, circuit_breaker=circuit, retry=Retry(max_retries=1, delay=0, jitter=0))
    try:
        guard.call(fails)
    except ConnectionError:
        pass

"""
SERVERS = {
    "nothing": "pass",
    "uvicorn": "import logging.config, uvicorn.config; logging.config.dictConfig(uvicorn.config.LOGGING_CONFIG)",
    "gunicorn": "import gunicorn.config, gunicorn.glogging; gunicorn.glogging.Logger(gunicorn.config.Config())",
    "django": "import django; from django.conf import settings; settings.configure(); django.setup()",
}
APPLICATIONS = {
    "root": "logging.basicConfig()",
    "ours": "logging.getLogger('faulttolerance').addHandler(logging.StreamHandler())",
    "config": "import logging.config; logging.config.dictConfig({'version': 1, 'handlers':"
    " {'err': {'class': 'logging.StreamHandler'}}, 'root': {'handlers': ['err']}, 'disable_existing_loggers': False})",
}


def lines_of(program: str) -> list[str]:
    """Return the lines that *program* writes to standard error."""
    done = python(OUTAGE + program, after=LIBRARY)
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr.splitlines()


@pytest.mark.parametrize("server", SERVERS)
def test_an_outage_is_seen_once_under_the_logging_of_a_server(server: str) -> None:
    """The opening of the circuit and the failure of the call are shown; a server sets up only its own loggers."""
    if server != "nothing":
        pytest.importorskip(server)

    opened, gave_up = lines_of(f"{SERVERS[server]}\noutage('shop.place')")

    assert opened.startswith("shop.place: circuit breaker opened: ")
    assert gave_up.startswith("shop.place: gave up after attempt 2 in ")


@pytest.mark.parametrize("application", APPLICATIONS)
def test_no_line_is_written_twice_where_the_application_sets_up_logging(application: str) -> None:
    """The set-up may come before the library's first record or after it."""
    lines = lines_of(f"outage('early')\n{APPLICATIONS[application]}\noutage('late')")

    assert [sum(name in line for line in lines) for name in ("early: circuit", "late: circuit")] == [1, 1]
    assert len(lines) == 4


def test_a_recovery_writes_nothing() -> None:
    """A retry that helps, or a circuit that closes, writes no line on standard error."""
    program = """
        from faulttolerance.testing import virtual_time
        outcomes = iter([ConnectionError()])

        def flaky():
            for failure in outcomes:
                raise failure

        with virtual_time():
            Guard(name="shop.place", circuit_breaker=CircuitBreaker(), retry=Retry()).call(flaky)
    """
    assert lines_of(textwrap.dedent(program)) == []


def test_an_application_that_wants_silence_gets_it() -> None:
    """A handler that does nothing, or a level, silences it, as every logger."""
    lines = lines_of(
        "ours = logging.getLogger('faulttolerance')\n"
        "ours.setLevel(logging.ERROR)\noutage('by level')\nours.setLevel(logging.NOTSET)\n"
        "ours.addHandler(logging.NullHandler())\noutage('by handler')"
    )

    assert lines == []
