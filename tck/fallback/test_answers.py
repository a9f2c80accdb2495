"""When a fallback is asked, and which method answers for a subclass (rule R6)."""

from __future__ import annotations

import asyncio
from unittest.mock import MagicMock

from faulttolerance import fallback
from kit import Invoke, Service


def test_fallback_is_never_run_for_a_result(invoke: Invoke) -> None:
    """R6: nor for a failure that ``skip_on`` names, nor for one that ``apply_on`` does not."""
    runs = []

    class Client(Service):
        @fallback(fallback_method="instead", apply_on=(OSError, KeyError), skip_on=KeyError)
        @invoke.body
        async def service(self, failure: type[Exception] | None) -> str:
            if failure is not None:
                raise failure
            return "served"

        @invoke.body
        async def instead(self, failure: type[Exception] | None) -> str:
            runs.append(failure)
            return "instead"

    client = Client()
    outcomes = [invoke.outcome(client.service, one) for one in (None, OSError, KeyError, ValueError)]

    assert outcomes == ["served", "instead", KeyError, ValueError]
    assert runs == [OSError]


def test_override_of_the_fallback_method_is_called(invoke: Invoke) -> None:
    """R6: the name is looked up where the guarded method is declared; the call goes to the object's own method."""

    class Base(Service):
        @fallback(fallback_method="instead")
        @invoke.body
        async def service(self) -> str:
            raise OSError

        @invoke.body
        async def instead(self) -> str:
            return "base"

    class Leaf(Base):
        @invoke.body
        async def instead(self) -> str:
            return "leaf"

    assert [invoke(cls().service) for cls in (Base, Leaf)] == ["base", "leaf"]


def test_result_that_only_looks_like_a_future_is_returned(invoke: Invoke) -> None:
    """R6: a ``MagicMock`` has every method of a future, and is none."""
    answer = MagicMock()

    class Client(Service):
        @fallback(fallback_method="instead")
        @invoke.body
        async def service(self) -> MagicMock:
            raise OSError

        @invoke.body
        async def instead(self) -> MagicMock:
            return answer

    @fallback(lambda _: answer)
    async def alone() -> MagicMock:
        raise OSError

    assert invoke(Client().service) is answer
    assert asyncio.run(alone()) is answer  # type: ignore[arg-type]
