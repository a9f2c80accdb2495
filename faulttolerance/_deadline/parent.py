"""Deadlines of the thread that offloads a call, as far as they count for that call."""

from __future__ import annotations

from math import inf

from .task import NO_QUEUE, NO_TASK, RUNS, TaskDeadline
from .threads.chain import BlockDeadline, Entry, HandedOn, ThreadDeadlines, chain, stands


class Inherited(TaskDeadline):
    """One deadline of the thread that offloaded a call; it counts while its own call lasts.

    It does so for good once that call has timed out, where it decides on further attempts: nobody waits for them.
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
        """Itself as long as its call lasts; afterwards the one that encloses it."""
        return self if self.was_missed or stands(self.deadlines, self.entry) else self.previous


def inherit(deadlines: ThreadDeadlines, enclosing: TaskDeadline | None) -> list[Inherited]:
    """Return the deadlines of the thread of *deadlines*, the innermost one last, inside *enclosing*."""
    inherited: list[Inherited] = []
    for entry in reversed([*chain(deadlines)]):
        if type(entry) is HandedOn:
            inherited[-1].rule()
        elif type(entry) is not list and entry[0] != inf:
            inherited.append(Inherited(deadlines, entry, inherited[-1] if inherited else enclosing))
    return inherited


def pass_on(deadlines: ThreadDeadlines, entry: Entry) -> None:
    """Tell the calls that were offloaded under *entry* that its own call has timed out."""
    for heir in list(deadlines.heirs):
        if heir.entry is entry:
            heir.was_missed = True
