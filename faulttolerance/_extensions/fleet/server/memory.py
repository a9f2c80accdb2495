"""A server in this process: the circuits and windows of one namespace, in dictionaries."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ..protocol import Answer, Poll, Polled, Question, TakeTurn
from .circuits import Circuit, ask_circuit, current, moved, record_of
from .windows import Counted, take_turn

__all__ = ["Memory"]


class Memory:
    """The data of one namespace. Any thread may ask it, with the time in whole microseconds."""

    def __init__(self) -> None:
        # Reentrant: a signal handler or a finalizer may call a guarded function while its thread is in here.
        self._lock = threading.RLock()
        self._circuits: dict[str, Circuit] = {}
        self._windows: dict[tuple[str, str], Counted] = {}
        self._processes: dict[str, int] = {}

    def exchange(self, questions: Sequence[Question], now: int) -> list[Answer]:
        """Answer all questions in their order, as one step."""
        with self._lock:
            return [self._answer_locked(question, now) for question in questions]

    def move(self, key: str, now: int, delay: int | None, reason: str = "") -> None:
        """Open a circuit for *delay*, or close it for ``None``, in any state."""
        with self._lock:
            before = self._circuits.get(key)
            self._circuits[key] = moved(0 if before is None else before.version, now, delay, reason=reason)

    def forget(self) -> None:
        """Remove all data."""
        with self._lock:
            self._circuits.clear()
            self._windows.clear()
            self._processes.clear()

    def renew_lock(self) -> None:
        """Replace the lock, which another thread may have held when the process forked. Call it in the child only."""
        self._lock = threading.RLock()

    def _answer_locked(self, question: Question, now: int) -> Answer:
        if isinstance(question, TakeTurn):
            place = (question.kind, question.key)
            counted, wait = take_turn(self._windows.get(place), question, now)
            if counted is not None:
                self._windows[place] = counted
            return wait
        if isinstance(question, Poll):
            processes = {**self._processes, question.process: now}
            self._processes = {one: at for one, at in processes.items() if now - question.length < at <= now}
            circuits = {key: current(circuit, now) for key, circuit in self._circuits.items()}
            self._circuits = {key: circuit for key, circuit in circuits.items() if circuit is not None}
            return Polled(len(self._processes), {key: record_of(one, now) for key, one in self._circuits.items()})
        circuit, answer = ask_circuit(self._circuits.get(question.key), question, now)
        if circuit is not None:
            self._circuits[question.key] = circuit
        else:
            self._circuits.pop(question.key, None)
        return answer
