"""Make the tables and the pictures of ``docs/explanation/overload.md`` anew; the same code gives the same page."""

from __future__ import annotations

import argparse
import time

from .page import PAGE, filled
from .pictures import PICTURES
from .tables import TABLES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tck.simulation", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"only {', '.join([*TABLES, *PICTURES])}")
    wanted = parser.parse_args().names or [*TABLES, *PICTURES]
    if unknown := set(wanted).difference(TABLES, PICTURES):
        parser.error(f"there is no {' and no '.join(sorted(unknown))}")
    changed = 0
    for name in wanted:
        began = time.process_time()
        is_new = _table(name) if name in TABLES else _picture(name)
        changed += is_new
        print(f"{name:23} {'changed' if is_new else 'as it was':10} {time.process_time() - began:6.1f} s", flush=True)
    print(f"{changed} of {len(wanted)} changed")


def _table(name: str) -> bool:
    lines = list(TABLES[name].lines())
    text, is_new = filled(PAGE.read_text(encoding="utf-8"), name, lines)
    PAGE.write_text(text, encoding="utf-8")
    return is_new


def _picture(name: str) -> bool:
    path, drawn = PAGE.with_name(name), PICTURES[name]()
    is_new = not path.exists() or path.read_text(encoding="utf-8") != drawn
    path.write_text(drawn, encoding="utf-8")
    return is_new


if __name__ == "__main__":
    main()
