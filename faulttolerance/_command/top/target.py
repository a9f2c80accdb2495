"""One address that is asked again and again: how it stands, and what changed between its last two answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .page import Page, Sample

PATIENCE = 5.0
"""Seconds within which an answer has to be there."""

SLOW = 1.0
"""Seconds from which on an answer is called slow."""


class Answer(NamedTuple):
    """A page, and the time at which it came."""

    at: float
    page: Page


class Target:
    """What is known of one address. Times are seconds of any clock, and given."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.trouble = ""
        """Why there is no answer; empty where there is one, or none was due yet."""
        self.took = 0.0
        """Seconds that the last answer took."""
        self.is_mixed = False
        """Whether several processes answer at this address in turn, so that no two answers can be compared."""
        self.last: Answer | None = None
        self._before: Answer | None = None
        self._asked: float | None = None
        self._since: float | None = None

    @property
    def is_asked(self) -> bool:
        """Whether an answer is still to come."""
        return self._asked is not None

    def ask(self, now: float) -> None:
        """Note that the address was asked."""
        self._asked = now

    def answered(self, page: Page, now: float) -> None:
        """Note what it said, unless that came too late."""
        asked, self._asked = self._asked, None
        if asked is None or now - asked > PATIENCE:
            return
        before = self.last
        if before is not None and _began(before.page) > _began(page) > 0:
            self.is_mixed = True  # a process that began after this one has answered before
        self._before, self.last = before, Answer(now, page)
        self.trouble, self._since, self.took = "", None, now - asked

    def failed(self, reason: str, now: float) -> None:
        """Note why it did not answer."""
        if self.is_asked and not self.trouble:
            self._lose(reason, now)
        elif self.is_asked:
            self.trouble = reason
        self._asked = None

    def watch(self, now: float) -> None:
        """Give an answer up that has not come in time; it is not asked again before that one has ended."""
        if self._asked is not None and now - self._asked > PATIENCE and not self.trouble:
            self._lose(f"no answer within {PATIENCE:g} s", now)

    def _lose(self, reason: str, now: float) -> None:
        self.trouble, self._since = reason, now

    def lost_for(self, now: float) -> float:
        """For how many seconds there has been no answer."""
        return 0.0 if self._since is None else max(0.0, now - self._since)

    def levels(self) -> Mapping[Sample, float]:
        """What the last answer said; nothing of an address that is lost."""
        return {} if self.trouble or self.last is None else self.last.page.samples

    def rates(self) -> Iterator[tuple[Sample, float]]:
        """Give by how much each sample grew in a second, as a counter does; nothing before the second answer.

        A counter that is lower than before has begun anew, as have all counters of a process that has: all that it
        shows has come since. So has all that a counter shows which was not there.
        """
        if self.trouble or self.last is None or self._before is None or self.last.at <= self._before.at:
            return
        seconds = self.last.at - self._before.at
        is_new = _began(self.last.page) != _began(self._before.page)
        if is_new and self.is_mixed:
            return
        before = {} if is_new else self._before.page.samples
        for sample, value in self.last.page.samples.items():
            earlier = before.get(sample, 0.0)
            yield sample, (value - earlier if value >= earlier else value) / seconds


def _began(page: Page) -> float:
    return page.started or 0.0
