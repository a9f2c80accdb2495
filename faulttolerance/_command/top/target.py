"""One address that is requested regularly: its condition, and the change between its last two answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .exposition import Exposition, Sample

PATIENCE = 5.0
"""The seconds within which an answer must arrive."""

SLOW = 1.0
"""The seconds from which an answer counts as slow."""


class Scrape(NamedTuple):
    """An exposition, and the time at which it arrived."""

    at: float
    exposition: Exposition


class Target:
    """The state of one address. Callers pass all times, in seconds of any clock."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.trouble = ""
        """The reason why there is no answer; empty if there is an answer, or none was due yet."""
        self.answer_seconds = 0.0
        """The seconds that the last answer took."""
        self.is_mixed = False
        """Whether several processes answer at this address in turn, so that no two answers can be compared."""
        self.last: Scrape | None = None
        self._before: Scrape | None = None
        self._asked: float | None = None
        self._since: float | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a request is under way."""
        return self._asked is not None

    def begin_scrape(self, now: float) -> None:
        """Record that the page was requested."""
        self._asked = now

    def record_answer(self, exposition: Exposition, now: float) -> None:
        """Record the answer, unless it came too late."""
        asked, self._asked = self._asked, None
        if asked is None or now - asked > PATIENCE:
            return
        before = self.last
        if before is not None and _began(before.exposition) > _began(exposition) > 0:
            self.is_mixed = True  # an answer came before from a process that started later
        self._before, self.last = before, Scrape(now, exposition)
        self.trouble, self._since, self.answer_seconds = "", None, now - asked

    def record_failure(self, reason: str, now: float) -> None:
        """Record the reason why there is no answer."""
        if self.is_pending and not self.trouble:
            self._lose(reason, now)
        elif self.is_pending:
            self.trouble = reason
        self._asked = None

    def check_time_out(self, now: float) -> None:
        """Record the trouble if the answer is late; no new request starts before the current request has ended."""
        if self._asked is not None and now - self._asked > PATIENCE and not self.trouble:
            self._lose(f"no answer within {PATIENCE:g} s", now)

    def _lose(self, reason: str, now: float) -> None:
        self.trouble, self._since = reason, now

    def lost_for(self, now: float) -> float:
        """Return the seconds since the answers stopped."""
        return 0.0 if self._since is None else max(0.0, now - self._since)

    def levels(self) -> Mapping[Sample, float]:
        """Return the samples of the last answer; empty for a lost address."""
        return {} if self.trouble or self.last is None else self.last.exposition.samples

    def rates(self) -> Iterator[tuple[Sample, float]]:
        """Yield the growth of each sample per second, as of a counter; nothing before the second answer.

        A counter that is lower than before started again, as do all counters of a restarted process: its whole value is
        the growth. The same holds for a counter that the answer before lacked.
        """
        if self.trouble or self.last is None or self._before is None or self.last.at <= self._before.at:
            return
        seconds = self.last.at - self._before.at
        is_new = _began(self.last.exposition) != _began(self._before.exposition)
        if is_new and self.is_mixed:
            return
        before = {} if is_new else self._before.exposition.samples
        for sample, value in self.last.exposition.samples.items():
            earlier = before.get(sample, 0.0)
            yield sample, (value - earlier if value >= earlier else value) / seconds


def _began(exposition: Exposition) -> float:
    return exposition.started or 0.0
