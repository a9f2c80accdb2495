"""Write down what guarding costs on this version of Python, for ``tck/house/test_cost.py`` to compare with.

``python -m benchmarks.record`` does it anew, where a figure has to grow, or has become smaller.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
KINDS = ("instructions", "memory")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}{getattr(sys, 'abiflags', '')}"  # 3.13t is another one


def main() -> None:
    for kind in KINDS:
        counts = json.loads(
            subprocess.run([sys.executable, HERE / f"{kind}.py"], check=True, stdout=subprocess.PIPE).stdout
        )
        file = HERE / f"{kind}.json"
        recorded = json.loads(file.read_text(encoding="utf-8"))
        text = json.dumps({**recorded, VERSION: counts}, indent=2, sort_keys=True)
        file.write_text(f"{text}\n", encoding="utf-8")
        print(f"{kind}: {counts}")


if __name__ == "__main__":
    main()
