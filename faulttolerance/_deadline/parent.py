"""Deadlines of a thread that offloads a call, as they count for that call."""

from __future__ import annotations

from math import inf

from .task import NO_QUEUE, NO_TASK, RUNS, TaskDeadline
from .threads.chain import BlockDeadline, Entry, HandedOn, ThreadDeadlines, chain, stands


class Inherited(TaskDeadline):
    """One deadline of the thread that offloaded a call; it counts while its own call lasts.

    It counts for ever if its own call has timed out: no caller awaits further attempts then, so it prevents them.
    """

    __slots__ = ("deadlines", "entry", "was_missed")

    def __init__(self, deadlines: ThreadDeadlines, entry: Entry, previous: TaskDeadline | None) -> None:
        self.deadlines = deadlines
        self.entry = entry
        self.previous = previous
        self.when = entry[0]
        self.state = RUNS
        self.task = NO_TASK
        self.queue = NO_QUEUE
        self.was_missed = False
        if type(entry) is BlockDeadline and entry.is_ruling:
            self.rule()

    @property
    def counts(self) -> TaskDeadline | None:  # type: ignore[override]
        """Itself while its call lasts; afterwards the deadline that encloses it."""
        return self if self.was_missed or stands(self.deadlines, self.entry) else self.previous


def inherit(deadlines: ThreadDeadlines, enclosing: TaskDeadline | None) -> list[Inherited]:
    """Return the deadlines of the thread of *deadlines* inside *enclosing*, the innermost deadline last."""
    inherited: list[Inherited] = []
    for entry in reversed([*chain(deadlines)]):
        if type(entry) is HandedOn:
            inherited[-1].rule()
        elif type(entry) is not list and entry[0] != inf:
            inherited.append(Inherited(deadlines, entry, inherited[-1] if inherited else enclosing))
    return inherited


def pass_on(deadlines: ThreadDeadlines, entry: Entry) -> None:
    """Notify the calls that were offloaded under *entry* that the call of *entry* has timed out."""
    for heir in list(deadlines.heirs):
        if heir.entry is entry:
            heir.was_missed = True
