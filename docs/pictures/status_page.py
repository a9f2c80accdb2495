"""Take the pictures of the status page anew, in Chromium without a window, of a shop in the middle of an outage.

    python docs/pictures/status_page.py

The shop lives in virtual time, so that the same picture is taken each time.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tck")]

import shop  # noqa: E402

from faulttolerance.testing import virtual_time  # noqa: E402
from faulttolerance.web import reading, wsgi_app  # noqa: E402
from kit.browser import browser  # noqa: E402
from kit.web import served_by_wsgiref  # noqa: E402

MOST_BYTES = 150 * 1024
"""Of one picture."""

PROCESS = {
    "pid": 4711,
    "host": "shop-7d9f",
    "started": "2026-11-23T08:00:00+00:00",
    "now": "2026-11-23T09:14:32+00:00",
}


def main() -> None:
    reading.process = PROCESS.copy
    application = wsgi_app(critical="shop.Payments.charge", title="Shop", authorize=lambda request: "alice")
    with (
        virtual_time(seed=7) as clock,
        served_by_wsgiref(application) as address,
        browser(1280, 800, "--font-render-hinting=none") as page,
    ):
        shop.open_for_business(clock)
        for name, path, scheme, width, height in (
            ("light", "", "light", 1280, 940),
            ("dark", "", "dark", 1280, 940),
            ("guard", "guards/shop.Payments.charge", "light", 1280, 940),
            ("narrow", "", "light", 360, 800),
        ):
            page.show(width, height)
            page.prefer(scheme)
            page.open(f"{address}/{path}")
            taken = page.picture(HERE / f"status-page-{name}.png")
            assert not page.complaints()
            assert len(taken) <= MOST_BYTES, f"{name}: {len(taken)} bytes"
            print(name, len(taken))


if __name__ == "__main__":
    main()
