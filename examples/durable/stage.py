"""The course of the demonstration: processes start, die and are replaced while customers place orders."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from dbos import DBOSClient

from .partners import PORT, Partners
from .pipeline import KINDS, Order
from .promises import CHANGED, NAMES, PIECES, Record, recorded
from .shop import DATABASE
from .supervisor import Worker
from .worker import JOURNAL, KILL_AT, MOMENTS, TENANTS, prepare

UNDER_WAY = 8
"""The orders that are under way at once."""
PATIENCE = 120.0
"""The seconds for which a condition is awaited, such as the end of the last order."""
LONGEST_LIFE = 60.0
"""The seconds within which a process has to reach the step at which it dies."""
BURST = 18
"""The orders of all tenants that come at once when the bank of one of them is down."""
OUTAGE = 5.0
"""The seconds for which that bank is down, or longer until its circuit is open."""


@dataclass
class Demonstration:
    """The processes of the shop, their partners and their customers."""

    url: str
    folder: Path
    random: random.Random
    until_the_end: contextlib.ExitStack
    marks: dict[str, float] = field(default_factory=dict)
    running: list[Worker] = field(default_factory=list)
    placed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.partners = Partners(self.random.randrange(10_000))
        self.until_the_end.callback(self.partners.close)
        self.journal = self.folder / "journal"
        os.environ |= {DATABASE: self.url, JOURNAL: str(self.journal), PORT: str(self.partners.port)}
        prepare(PIECES)
        # A new process has everything imported already. It shares nothing else with those before it.
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([f"{__package__}.worker"])
        self.until_the_end.callback(self._kill_all)
        self.start("one").wait()  # it makes the engine's tables
        self.client = DBOSClient(system_database_url=self.url)
        self.until_the_end.callback(self.client.destroy)
        self._lock = threading.Lock()
        self._is_placing = True
        threading.Thread(target=self._place, daemon=True, name="customers").start()

    def run(self, kills: int) -> Record:
        """Run all parts, and return the records."""
        self._say("two processes; each dies at each step of a task, before and after it is done and recorded")
        self._kill_at_each_step()
        if kills:
            self._say(f"{kills} times one of them dies at a random moment; some are frozen while another takes over")
            self._kill_at_random(kills)
        self._say(f"the bank of one tenant is down for {OUTAGE:g} s, and an operator cancels an order")
        self._outage()
        self._say("a restart with a wrong configuration, and one with another configuration")
        self._reconfigure()
        self._say("no more orders; the last ones end")
        self._drain()
        for worker in self.running:
            worker.stop()
        return recorded(self, kills)

    def start(self, name: str, **variables: str) -> Worker:
        worker = Worker(self._processes, name, variables)
        self.running.append(worker)
        return worker

    def _kill_at_each_step(self) -> None:
        left = [f"{kind}:{moment}" for kind, moment in product(KINDS, MOMENTS)]
        self.random.shuffle(left)
        self.steps = len(left)
        self._kill_all()
        armed = [self.start(name, **{KILL_AT: left.pop()}) for name in NAMES]
        while armed:
            for worker in armed[:]:
                if not worker.is_alive:
                    armed.remove(worker)
                    self.running.remove(worker)
                    if left:
                        armed.append(self.start(worker.name, **{KILL_AT: left.pop()}))
                    else:
                        self.start(worker.name)  # it goes on with the work of the dead one
                elif worker.age() > LONGEST_LIFE:
                    left.clear()
                    armed.remove(worker)  # the promise that it was reached is broken
                    worker.kill()
            time.sleep(0.02)
        self._kill_all()

    def _kill_at_random(self, kills: int) -> None:
        """Kill one or the other. One in five is frozen first, and goes on after another has taken over its work."""
        lives = {slot: self.start(slot) for slot in NAMES}
        moments = {slot: self._moment() for slot in NAMES}
        undead: list[Worker] = []
        while kills:
            for slot, worker in list(lives.items()):
                if worker.age(moments[slot][0]) < moments[slot][1] or not kills:
                    continue
                kills -= 1
                if self.random.random() < 0.2:
                    worker.freeze()
                    undead.append(worker)
                    lives[slot] = self.start(worker.name)
                else:
                    worker.kill()
                    self.running.remove(worker)
                    # One in four gets any of the names: then two processes may have one name, and do the same work.
                    lives[slot] = self.start(slot if self.random.random() < 0.75 else self.random.choice(NAMES))
                moments[slot] = self._moment()
            for worker in undead[:]:
                if worker.is_frozen_for(1):
                    worker.thaw()
                elif worker.is_thawed_for(1):
                    worker.kill()
                    undead.remove(worker)
                    self.running.remove(worker)
            time.sleep(0.01)

    def _moment(self) -> tuple[bool, float]:
        """Return whether the next death strikes a process that works or one that starts, and after how many seconds."""
        works = self.random.random() < 0.8
        return works, self.random.uniform(0, 1.5) if works else self.random.uniform(0, 0.5)

    def _restart(self, **variables: str) -> None:
        self._kill_all()
        for worker in [self.start(name, **variables) for name in NAMES]:
            worker.wait()

    def _outage(self) -> None:
        self._restart()
        before = len(self.journal.read_text())
        self.marks["outage"] = time.monotonic()
        self.partners.down.add(("charge", "bob"))
        for _ in range(BURST):
            self._order()
        time.sleep(OUTAGE / 2)
        self.cancelled = self._cancel()
        time.sleep(OUTAGE / 2)
        self._await(lambda: '"bob": "open"' in self.journal.read_text()[before:])
        self.partners.down.clear()
        self.marks["healed"] = time.monotonic()

    def _cancel(self) -> str:
        """Cancel an order that waits for the bank, as an operator may, and return its number."""
        for part in self.client.list_workflows(name="fulfil", status="PENDING", sort_desc=True):
            order = part.input["args"][0] if part.input else None
            if order is not None and order.tenant == "bob":
                self.client.cancel_workflow(part.workflow_id)
                return str(order.number)
        return ""

    def _reconfigure(self) -> None:
        refused = self.start("three", **{CHANGED: "-1"})
        self.refused = refused.ended()
        self.running.remove(refused)
        self.partners.is_moody = False
        self._restart(**{CHANGED: "1"})
        self.before, self.partners.most = self.partners.most.copy(), Counter()
        number = self._order()
        self._await(lambda: self.client.list_workflows(workflow_ids=[number])[0].attributes is not None)
        self._await(lambda: "charge" in self.partners.most)

    def _place(self) -> None:
        """Place orders, so that there are always some under way."""
        while self._is_placing:
            if len(self.placed) - len(self.partners.notices) < UNDER_WAY:
                self._order()
            else:
                time.sleep(0.02)

    def _order(self) -> str:
        with self._lock:
            i = len(self.placed)
            article = "saffron" if i % 8 == 5 else ("tea", "coffee")[i % 2]
            order = Order(f"{i:04}", TENANTS[i % 3], article, 1 + i % 2, "stolen" if i % 5 == 3 else "good")
            self.client.enqueue(
                {"workflow_name": "order", "queue_name": "order", "workflow_id": order.number, "app_version": "1"},
                order,
            )
            self.placed.append(order.number)
            return order.number

    def _drain(self) -> None:
        self._is_placing = False
        under_way = ["ENQUEUED", "DELAYED", "PENDING"]
        self._await(lambda: not self.client.list_workflows(name="order", status=under_way, load_input=False))

    def _await(self, is_so: Callable[[], bool]) -> None:
        """Wait for a condition; one that does not come true breaks a promise."""
        end = time.monotonic() + PATIENCE
        while not is_so() and time.monotonic() < end:
            time.sleep(0.2)

    def _kill_all(self) -> None:
        for worker in self.running:
            worker.kill()
        self.running.clear()

    def _say(self, event: str) -> None:
        ended = sum(1 for number in self.placed if number in self.partners.notices)
        print(f"{len(self.placed):>4} placed, {ended:>4} ended: {event}", flush=True)
