"""The exceptions of the guarded bodies of the tests."""

from __future__ import annotations

__all__ = ["E0", "E0S", "E1", "E1S", "E2", "E2S", "Error", "TestException"]


class TestException(RuntimeError):
    """The failure of a service; no exception of the library, and no ``OSError``."""

    __test__ = False  # the name says test, yet pytest finds none in it

    def __init__(self, text: str = "") -> None:
        super().__init__(f"Test Exception - {text}" if text else "Test Exception")


class E0(Exception):
    """The top of a line of three; each has a subclass beside the line, whose name ends in S."""


class E1(E0):
    """The middle of the line."""


class E2(E1):
    """The end of the line."""


class E0S(E0):
    """Beside E1."""


class E1S(E1):
    """Beside E2."""


class E2S(E2):
    """Below E2."""


class Error(BaseException):
    """The counterpart of ``java.lang.Error``: no ``Exception``, and no control flow of Python's own either."""
