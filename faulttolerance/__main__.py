"""The command line, as ``faulttolerance`` and ``python -m faulttolerance``: see ``faulttolerance._command.cli``."""

from __future__ import annotations

import sys

from ._shown import install


def main() -> None:
    """Run the command line; without its extra, exit with the install command."""
    try:
        from ._command.cli import app
    except ModuleNotFoundError as error:
        sys.exit(f"the command line needs {error.name}: {install('cli')}")
    if not sys.flags.safe_path and sys.path[:1] != [""]:
        sys.path.insert(0, "")  # as ``python -m`` does: the modules to inspect are mostly in this folder
    app()


if __name__ == "__main__":
    main()
