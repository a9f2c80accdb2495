"""Make the tables and the pictures of ``docs/explanation/overload.md`` anew; the same code gives the same page."""

from __future__ import annotations

import time

from .page import PAGE, filled
from .pictures import PICTURES
from .tables import TABLES


def main() -> None:
    changed = []
    text = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        began = time.process_time()
        text, is_new = filled(text, name, table.lines())
        changed += [name] if is_new else []
        print(f"{name:12} {'changed' if is_new else 'as it was':10} {time.process_time() - began:6.1f} s", flush=True)
    PAGE.write_text(text, encoding="utf-8")
    for name, draw in PICTURES.items():
        path, drawn = PAGE.with_name(name), draw()
        is_new = not path.exists() or path.read_text(encoding="utf-8") != drawn
        changed += [name] if is_new else []
        path.write_text(drawn, encoding="utf-8")
        print(f"{name:23} {'changed' if is_new else 'as it was'}", flush=True)
    print(f"{len(changed)} of {len(TABLES) + len(PICTURES)} changed")


if __name__ == "__main__":
    main()
