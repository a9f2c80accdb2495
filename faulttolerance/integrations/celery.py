"""Tasks of Celery that the broker delivers again when a guard refuses their call, and that know their time limit.

>>> from celery import Celery
>>> from faulttolerance.integrations.celery import GuardedTask
>>> app = Celery("shop", task_cls=GuardedTask)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from celery import Task  # type: ignore[import-untyped]
from celery.exceptions import SoftTimeLimitExceeded, TaskPredicate  # type: ignore[import-untyped]
from celery.signals import celeryd_init  # type: ignore[import-untyped]
from celery.utils.time import get_exponential_backoff_interval  # type: ignore[import-untyped]

from .. import RefusedException, veto_retries
from ..exceptions import definition_error
from ._inbound import deadline_block
from ._refusals import LONGEST_WAIT

__all__ = ["GuardedTask"]

_EARLIER = 0.25
"""The time from the deadline to the soft time limit, as a part of the limit; at most a second."""
_RUNS = "faulttolerance_runs"
"""The attribute of a request whose task runs."""


class GuardedTask(Task):  # type: ignore[misc]
    """A base of tasks: ``Celery(task_cls=GuardedTask)``, or ``@app.task(base=GuardedTask)``.

    When a task raises a refusal, as of an open circuit, a rate limit or a full bulkhead, Celery delivers the task
    again, and no worker waits for that: after the refusal's ``retry_after``, where it has one, else after
    ``refused_delay``, and up to 1, 2, 4, ... seconds later by chance. After ``max_retries`` of the task, 3 by default,
    the refusal is its failure. A task that is called as a function raises the refusal.

    Under a worker, a task with a soft time limit has a deadline a quarter of it earlier, at most a second: guarded
    calls end by it, nothing is retried beyond it, and the task fails with ``TimeoutException``. This holds in pools of
    threads as well, which know no soft time limit. In a pool of processes ``SoftTimeLimitExceeded`` follows where
    nothing was interrupted; it comes after a deadline, so it is no failure of any callee, and no fallback replaces it.
    """

    abstract = True

    refused_delay: float = 1.0
    """The seconds until the next delivery, where a refusal does not state them."""
    refused_jitter_max: int = 60
    """The most seconds by which a delivery is later than that."""
    deadline_at_soft_time_limit: bool = True
    """Whether the soft time limit is a deadline; not for a task that handles ``SoftTimeLimitExceeded`` itself."""
    dont_autoretry_for = (RefusedException,)

    def __init_subclass__(cls, **options: Any) -> None:
        """Check the class of a task: the first refusal, perhaps months later, would be the failure of the task."""
        super().__init_subclass__(**options)
        for name, kind, whole in ("refused_delay", int | float, ""), ("refused_jitter_max", int, "whole "):
            value: Any = getattr(cls, name)
            if not (hasattr(value, "__get__") or (isinstance(value, kind) and value >= 0)):
                raise definition_error(f"{cls.__name__}.{name}", f"is {value!r}", value, f"{whole}seconds >= 0")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task."""
        request = self.request
        if request.called_directly or getattr(request, _RUNS, False):  # the latter is a call by the task itself
            return super().__call__(*args, **kwargs)
        setattr(request, _RUNS, True)
        try:
            with self._deadline():
                return self.run(*args, **kwargs)
        except RefusedException as refusal:
            later = get_exponential_backoff_interval(1, self.request.retries, self.refused_jitter_max, True)
            wait = self.refused_delay if refusal.retry_after is None else min(refusal.retry_after, LONGEST_WAIT)
            raise self.retry(exc=refusal, countdown=wait + later) from refusal

    def _deadline(self) -> Any:
        _, limit = self.request.timelimit or (None, None)
        limit = limit or self.soft_time_limit or self.app.conf.task_soft_time_limit
        if not limit or not self.deadline_at_soft_time_limit or self.request.is_eager:
            return nullcontext()
        return deadline_block(limit - min(1.0, limit * _EARLIER), self.name or "")


@celeryd_init.connect  # type: ignore[untyped-decorator]
def _set_option(conf: Any, options: Mapping[str, Any], **_: object) -> None:
    """Pass the option ``--soft-time-limit`` of a worker to its tasks; Celery passes it to the pool alone."""
    conf.task_soft_time_limit = options.get("soft_time_limit") or conf.task_soft_time_limit


def _veto(failure: BaseException) -> str | None:
    """Veto retries after Celery's control exceptions, which are no failures of the task's callees."""
    return "Celery decides on the task" if isinstance(failure, (SoftTimeLimitExceeded, TaskPredicate)) else None


veto_retries(_veto)
