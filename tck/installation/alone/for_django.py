"""Django alone, with its own default logging: an answer, a failure, and 503 while the circuit is open."""

from __future__ import annotations

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from outage import down, guard, shown

from faulttolerance.integrations.django import install

settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["faulttolerance.integrations.django.FaultToleranceMiddleware"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()
install()
shop = guard("shop")


def tea(request: HttpRequest) -> HttpResponse:
    return HttpResponse(shop.call(lambda: "green"))


def gone(request: HttpRequest) -> HttpResponse:
    try:
        return HttpResponse(shop.call(down))
    except ConnectionError:
        return HttpResponse("failed")


urlpatterns = [path("tea", tea), path("gone", gone)]
client = Client()
shown("django", lambda: client.get("/tea").content or None, lambda: client.get("/gone").status_code, after=503)
