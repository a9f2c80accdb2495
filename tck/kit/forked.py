"""Programs that start where everything is imported: an interpreter imports it once, and forks a process for each.

A program is alone in its process, as it is in an interpreter of its own; what it does is unseen by the next. This is
for programs that may find modules imported. A program about imports, or about options of the interpreter, has its own.
"""

from __future__ import annotations

import atexit
import marshal
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from threading import Lock

__all__ = ["CAN_FORK", "fork"]

CAN_FORK = hasattr(os, "fork")

_SERVE = """
import atexit, gc, marshal, os, sys

def begin(text, name, argv, first, folder, environment, out, err):
    for number, (path, flags) in enumerate([(os.devnull, os.O_RDONLY), (out, os.O_WRONLY), (err, os.O_WRONLY)]):
        file = os.open(path, flags | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    atexit.register(gc.freeze)  # the last collection skips the imported objects
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.argv[:], sys.path[:] = argv, [first, *filter(None, paths), *installed]
    namespace = globals()
    for each in [each for each in namespace if not each.startswith("__")]:
        del namespace[each]
    if name != "<string>":
        namespace["__file__"] = name
    return compile(text, name, "exec", dont_inherit=True)

requests, answers = map(int, sys.argv[1:3])
installed = sys.path[1:]
exec(sys.argv[3], {"__name__": "beginning"})
while size := os.read(requests, 8):
    left, request = int.from_bytes(size, "big"), b""
    while len(request) < left:
        request += os.read(requests, left - len(request))
    child = os.fork()
    if not child:
        os.close(requests)
        os.close(answers)
        break
    os.write(answers, child.to_bytes(8, "big"))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(answers, status.to_bytes(8, "big", signed=True))
else:
    os._exit(0)
exec(begin(*marshal.loads(request)), globals())
"""


class _Parent:
    """An interpreter that has run *beginning*, and forks a process for each program."""

    def __init__(self, beginning: str, options: Iterable[str], paths: Mapping[str, str]) -> None:
        self._one_at_a_time = Lock()
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, *options, "-c", _SERVE, str(requests), str(answers), beginning],
            pass_fds=[requests, answers], env=paths, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(requests)
        os.close(answers)
        atexit.register(self._close)

    def _close(self) -> None:
        os.close(self._requests)
        os.close(self._answers)
        self._process.wait()

    def _answer(self, seconds: float | None) -> int | None:
        if not select.select([self._answers], [], [], seconds)[0]:
            return None
        answer = os.read(self._answers, 8)
        assert answer, "the interpreter that forks has ended"
        return int.from_bytes(answer, "big", signed=True)

    def fork(self, request: tuple[object, ...], seconds: float) -> int | None:
        """Return the exit status of the program in *request*; None if it had to be killed after *seconds*."""
        text = marshal.dumps(request)  # type: ignore[arg-type]
        with self._one_at_a_time:
            os.write(self._requests, len(text).to_bytes(8, "big") + text)
            child = self._answer(None)
            assert child is not None
            status = self._answer(seconds)
            if status is None:
                os.kill(child, signal.SIGABRT)  # faulthandler says where it is
                self._answer(None)
        return status


@cache
def _parent(beginning: str, options: tuple[str, ...], paths: tuple[tuple[str, str], ...]) -> _Parent:
    return _Parent(beginning, options, dict(paths))


def fork(
    program: str | Path,
    *options: str,
    beginning: str,
    paths: Mapping[str, str],
    arguments: tuple[str, ...] = (),
    folder: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    seconds: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run *program*, a text or a file, in a process of its own where *beginning* has run; a hang fails the test.

    Args:
        program: Its text, or its file.
        options: For the interpreter that forks.
        beginning: The program that imports the modules that this one may find imported.
        paths: The environment in which the interpreter that forks has been started.
        arguments: For the program.
        folder: Where it runs.
        environment: Its variables, and nothing else.
        seconds: How long it may take.
    """
    here = str(folder or Path.cwd())
    name, first = ("<string>", "") if isinstance(program, str) else (str(program), str(program.parent))
    text = program if isinstance(program, str) else program.read_bytes()
    argv = ["-c" if isinstance(program, str) else name, *arguments]
    with tempfile.TemporaryDirectory() as outcome:
        out, err = Path(outcome) / "out", Path(outcome) / "err"
        out.touch()
        err.touch()
        request = (text, name, argv, first, here, dict(environment), str(out), str(err))
        status = _parent(beginning, options, tuple(paths.items())).fork(request, seconds)
        output, error = out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
    if status is None:
        hang = subprocess.TimeoutExpired(argv, seconds, output, error)
        hang.add_note(output + error)
        raise hang
    return subprocess.CompletedProcess(argv, status, output, error)
