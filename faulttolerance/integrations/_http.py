"""The common rules of HTTP clients: failing responses, repeatable requests, and the owners of circuits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from .. import Guard, RefusedException, TimeoutException, guards, remaining
from ..exceptions import Fault, raise_faults
from ..policies import CircuitBreaker, Coalesce, ExponentialBackoff, Hedge, HonorRetryAfter, PartitionBy, Retry
from ._refusals import client_exception
from ._sending import SendRecord

if TYPE_CHECKING:
    from .._extensions.keywords import GuardPolicies

STATUSES = frozenset({429, 502, 503, 504})
"""Statuses of failing responses: too many requests, and no response from behind the server that responds."""
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods with the same effect when they are sent twice (RFC 9110, 9.2.2)."""
_KEY = "Idempotency-Key"
"""The header by which a server processes each request once, whatever its method."""


class RequestRecord(SendRecord):
    """The facts about one request while its guard calls; recorded by the transport, used to veto retries.

    Args:
        request: The request.
        obstacle: As in ``SendRecord``.
    """

    def __init__(self, request: Any, obstacle: str | None) -> None:
        super().__init__(obstacle)
        self.request = request
        self.options: dict[str, Any] = {}
        """How the request is sent, beside what it says itself."""
        self.response: Any = None
        """The response of the last attempt, which has to be closed unless the caller gets it."""
        self.given: Any = None
        """The response for the caller."""

    def begin(self) -> list[Any]:
        """Record the start of an attempt; return the responses of earlier attempts, which have to be closed."""
        before, self.response = self.response, None
        self.is_running = self.is_sent = True  # until it is known that it was not: an interruption proves nothing
        return [] if before is None else [before]

    def end(self, failure: BaseException | None = None, *, is_sent: bool = True) -> None:
        """Record that the attempt is over."""
        self.is_running, self.is_sent, self.failure = False, is_sent, failure

    def left_over(self) -> list[Any]:
        """Return the responses that have to be closed, because the caller gets another one, or none."""
        return [] if self.response is None or self.response is self.given else [self.response]


class GuardedClient:
    """The common decisions of transports and adapters: guard, failing statuses, repeatable methods, failures.

    Args:
        guard: A guard; ``None``: the transport creates its own, of *name* and *policies*.
        sender: The object that sends, or ``None``.
        name: The name of its own guard.
        policies: The policies, as in ``Guard``. By default ``partition_by`` is ``PartitionBy("origin")``, and a
            ``retry`` comes with ``HonorRetryAfter(max_delay="30s")``. Without any policy: two retries after 200
            and 400 ms, give or take 100 ms, and a circuit breaker, of failures and time-outs.
        statuses: Statuses of failing responses.
        methods: Methods that may be sent again though they may have arrived.

    Raises:
        FaultToleranceDefinitionException: If one of these is something else, a guard and policies are passed, or the
            guard hedges or coalesces.
    """

    _sends: ClassVar[str]
    """The name of the sender's method that sends."""
    _failures: ClassVar[tuple[type[Exception], ...]]
    """Exceptions caused by the host or the network."""
    _mistakes: ClassVar[tuple[type[Exception], ...]]
    """The exceptions among them that the application caused."""
    _status_error: ClassVar[Any]
    """The exception for a failing response."""
    _client_error: ClassVar[type[Exception]]
    """The base of the client's exceptions."""
    _client_timeout: ClassVar[type[Exception]]
    """The base of the client's time-outs."""
    _timeout: ClassVar[type[TimeoutException]]
    _refusal: ClassVar[type[RefusedException]]

    def __init__(
        self,
        guard: Guard | None,
        sender: object,
        name: str,
        policies: GuardPolicies,
        statuses: Collection[int],
        methods: Collection[str],
    ) -> None:
        super().__init__()
        where, sends = type(self).__name__, self._sends
        faults = [*_wrong_sets(statuses, methods, where), *_wrong_guard(guard, name, policies, where)]
        if sender is not None and not callable(getattr(sender, sends, None)):
            faults.append(Fault(f"{where}(what sends)", f"is {sender!r}", sender, f"an object with `{sends}`, or None"))
        raise_faults(faults)
        self._statuses = frozenset(statuses)
        self._methods = frozenset(method.upper() for method in methods)
        self._is_own = guard is None
        if guard is None:
            failing = (*self._failures, TimeoutException)
            given: dict[str, Any] = dict(policies) or {
                "retry": Retry(max_retries=2, delay=200, jitter=100, retry_on=failing, abort_on=self._mistakes),
                "exponential_backoff": ExponentialBackoff(),
                "circuit_breaker": CircuitBreaker(fail_on=failing, skip_on=self._mistakes),
            }
            given.setdefault("partition_by", PartitionBy("origin"))
            if given.get("retry") is not None:
                given.setdefault("honor_retry_after", HonorRetryAfter(max_delay=30_000))
            guard = Guard(name=name, **given)
        self.guard = guard
        """The guard, which others may share."""

    def _is_at_hand(self, request: Any) -> bool:
        """Return whether the body of *request* can be sent again."""
        raise NotImplementedError

    def _exchange(self, attempt: Callable[..., Any], origin: str, request: Any, **options: Any) -> Any:
        """Return the response to *request*, which each *attempt* sends under the guard; close all other responses."""
        with self._recording(request) as record:
            record.options = options
            try:
                record.given = self.guard.call(attempt, origin, request)
            except Exception as failure:  # noqa: BLE001  # it is raised again
                record.given = self._response_after(failure, record)
            finally:
                self._close_all(record.left_over())
            return record.given

    @staticmethod
    def _close_all(several: Iterable[Any]) -> None:
        """Close responses or connections that nobody reads; an error does not concern the caller."""
        for one in several:
            with suppress(Exception):
                one.close()

    def _recording(self, request: Any) -> Any:
        """Return a block that records *request* while its guard is called."""
        method = (request.method or "").upper()
        obstacle = None
        if not self._is_at_hand(request):
            obstacle = "the body of the request can be read only once"
        elif method not in self._methods and _KEY not in request.headers:
            obstacle = f"a {method} without {_KEY} may have been done already"
        return RequestRecord(request, obstacle).current()

    def _response_after(self, failure: Any, record: RequestRecord) -> Any:
        """Return the response that *failure* is about; raise any other failure as users of the client catch it."""
        ours = failure
        if isinstance(ours, self._client_timeout) and remaining() == 0.0:
            ours = TimeoutException("the deadline of an enclosing call passed")  # its rest was the client's time-out
        if isinstance(failure, self._status_error) and failure.response is not None:
            if failure.response is record.response:
                return failure.response
        elif isinstance(ours, (TimeoutException, RefusedException)) and not isinstance(ours, self._client_error):
            raised: Any = client_exception(ours, self._timeout, self._refusal)
            raised.request = record.request
            raise raised from failure
        raise failure

    def _release(self) -> None:
        """Release the name of a guard of its own."""
        if self._is_own:
            self.guard.close()


def _wrong_guard(guard: object, name: str, policies: GuardPolicies, where: str) -> Iterator[Fault]:
    kinds: Collection[type] = [type(policy) for policy in policies.values()]
    if isinstance(guard, Guard):
        if name or policies:
            given = ["name"] * bool(name) + [*policies]
            yield Fault(where, f"got a guard, and also {', '.join(given)}", given, "a guard or the others")
        kinds = [type(policy) for one in guards(guard.name) if one.method is guard for policy in one.policies]
    elif guard is not None:
        yield Fault(f"{where}(guard)", f"is {guard!r}", guard, "a Guard, or policies by name, such as retry=Retry(...)")
    if Hedge in kinds:
        yield Fault(f"{where}(hedge)", "would send a request twice that may be sent only once", allowed="none")
    if Coalesce in kinds:
        yield Fault(f"{where}(coalesce)", "would share a response that only one caller can read", allowed="none")


def _wrong_sets(statuses: Any, methods: object, where: str) -> Iterator[Fault]:
    if not (_is_set(statuses, int) and all(100 <= status <= 599 for status in statuses)):
        yield Fault(f"{where}(statuses)", f"is {statuses!r}", statuses, "a set of numbers from 100 to 599")
    if not _is_set(methods, str):
        yield Fault(f"{where}(methods)", f"is {methods!r}", methods, "a set of names, such as GET")


def _is_set(values: object, kind: type) -> bool:
    return isinstance(values, Collection) and not isinstance(values, str) and all(type(one) is kind for one in values)


def origin_of(scheme: str, host: str, port: int | None) -> str:
    """Return the origin, as ``https://shop.example`` or ``http://10.0.0.7:8080``; the usual port is omitted."""
    scheme, host = scheme.lower(), host.lower()
    shown = f"[{host}]" if ":" in host else host
    is_usual = port is None or (scheme, port) in (("http", 80), ("https", 443))
    return f"{scheme}://{shown}" if is_usual else f"{scheme}://{shown}:{port}"
