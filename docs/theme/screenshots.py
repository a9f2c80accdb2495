"""Pictures of the site as readers see it, for whoever changes its looks: `python docs/theme/screenshots.py [page ...]`.

It builds the site, opens each page in Chromium at the width of a desktop and of a telephone, light and dark, and
leaves the pictures in `build/screenshots/`. The exit status is 1 where the console complains, or a page is too wide.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SITE, PICTURES = ROOT / "build" / "site", ROOT / "build" / "screenshots"
PAGES = [
    "",
    "tutorial/first-service/",
    "reference/retry/",
    "api/",
    "explanation/overload/",
    "explanation/architecture/",
]
WINDOWS = [(1280, 900), (390, 844)]

sys.path.insert(0, str(ROOT / "tck"))
from kit.browser import Browser, browser  # noqa: E402 -- the tests' own


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def main(pages: list[str]) -> int:
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet"], cwd=ROOT, check=True)
    PICTURES.mkdir(parents=True, exist_ok=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(SITE))) as server, browser() as window:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        faults = [fault for page in pages for fault in taken(window, server.server_port, page)]
        server.shutdown()
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def taken(window: Browser, port: int, page: str) -> list[str]:
    """Take the pictures of one *page*; what is wrong with it."""
    faults = []
    for width, height in WINDOWS:
        for scheme in ("light", "dark"):
            window.show(width, height)
            window.prefer(scheme)
            window.open(f"http://127.0.0.1:{port}/{page}")
            file = PICTURES / f"{page.strip('/').replace('/', '-') or 'index'}-{width}-{scheme}.png"
            window.picture(file)
            print(file.relative_to(ROOT))
            faults += [f"{page}: {complaint}" for complaint in window.complaints()]
            if window.run("return document.documentElement.scrollWidth") > width:
                faults.append(f"{page}: wider than {width} pixels")
    return faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or PAGES))
