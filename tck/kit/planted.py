"""A check that mypy finds mistakes in ``attempt.path``, which is written once for every combination of policies.

    python tck/kit/planted.py

Each mistake is planted in a copy of its own of ``attempt.py``. The copies lie side by side in one copy of the package,
so that one run of mypy looks at all of them. It has to complain of each mistake, by a code of its kind, and not of the
copy that is as it was. The exit status is 1 where it does not.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

__all__ = ["HOME", "MISTAKES", "ROOT", "Mistake", "main"]

ROOT = Path(__file__).resolve().parents[2]
HOME = Path("faulttolerance", "_call")

_COMPLAINT = re.compile(r"^(\S+?):\d+: error: .*\[([\w-]+)\]$", re.MULTILINE)


class Mistake(NamedTuple):
    """One change of ``path`` that must be found."""

    kind: str
    right: str
    wrong: str

    def planted_in(self, text: str) -> str:
        """Return *text* with the mistake in it."""
        if text.count(self.right) != 1:
            raise ValueError(f"attempt.py has {self.right!r} {text.count(self.right)} times; allowed: once")
        return text.replace(self.right, self.wrong)


CODES = {
    "wrong argument": {"arg-type", "call-arg"},
    "missing field": {"attr-defined"},
    "wrong name": {"name-defined"},
    "await too many": {"misc", "func-returns-value"},
    "None not ruled out": {"arg-type", "misc", "union-attr"},
}
"""The codes by which mypy reports a mistake of each kind."""

MISTAKES = [
    Mistake("wrong argument", "admit(permit, get_ident(), ", "admit(permit, "),
    Mistake("wrong argument", "limit.admit(began)", "limit.admit(policies.name)"),
    Mistake("wrong argument", "environment.acquire(bulkhead, permit)", "environment.acquire(bulkhead)"),
    Mistake("wrong argument", "first_try_durations.append(ended - began", "first_try_durations.append(failure"),
    Mistake("wrong argument", "settle(deadlines, entry)", "settle(entry, deadlines, due)"),
    Mistake("wrong argument", "begin_deadline(policies.seconds, due, ", "begin_deadline(due, "),
    Mistake(
        "wrong argument", "count_failed_call(policies, error, progress, args", "count_failed_call(policies, error, args"
    ),
    Mistake(
        "missing field", "gate_state = state = policies.gate.state", "gate_state = state = policies.gate.gate_state"
    ),
    Mistake("missing field", "deadline.queue.pending.pop(", "deadline.ring.pending.pop("),
    Mistake("missing field", "record.running_since", "record.runs_since"),
    Mistake("missing field", "policies.budget.missing", "policies.budget.lacking"),
    Mistake("wrong name", "due = began + policies.seconds", "due = begins + policies.seconds"),
    Mistake("wrong name", "bulkhead.admit_waiters()", "bulkheads.admit_waiters()"),
    Mistake("await too many", "limit.admit(began)", "await limit.admit(began)"),
    Mistake("await too many", "policies.end_attempt(record", "await policies.end_attempt(record"),
    Mistake("await too many", "policies.deliver(policies.gate)", "await policies.deliver(policies.gate)"),
    Mistake("None not ruled out", "if admission is not None:", "if True:"),
    Mistake("None not ruled out", "if progress is None:", "if began is None:"),
]


def main() -> int:
    """Plant every mistake, print those that are not found, and return the exit status."""
    text = (ROOT / HOME / "attempt.py").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        program = Path(name)
        shutil.copytree(
            ROOT / "faulttolerance", program / "faulttolerance", ignore=shutil.ignore_patterns("__pycache__")
        )
        copies = [str(HOME / "attempt.py")]
        for number, mistake in enumerate(MISTAKES):
            copies.append(str(HOME / f"planted_{number}.py"))
            (program / copies[-1]).write_text(mistake.planted_in(text), encoding="utf-8")
        complaints = _complaints(program, copies)
    unchanged, *planted = (complaints[copy] for copy in copies)
    missed = [mistake for mistake, codes in zip(MISTAKES, planted, strict=True) if not codes & CODES[mistake.kind]]
    for mistake in missed:
        print(f"not found, {mistake.kind}: {mistake.wrong}")
    if unchanged:
        print(f"complaints where nothing was planted: {', '.join(sorted(unchanged))}")
    print(f"{len(MISTAKES) - len(missed)} of {len(MISTAKES)} planted mistakes found")
    return 1 if missed or unchanged else 0


def _complaints(program: Path, files: list[str]) -> dict[str, set[str]]:
    """Return the codes of mypy's complaints about each of *files* in *program*, by the configuration of the project."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-pretty", *files]
    run = subprocess.run(command, cwd=program, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise RuntimeError(f"mypy could not look: {run.stdout}{run.stderr}")
    codes: dict[str, set[str]] = {file: set() for file in files}
    for file, code in _COMPLAINT.findall(run.stdout):
        codes.setdefault(str(Path(file)), set()).add(code)
    return codes


if __name__ == "__main__":
    sys.exit(main())
