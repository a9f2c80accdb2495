"""``python -m faulttolerance``: see ``faulttolerance.cli``."""

from __future__ import annotations

import sys

try:
    from .cli import app, end_output
except ImportError as error:
    sys.exit(f"the command line needs {error.name}: pip install 'faulttolerance[cli]'")

if __name__ == "__main__":
    try:
        app()
    finally:
        end_output()
