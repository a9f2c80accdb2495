"""No retry inside an ``atomic`` block, with Django itself, which owns a process of its own here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit.program import QUIET, output_of

pytestmark = pytest.mark.outside

pytest.importorskip("django")

SETTINGS = """if True:
    import json, sys, threading, unittest
    import django
    from django.conf import settings
    files = {alias: {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{sys.argv[1]}/{alias}.db"}
             for alias in ("default", "audit")}
    settings.configure(DATABASES=files)
    django.setup()
    from django.db import Error, OperationalError, connection, connections, transaction
    from faulttolerance import FaultToleranceDefinitionException, Guard, retry
    from faulttolerance.policies import Retry
    from faulttolerance.integrations.django import install

    found = {}
    THREE = Retry(max_retries=3, delay=0, jitter=0)

    def fails(using="default"):
        connections[using].cursor().execute("select nothing from nowhere")

    def attempts_of(body, *args, name="", retry=THREE):
        attempts = []
        def attempt():
            attempts.append(1)
            body(*args)
        try:
            Guard(retry=retry).call(attempt)
        except Exception as failure:
            note = getattr(failure, "__notes__", [""])[-1].partition("no more, because ")[2]
            found[name] = [len(attempts), type(failure).__name__, note]
        else:
            found[name] = [len(attempts), "", ""]
"""

OPEN = (
    "an atomic block of Django is open, and another attempt would run inside it: "
    "retry around the transaction, not inside it"
)
OUT = "max_retries reached"


def found_by(program: str, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        output_of(QUIET + SETTINGS + program + "\n    print(json.dumps(found))", arguments=(str(folder),))
    )
    return found


def test_nothing_is_retried_inside_an_atomic_block(tmp_path: Path) -> None:
    """This holds for any database, in nested blocks and in savepoints; an attempt around the block is retried."""
    found = found_by(
        """
    with transaction.atomic():
        attempts_of(fails, name="before it was said")
    install()
    install()
    attempts_of(fails, name="without")
    try:
        with transaction.atomic():
            attempts_of(fails, name="inside")
            attempts_of(connection.cursor, name="nothing to retry")
            found["rolls back"] = connection.needs_rollback
    except Error:
        pass
    with transaction.atomic(using="audit"):
        attempts_of(fails, name="of another database")
    with transaction.atomic():
        attempts_of(transaction.atomic(fails), name="savepoint")
        with transaction.atomic():
            attempts_of(transaction.atomic(fails), name="nested")
        thread = threading.Thread(target=attempts_of, args=(fails,), kwargs={"name": "on another thread"})
        thread.start()
        thread.join()
    attempts_of(transaction.atomic(fails), name="around")

    def leaves_open():
        transaction.atomic().__enter__()
        fails()
    attempts_of(leaves_open, name="left open")
        """,
        tmp_path,
    )

    assert found == {
        "before it was said": [4, "OperationalError", OUT],
        "without": [4, "OperationalError", OUT],
        "inside": [1, "OperationalError", OPEN],
        "nothing to retry": [1, "", ""],
        "rolls back": False,
        "of another database": [1, "OperationalError", OPEN],
        "savepoint": [1, "OperationalError", OPEN],
        "nested": [1, "OperationalError", OPEN],
        "on another thread": [4, "OperationalError", OUT],
        "around": [4, "OperationalError", OUT],
        "left open": [1, "OperationalError", OPEN],
    }


def test_an_atomic_block_of_a_test_does_not_count_and_control_flow_passes(tmp_path: Path) -> None:
    """``TestCase`` puts each test in one; code that is retried in production is retried in tests."""
    found = found_by(
        """
    from django.test import TestCase
    install(no_retry_on=(Error, LookupError))

    class Tests(TestCase):
        databases = {"default", "audit"}
        def test_it(self):
            attempts_of(lambda: {}["no"], name="in a test")
            with transaction.atomic():
                attempts_of(lambda: {}["no"], name="in a block in a test")
                attempts_of(lambda: 1 / 0, name="of something else")

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Tests).run(result)
    assert result.wasSuccessful(), result.errors + result.failures

    def interrupts():
        raise KeyboardInterrupt
    try:
        with transaction.atomic():
            connection.cursor().execute("create table gone (number integer)")
            attempts_of(interrupts)
    except KeyboardInterrupt:
        found["interrupted"] = connection.introspection.table_names()
    try:
        install(no_retry_on=3)
    except FaultToleranceDefinitionException as error:
        found["refused"] = str(error)
        """,
        tmp_path,
    )

    assert found == {
        "in a test": [4, "KeyError", OUT],
        "in a block in a test": [1, "KeyError", OPEN],
        "of something else": [4, "ZeroDivisionError", OUT],
        "interrupted": [],
        "refused": found["refused"],
    }
    assert found["refused"].startswith("install(no_retry_on) is 3; allowed: an exception class")
