"""The same traffic twice, at once: through the guarded service, and through the same methods without their guards."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from history import History
from service import Storefront

from faulttolerance import Future


@dataclass(frozen=True)
class Kind:
    """Calls of one method of the service."""

    method: str
    per_second: float
    argument: Callable[[int], Any]
    """The argument of the n-th call."""
    awaited: bool = False
    """Whether it is a coroutine function."""


READS = (
    Kind("product", 20, lambda n: n % 50),
    Kind("stock", 20, lambda n: n % 50, awaited=True),
    Kind("recommendations", 20, lambda n: n, awaited=True),
)
WRITES = (
    Kind("order", 5, lambda n: f"{n}"),
    Kind("mail", 5, lambda n: f"{n}"),
)
KINDS = (*READS, *WRITES)


@dataclass
class Record:
    """How the calls of one method went, seen from outside."""

    seconds: list[float] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    answered: int = 0
    """How many were answered within a second."""
    keys: set[str] = field(default_factory=set)
    """What was confirmed, of writes."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def add(self, seconds: float, error: BaseException | None, *, in_time: bool, key: str = "") -> None:
        """Note one call. From any thread."""
        with self._lock:
            self.seconds.append(seconds)
            self.answered += in_time
            if error is not None:
                self.errors.append(error)
            elif key:
                self.keys.add(key)

    @property
    def calls(self) -> int:
        return len(self.seconds)

    @property
    def error_rate(self) -> float:
        return len(self.errors) / max(1, self.calls)

    @property
    def share(self) -> float:
        """The part that was answered within a second."""
        return self.answered / max(1, self.calls)

    def percentile(self, percent: float) -> float:
        """Seconds within which that part of the calls was over, whether well or not."""
        with self._lock:
            ordered = sorted(self.seconds)
        return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0.0


def together(records: Iterator[Record]) -> Record:
    """The sum of several records."""
    whole = Record()
    for one in records:
        whole.seconds += one.seconds
        whole.errors += one.errors
        whole.answered += one.answered
        whole.keys |= one.keys
    return whole


class Traffic:
    """Customers who come at a steady rate, whether or not those before them were served."""

    def __init__(self, backend: str, *, guarded: bool, kinds: tuple[Kind, ...] = KINDS) -> None:
        self.name = "guarded" if guarded else "unguarded"
        self.kinds = kinds
        self.records = {kind.method: Record() for kind in KINDS}
        self.history = History()
        self._backend = backend
        self._guarded = guarded
        self._thread = threading.Thread(target=self._run, name=self.name)
        self._begin = self._end = 0.0
        self._share = 1.0

    def start(self, begin: float, seconds: float, share: float = 1.0) -> None:
        """Let customers come from *begin* (on the monotonic clock) for *seconds*; a *share* of the usual number."""
        self._begin, self._end, self._share = begin, begin + seconds, share
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether all customers were served."""
        return not self._thread.is_alive()

    def over(self, *kinds: Kind) -> Record:
        """How the calls of these kinds went, together."""
        return together(self.records[kind.method] for kind in kinds)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        shop = Storefront(self._backend)
        with ThreadPoolExecutor(max_workers=64, thread_name_prefix=self.name) as threads:
            async with asyncio.TaskGroup() as customers:
                for kind in self.kinds:
                    customers.create_task(self._arrive(customers, threads, shop, kind))
        await shop.aclose()
        shop.close()

    def _method(self, kind: Kind) -> Callable[[Storefront, Any], Any]:
        method = getattr(Storefront, kind.method)
        return method if self._guarded else inspect.unwrap(method)  # type: ignore[no-any-return]

    async def _arrive(
        self, customers: asyncio.TaskGroup, threads: ThreadPoolExecutor, shop: Storefront, kind: Kind
    ) -> None:
        call = self._method(kind)
        loop = asyncio.get_running_loop()
        per_second = kind.per_second * self._share
        for number in range(int((self._end - self._begin) * per_second)):
            await asyncio.sleep(self._begin + number / per_second - time.monotonic())
            began = time.monotonic()
            self.history.come(began - self._begin)
            argument = kind.argument(number)
            if isinstance(argument, str):
                argument = f"{self.name}-{argument}"
            if kind.awaited:
                customers.create_task(self._await(kind, call(shop, argument), began))
            else:
                loop.run_in_executor(threads, self._call, kind, call, shop, argument, began)

    async def _await(self, kind: Kind, call: Coroutine[Any, Any, Any], began: float) -> None:
        error: Exception | None = None
        try:
            await call
        except Exception as failure:  # noqa: BLE001 -- whatever it is, the customer was not served
            error = failure
        self._note(kind, began, error)

    def _call(self, kind: Kind, call: Callable[..., Any], shop: Storefront, argument: Any, began: float) -> None:
        error: Exception | None = None
        try:
            result = call(shop, argument)
            if isinstance(result, Future):
                result.result()
        except Exception as failure:  # noqa: BLE001 -- as above
            error = failure
        self._note(kind, began, error, argument if isinstance(argument, str) else "")

    def _note(self, kind: Kind, began: float, error: Exception | None, key: str = "") -> None:
        seconds = time.monotonic() - began
        in_time = self.history.end(began - self._begin, seconds, error)
        self.records[kind.method].add(seconds, error, in_time=in_time, key=key)
