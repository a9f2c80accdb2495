"""Build what is uploaded into `dist/`, twice, and refuse what a user would not want.

    nox -s release

The second time it is built from the unpacked source distribution, elsewhere: where that gives other bytes, something of
this machine got in. The date of all files in them is `SOURCE_DATE_EPOCH`, or one that never changes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as elsewhere:
        build(ROOT, DIST)
        source = next(DIST.glob("*.tar.gz"))
        with tarfile.open(source) as archive:
            archive.extractall(elsewhere, filter="data")
        build(Path(elsewhere) / source.name.removesuffix(".tar.gz"), Path(elsewhere) / "dist")
        faults = differences(DIST, Path(elsewhere) / "dist")
    faults += [f"the wheel lacks {name}" for name in sorted(files_of_the_package() - packed(next(DIST.glob("*.whl"))))]
    for fault in faults:
        print(fault, file=sys.stderr)
    if not faults:
        print(
            *(f"{path.relative_to(ROOT)}, {path.stat().st_size:,} bytes" for path in sorted(DIST.iterdir())), sep="\n"
        )
    return 1 if faults else subprocess.call([sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir()])


def build(tree: Path, into: Path) -> None:
    """Make source distribution and wheel of a *tree*, each from its files."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel", "--outdir", into, tree]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def differences(first: Path, second: Path) -> list[str]:
    names = sorted({path.name for folder in (first, second) for path in folder.iterdir()})
    return [
        f"{name} has other bytes when it is built elsewhere"
        for name in names
        if not all((folder / name).is_file() for folder in (first, second))
        or (first / name).read_bytes() != (second / name).read_bytes()
    ]


def files_of_the_package() -> set[str]:
    """Everything below the package that Python did not make: modules, `py.typed`, scripts of Redis, pages."""
    files = (
        path for path in (ROOT / "faulttolerance").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return {path.relative_to(ROOT).as_posix() for path in files}


def packed(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


if __name__ == "__main__":
    sys.exit(main())
