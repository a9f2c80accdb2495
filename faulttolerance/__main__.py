"""The command line, as ``faulttolerance`` and ``python -m faulttolerance``: see ``faulttolerance._command.cli``."""

from __future__ import annotations

import sys

from ._shown import install


def main() -> None:
    """Run the command line; without its extra, say what to install."""
    try:
        from ._command.cli import app, end_output
    except ImportError as error:
        sys.exit(f"the command line needs {error.name}: {install('cli')}")
    if not sys.flags.safe_path and sys.path[:1] != [""]:
        sys.path.insert(0, "")  # as for ``python -m``: the modules to look at are mostly those of this folder
    try:
        app()
    finally:
        end_output()


if __name__ == "__main__":
    main()
