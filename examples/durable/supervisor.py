"""A process of the shop, seen from outside: started, killed, frozen."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.context import ForkServerContext

from .worker import STARTED, live


class Worker:
    """A process of the shop, seen from outside."""

    def __init__(self, processes: ForkServerContext, name: str, variables: dict[str, str]) -> None:
        self.name = name
        self._messages, sender = processes.Pipe(duplex=False)
        self._process = processes.Process(target=live, args=(name, dict(os.environ) | variables, sender))
        self._process.start()
        sender.close()
        self._began = time.monotonic()
        self._works: float | None = None
        self._frozen: float | None = None
        self._thawed: float | None = None

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def age(self, works: bool = False) -> float:
        """Return the seconds since it was started, or since it *works*; negative if it does not yet."""
        if works and self._works is None and self._messages.poll():
            self.wait()
        began = self._works if works else self._began
        return -1.0 if began is None else time.monotonic() - began

    def wait(self) -> None:
        """Wait until it works."""
        if (message := self._message()) != STARTED:
            raise SystemExit(f"the process {self.name} did not start: {message or 'it sent no message'}")
        self._works = time.monotonic()

    def ended(self) -> tuple[int | None, str]:
        """Wait until it has ended, and return its exit status and its message."""
        message = self._message()
        self._process.join(10)
        return self._process.exitcode, message

    def _message(self) -> str:
        try:
            return str(self._messages.recv()) if self._messages.poll(30) else ""
        except EOFError:  # it ended without one
            return ""

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._process.kill()
        self._process.join()

    @property
    def status(self) -> int | None:
        return self._process.exitcode

    def freeze(self) -> None:
        """Stop it, as a machine stops that is moved to another host."""
        self._signal(signal.SIGSTOP)
        self._frozen = time.monotonic()

    def thaw(self) -> None:
        """Continue it where it stopped. It does not know that another process has taken over its work."""
        self._signal(signal.SIGCONT)
        self._frozen, self._thawed = None, time.monotonic()

    def is_frozen_for(self, seconds: float) -> bool:
        return self._frozen is not None and time.monotonic() - self._frozen >= seconds

    def is_thawed_for(self, seconds: float) -> bool:
        return self._thawed is not None and time.monotonic() - self._thawed >= seconds

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def stop(self) -> None:
        """Send it SIGTERM, and wait until it has ended."""
        self._process.terminate()
        self._process.join(20)
        self.kill()
