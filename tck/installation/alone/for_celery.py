"""Celery alone, without a broker: tasks that run where they are sent."""

from __future__ import annotations

from celery import Celery
from outage import down, guard, shown

from faulttolerance.integrations.celery import GuardedTask

app = Celery("shop", broker="memory://", backend="cache+memory://", task_cls=GuardedTask)
app.conf.task_always_eager = True
shop = guard("shop")


@app.task
def tea() -> str:
    return shop.call(lambda: "green")


@app.task
def gone() -> None:
    shop.call(down)


shown("celery", lambda: tea.delay().get(), lambda: gone.apply().state)
