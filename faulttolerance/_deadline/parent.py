"""Deadlines of a thread that offloads a call, as they count for that call."""

from __future__ import annotations

from math import inf

from .task import NO_LOOP, NO_TASK, RUNNING, TaskDeadline
from .threads.chain import BindingMark, BlockDeadline, Entry, ThreadDeadlines, chain, is_in_chain


class ParentDeadline(TaskDeadline):
    """One deadline of the thread that offloaded a call; it counts while its own call lasts.

    It counts for ever if its own call has timed out: no caller awaits further attempts then, so it prevents them.
    """

    __slots__ = ("deadlines", "entry", "was_missed")

    def __init__(self, deadlines: ThreadDeadlines, entry: Entry, previous: TaskDeadline | None) -> None:
        self.deadlines = deadlines
        self.entry = entry
        self.previous = previous
        self.when = entry[0]
        self.state = RUNNING
        self.task = NO_TASK
        self.queue = NO_LOOP
        self.was_missed = False
        self.is_binding = type(entry) is BlockDeadline and entry.is_binding

    @property
    def effective(self) -> TaskDeadline | None:  # type: ignore[override]
        """Itself while its call lasts; afterwards the deadline that encloses it."""
        return self if self.was_missed or is_in_chain(self.deadlines, self.entry) else self.previous


def inherit_deadlines(deadlines: ThreadDeadlines, enclosing: TaskDeadline | None) -> list[ParentDeadline]:
    """Return the deadlines of the thread of *deadlines* inside *enclosing*, the innermost deadline last."""
    inherited: list[ParentDeadline] = []
    for entry in reversed([*chain(deadlines)]):
        if type(entry) is BindingMark:
            if inherited and inherited[-1].entry is entry[1]:
                inherited[-1].is_binding = True
        elif type(entry) is BlockDeadline and entry.is_at_rest:
            pass  # the thread is not in the block any more, or in a generator that is suspended
        elif type(entry) is list:
            for covered in inherited if entry[2] else ():
                covered.hold(None)
        elif entry[0] != inf:
            inherited.append(ParentDeadline(deadlines, entry, inherited[-1] if inherited else enclosing))
    return inherited


def mark_missed(deadlines: ThreadDeadlines, entry: Entry) -> None:
    """Notify the calls that were offloaded under *entry* that the call of *entry* has timed out."""
    for dependent in list(deadlines.dependents):
        if dependent.entry is entry:
            dependent.was_missed = True
