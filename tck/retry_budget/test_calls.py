"""Retry budgets through public names: rules B1 to B4, sharing by name, configuration, observation and forks."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from faulttolerance import (
    FaultToleranceException,
    Guard,
    before_retry,
    configure,
    explain,
    fallback,
    guards,
    health,
    retry,
    retry_budget,
    retry_when,
    testing,
    timeout,
    validate,
)
from faulttolerance._guard.declare import registry
from faulttolerance.instrumentation import GaveUp, RetryScheduled, set_event_sinks
from faulttolerance.policies import CircuitBreaker, PartitionBy, Retry, RetryBudget, RetryWhen
from faulttolerance.testing import configured, virtual_time
from kit.definition import refused

SPENT = "no more, because the retry budget is spent"
THREE = Retry(max_retries=3, delay=0, jitter=0, retry_on=OSError)


class Callee:
    """A callee that fails a given number of times."""

    def __init__(self) -> None:
        self.attempts = self.failures = 0

    def __call__(self, *args: object) -> str:
        self.attempts += 1
        if self.failures:
            self.failures -= 1
            raise OSError("down")
        return "served"


def guarded(name: str = "", budget: RetryBudget | None = None, **policies: Any) -> Guard:
    return Guard(retry=policies.pop("retry", THREE), retry_budget=budget or RetryBudget(), name=name, **policies)


def left(guard: Guard) -> str:
    """Return the tokens of a guard as ``guards()`` shows them."""
    (conditions,) = [one.conditions for one in guards() if one.method is guard]
    return conditions["RetryBudget"].removesuffix(" tokens")


def counts(guard: Guard, metric: str) -> dict[tuple[str, ...], float]:
    """Return the counts of a metric that are not 0, by the values of its tags."""
    (found,) = [one.counts for one in guards() if one.method is guard]
    return {
        tuple(value for _, value in tags): count for (name, tags), count in found.items() if name == metric and count
    }


def call(guard: Guard, callee: Callable[..., object], *args: object) -> str:
    """Return the result of a call, or the message of its failure."""
    try:
        return str(guard.call(callee, *args))
    except OSError as error:
        return str(error)


# B1: the calls that cost a token, and those that pay


def test_an_outage_spends_the_burst_and_then_each_call_is_one_attempt() -> None:
    """By rule B1, trap 10: no retry is free, not even the first ones; B4: the failure comes out, with a note."""
    guard, callee = guarded(), Callee()
    callee.failures = 1000
    for _ in range(20):
        call(guard, callee)
    with pytest.raises(OSError, match="down") as raised:
        guard.call(callee)

    assert callee.attempts == 21 + 10
    assert left(guard) == "0 of 10"
    assert raised.value.__notes__[-1].endswith(SPENT)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("calls", "tokens"),
    [
        # the failures of each of several calls, and the tokens that are left of 10, of which 5 are gone
        ([0], "5.2 of 10"),
        ([0] * 5, "6 of 10"),
        ([0] * 100, "10 of 10"),
        ([1], "5 of 10"),
        ([2], "4 of 10"),
        ([3], "3 of 10"),
        ([4], "2 of 10"),
        ([0, 1, 0], "5.4 of 10"),
    ],
)
def test_calls_cost_and_pay_as_the_rule_says(calls: list[int], tokens: str) -> None:
    """By rule B1: of a call with several retries the one that succeeds is free."""
    guard, callee = guarded(), Callee()
    for failures in [4, 3]:
        callee.failures = failures
        call(guard, callee)
    assert left(guard) == "5 of 10"
    for failures in calls:
        callee.failures = failures
        call(guard, callee)

    assert left(guard) == tokens


def test_an_answer_of_a_fallback_pays_nothing() -> None:
    """By rule B1: the answer is no success, with or without a retry."""
    callee = Callee()

    @fallback(lambda context: "instead")
    @retry(max_retries=1, delay=0, jitter=0, retry_on=ConnectionError)
    @retry_budget(burst=2)
    def called() -> str:
        if callee.attempts > 1:
            raise ValueError("not retried")
        callee.attempts += 1
        raise ConnectionError("retried")

    assert [called() for _ in range(5)] == ["instead"] * 5
    assert "now 1 of 2 tokens" in explain(called)


@pytest.mark.parametrize("is_slow", [False, True])
def test_fast_and_slow_failures_are_braked_alike(is_slow: bool) -> None:
    """By rule B2, trap 9: a limit of the retries in flight would not brake those that fail at once."""
    with virtual_time() as clock:
        guard, attempts = guarded(), 0

        def down() -> None:
            nonlocal attempts
            attempts += 1
            clock.sleep(1.0 if is_slow else 0.002)
            raise OSError("down")

        for _ in range(200):
            call(guard, down)

        assert attempts == 200 + 10


def test_a_fifth_of_failing_attempts_is_made_up_for() -> None:
    """By rule B2, trap 35: a budget that pays by calls keeps retries for a method with many failures."""
    chance, guard = random.Random(7), guarded()

    def shaky() -> None:
        if chance.random() < 0.2:
            raise OSError("shaky")

    outcomes = [call(guard, shaky) for _ in range(5000)]

    assert outcomes.count("None") / len(outcomes) >= 0.998


def test_a_method_with_two_calls_has_no_free_retries() -> None:
    """By rule B2, trap 35: nothing refills with time alone."""
    with virtual_time() as clock:
        guard, callee = guarded(budget=RetryBudget(burst=1)), Callee()
        callee.failures = 100
        for _ in range(5):
            call(guard, callee)
            clock.sleep(3600)

        assert callee.attempts == 6


# B3: when it is asked


def test_it_is_asked_before_the_delay() -> None:
    """By rule B3, trap 8: no call sleeps before it learns that it makes no retry."""
    with virtual_time() as clock:
        guard = guarded(retry=Retry(max_retries=3, delay=5000, jitter=0), budget=RetryBudget(burst=1))
        callee = Callee()
        callee.failures = 100
        call(guard, callee)
        began = clock.monotonic()
        call(guard, callee)

        assert clock.monotonic() == began


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (Retry(max_retries=0, jitter=0), None),
        (Retry(retry_on=KeyError, jitter=0), None),
        (Retry(delay=400, max_duration=401, jitter=0), 0.01),
        (Retry(delay=5000, jitter=0), None),
    ],
    ids=["max_retries", "retry_on", "max_duration", "deadline"],
)
def test_it_is_asked_last(policy: Retry, seconds: float | None) -> None:
    """By rule B3: a call that is not retried for another reason pays nothing."""
    with virtual_time() as clock:
        guard = guarded(retry=policy)

        def fails() -> None:
            clock.sleep(seconds or 0.0)
            raise OSError("down")

        @timeout(1000)
        def enclosing() -> str:
            return call(guard, fails)

        assert enclosing() == "down"
        assert left(guard) == "10 of 10"
        assert not counts(guard, "ft.retry.budget.total")


def test_refusals_and_refused_results_cost_as_any() -> None:
    """By rule B3: a refusal of our own circuit breaker, and a result that ``retry_when`` refuses."""
    breaker = CircuitBreaker(request_volume_threshold=2, failure_ratio=1.0, delay="1h")
    guard, callee = guarded(retry=Retry(max_retries=3, delay=0, jitter=0), circuit_breaker=breaker), Callee()
    callee.failures = 2
    with pytest.raises(FaultToleranceException):
        guard.call(callee)
    asking = guarded(retry_when=RetryWhen(result=lambda result: result == "served"))
    with pytest.raises(FaultToleranceException):
        asking.call(Callee())

    assert left(guard) == left(asking) == "7 of 10"


def test_a_retry_that_control_flow_prevents_is_given_back() -> None:
    """By rule B3 and rule X6: the hook before a retry ends the call, and the retry is not made."""

    def halt(context: object) -> None:
        raise KeyboardInterrupt

    @retry(max_retries=3, delay=0, jitter=0)
    @retry_budget
    @before_retry(halt)
    def called() -> None:
        raise OSError("down")

    with pytest.raises(KeyboardInterrupt):
        called()

    assert "now 10 of 10 tokens" in explain(called)


def test_a_call_that_is_cancelled_during_the_delay_has_paid_nothing() -> None:
    """By rule B3 and rule X6: once the retry runs, it is paid, also where it is cancelled."""

    async def main() -> None:
        attempts = 0

        @retry(max_retries=3, delay=1000, jitter=0)
        @retry_budget
        async def called() -> None:
            nonlocal attempts
            attempts += 1
            if attempts == 3:
                await asyncio.sleep(1000)
            raise OSError("down")

        for seconds, tokens in ((0.5, "10"), (1.5, "9")):
            task = asyncio.ensure_future(called())
            await asyncio.sleep(seconds)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert f"now {tokens} of 10 tokens" in explain(called)

    with virtual_time() as clock:
        clock.run(main())


# B4: the failure that comes out


def test_the_failure_is_the_callees_and_hooks_hear_why() -> None:
    """By rule B4, trap 7: the library raises no error instead; ``GaveUp`` has the reason, and no retry is announced."""
    heard: list[Any] = []
    set_event_sinks([heard.append])
    guard, callee = guarded(budget=RetryBudget(burst=1, ratio=0)), Callee()
    callee.failures = 3
    failure = OSError("mine")

    def fails() -> None:
        raise failure

    call(guard, callee)
    with pytest.raises(OSError, match="mine") as raised:
        guard.call(fails)

    assert raised.value is failure
    kinds = [(type(one), getattr(one, "reason", "")) for one in heard]
    assert kinds == [(RetryScheduled, ""), (GaveUp, "the retry budget is spent"), (GaveUp, "the retry budget is spent")]


def test_it_is_counted() -> None:
    """``ft.retry.budget.total``, and ``retryResult`` has a fifth value only where a budget is declared."""
    guard, plain, callee = guarded(budget=RetryBudget(burst=2)), Guard(retry=THREE), Callee()
    callee.failures = 6
    for one in (guard, guard, guard, plain):
        call(one, callee)

    assert counts(guard, "ft.retry.budget.total") == {("retry", "granted"): 2, ("retry", "exhausted"): 3}
    assert counts(guard, "ft.retry.calls.total") == {("true", "budgetExhausted"): 1, ("false", "budgetExhausted"): 2}
    names = {one.method: {dict(tags).get("retryResult") for _, tags in one.counts} for one in guards()}
    assert "budgetExhausted" in names[guard]
    assert "budgetExhausted" not in names[plain]


# Guards that share a budget


def test_a_name_is_one_budget_for_all_that_give_it() -> None:
    """By rule B1: methods, classes and guards; without a name each has its own, and each class of a hierarchy."""

    class Client:
        @retry(max_retries=9, delay=0, jitter=0)
        @retry_budget(name="store", burst=3)
        def read(self) -> None:
            raise OSError("down")

        @retry(max_retries=9, delay=0, jitter=0)
        @retry_budget(burst=3)
        def own(self) -> None:
            raise OSError("down")

    class Other(Client):
        pass

    guard = guarded(budget=RetryBudget(name="store", burst=3))
    callee = Callee()
    guard.call(callee)
    for method in (Client().read, Client().own, Other().own):
        with pytest.raises(OSError, match="down"):
            method()

    assert left(guard) == "0 of 3"
    callee.failures = 1
    assert call(guard, callee) == "down"
    assert "3 attempts" not in explain(Client, "own")
    assert [explain(cls, "own").count("now 0 of 3 tokens") for cls in (Client, Other)] == [1, 1]


def test_guards_that_share_a_budget_have_to_agree_on_its_values() -> None:
    """By rule B1 and rule X9: otherwise the error names both guards, by a call as by ``validate()``."""
    one, other = guarded("acme.one", RetryBudget(name="mixed")), guarded("acme.other", RetryBudget(0.5, name="mixed"))
    one.call(Callee())
    with refused(
        "acme.other @RetryBudget is RetryBudget(ratio=0.5, name='mixed'), and RetryBudget(name='mixed') for acme.one"
    ):
        other.call(Callee())
    with refused("acme.one", "acme.other", "name='mixed'"):
        validate()
    one.close()
    other.close()


def test_functions_of_a_factory_have_to_agree_on_the_budget_that_they_share() -> None:
    """By rule B1: they all have one name; a function that was replaced no longer counts."""

    def make(burst: int) -> Callable[[], None]:
        @retry(max_retries=2, jitter=0)
        @retry_budget(burst=burst, name="factory")
        def send() -> None:
            raise OSError("down")

        return send

    def call(send: Callable[[], None]) -> None:
        with pytest.raises(OSError, match="down"):
            send()

    first, alike, different = make(3), make(3), make(4)
    call(first)
    call(alike)
    with refused("send @RetryBudget is RetryBudget(burst=4, name='factory'), and RetryBudget(burst=3, ", "for another"):
        different()
    del first, alike
    call(different)
    assert "now 0 of 4 tokens" in explain(different)  # as after a reload


def test_configured_values_have_to_agree_too() -> None:
    """By rule B1 and rule X9; a reload that sets them apart changes nothing, one that sets both moves both."""
    guards_ = [guarded(f"acme.shared{number}", RetryBudget(name="shared")) for number in range(2)]
    for guard in guards_:
        guard.call(Callee())
    with refused("acme.shared", "name='shared'"):
        configure(properties={"acme.shared1/RetryBudget/burst": "3"})
    assert [left(guard) for guard in guards_] == ["10 of 10"] * 2
    with configured({"RetryBudget/burst": "3"}):
        assert [left(guard) for guard in guards_] == ["3 of 3"] * 2
    assert [left(guard) for guard in guards_] == ["3 of 10"] * 2
    for guard in guards_:
        guard.close()


def test_a_budget_goes_with_the_last_guard_that_has_it() -> None:
    """By rule L4: a name that is given anew begins anew."""

    def spend() -> tuple[weakref.ref[Any], str]:
        guard, callee = guarded(budget=RetryBudget(name="gone", burst=4)), Callee()
        callee.failures = 100
        call(guard, callee)
        return weakref.ref(guard), left(guard)

    reference, tokens = spend()
    gc.collect()
    assert reference() is None

    assert (tokens, spend()[1]) == ("1 of 4", "1 of 4")


def test_a_reset_forgets_the_spent_tokens() -> None:
    """The name begins anew also where something still refers to a guard that had it."""
    guard, callee = guarded(budget=RetryBudget(name="tests", burst=4)), Callee()
    callee.failures = 100
    call(guard, callee)
    (state,) = [state for state in registry.every_state() if state.name == guard.name]
    testing.reset()
    guard.call(Callee())

    assert state.conditions()[RetryBudget].words == "1 of 4 tokens"
    assert left(guard) == "4 of 4"


@pytest.mark.parametrize("name", ["", "hosts"])
def test_each_key_has_its_own_unless_it_has_a_name(name: str) -> None:
    """By rule B1 and rule N1."""
    guard = guarded(budget=RetryBudget(name=name, burst=3), partition_by=PartitionBy(lambda host: host))

    def fetch(host: str) -> str:
        attempts.append(host)
        if host == "down":
            raise OSError(host)
        return host

    attempts: list[str] = []
    call(guard, fetch, "down")
    call(guard, fetch, "down")
    tokens = []

    def shaky(host: str) -> str:
        tokens.append(host)
        if len(tokens) == 1:
            raise OSError(host)
        return host

    assert len(attempts) == 5
    assert call(guard, shaky, "up") == "up"
    assert len(tokens) == 2 if not name else len(tokens) == 1


# Beside it all


def test_it_belongs_to_retry() -> None:
    """By rule X9: alone it would do nothing, and give no sign of that."""
    with refused("@RetryBudget is used without @Retry"):
        Guard(retry_budget=RetryBudget())

    @retry_budget
    def alone() -> None: ...

    with refused("alone @RetryBudget is used without @Retry"):
        alone()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"ratio": 1.5}, "a number from 0 to 1"),
        ({"ratio": -0.1}, "a number from 0 to 1"),
        ({"ratio": "much"}, "a number from 0 to 1"),
        ({"ratio": float("nan")}, "a number from 0 to 1"),
        ({"burst": 0}, "an integer >= 1"),
        ({"burst": 2.5}, "an integer >= 1"),
        ({"burst": True}, "an integer >= 1"),
        ({"name": 7}, "a name, or none"),
        ({"name": None}, "a name, or none"),
    ],
)
def test_values_out_of_range_are_definition_errors(values: dict[str, Any], words: str) -> None:
    """By rule X9: they name the parameter, what was given and what is allowed."""
    (parameter,) = values
    with refused(words, f"RetryBudget({parameter})"):
        retry_budget(**values)(lambda: None)


def test_configured_values_hold_and_keep_the_tokens() -> None:
    """By rule X2: a reload sets new values, spent tokens stay spent, and a smaller burst cuts; ``name`` is no key."""
    guard, callee = guarded("acme.tokens", RetryBudget(burst=10)), Callee()
    callee.failures = 4
    call(guard, callee)
    assert left(guard) == "7 of 10"
    with configured({"acme.tokens/RetryBudget/burst": "5", "acme.tokens/RetryBudget/ratio": "1"}):
        assert left(guard) == "5 of 5"
        callee.failures = 4
        call(guard, callee)
        call(guard, callee)
        assert left(guard) == "3 of 5"
    assert left(guard) == "3 of 10"
    with configured({"acme.tokens/RetryBudget/name": "other"}):
        assert [one.key for one in validate()] == ["acme.tokens/RetryBudget/name"]
    with refused("acme.tokens/RetryBudget/ratio", "a number from 0 to 1"):
        configure(properties={"acme.tokens/RetryBudget/ratio": "2"})
    with configured({"acme.tokens/RetryBudget/enabled": "false"}):
        callee.failures = 300
        for _ in range(50):
            call(guard, callee)
        assert callee.attempts == 4 + 5 + 200
    guard.close()


def test_observed_it_counts_and_grants() -> None:
    """By rule X7: all retries are made; a retry that it would have refused is reported, and gives nothing back."""
    guard, callee = guarded("acme.observed", RetryBudget(0, burst=2)), Callee()
    with configured({"acme.observed/RetryBudget/mode": "observe"}):
        callee.failures = 3
        assert call(guard, callee) == "served"
        callee.failures = 4
        assert call(guard, callee) == "down"

        assert left(guard) == "0 of 2"
        assert counts(guard, "ft.observed.total") == {("RetryBudget",): 4}
        assert counts(guard, "ft.retry.budget.total") == {("retry", "granted"): 6}
    guard.close()


def test_its_tokens_are_shown() -> None:
    """By rule X10: in tenths of tokens; ``health()`` says where no retry can be paid."""
    guard, callee = guarded("acme.shown", RetryBudget(burst=3)), Callee()
    callee.failures = 4
    for _ in range(3):
        call(guard, callee)

    assert "RetryBudget (declared on acme.shown), now 0.4 of 3 tokens" in explain(guard)
    assert "acme.shown: RetryBudget is 0.4 of 3 tokens" in health().reasons
    guard.close()


def test_a_healthy_call_reads_whether_something_is_missing() -> None:
    """By rule X8: a budget adds only that to the code of a call, and without a budget nothing is added."""

    @retry
    def plain() -> None: ...

    @retry
    @retry_budget
    def budgeted() -> None: ...

    without, beside = (
        str(explain(one, source=True)).partition("def attempt")[2].splitlines() for one in (plain, budgeted)
    )

    assert without
    assert [line.strip() for line in beside if line not in without] == [
        "if policies.budget.missing:",
        "policies.budget.succeed()",
    ]


def test_blocks_of_a_loop_pay_and_a_single_block_does_not_ask() -> None:
    """By rule G2: each block but the first is a retry."""
    guard, blocks = guarded(budget=RetryBudget(burst=2)), 0
    with suppress(OSError):
        for attempt in guard.attempts():
            with attempt:
                blocks += 1
                raise OSError("down")
    with pytest.raises(OSError, match="alone"), guard.attempt():
        raise OSError("alone")

    assert blocks == 3
    assert left(guard) == "0 of 2"


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_keeps_the_tokens() -> None:
    """By rule L5: the child spends its own tokens."""
    from kit.program import QUIET, python

    done = python(
        QUIET
        + """
import os
from faulttolerance import Guard, explain
from faulttolerance.policies import Retry, RetryBudget
guard = Guard(retry=Retry(max_retries=1, jitter=0), retry_budget=RetryBudget(name="forked", burst=3), name="g")
def call():
    try:
        guard.call(lambda: 1 / 0)
    except ZeroDivisionError:
        pass
call()
pid = os.fork()
call()
print(str(explain(guard)).count("now 1 of 3 tokens"), flush=True)
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
"""
    )

    assert ("".join(done.stdout.split()), done.stderr) == ("11", "")


def test_calls_of_the_same_guard_inside_a_call_that_pays_are_counted() -> None:
    """A hook, a predicate and the body may call the same guard: nothing is lost, and nothing hangs."""
    depth = 0

    @retry(max_retries=1, delay=0, jitter=0)
    @retry_when(exception=lambda error: again("predicate"))
    @retry_budget(ratio=0)
    def called() -> None:
        again("body")
        raise OSError("down")

    def again(_: str) -> bool:
        nonlocal depth
        if depth < 3:
            depth += 1
            with pytest.raises(OSError, match="down"):
                called()
        return True

    again("first")

    assert "now 7 of 10 tokens" in explain(called)


def test_policies_of_a_class_count_for_each_method() -> None:
    """On a class, each method has a budget of its own, or all the one with the name."""

    @retry(max_retries=1, delay=0, jitter=0)
    @retry_budget(name="of the class", burst=2)
    class Client:
        def read(self) -> None:
            raise OSError("down")

        def write(self) -> None:
            raise OSError("down")

    for method in (Client().read, Client().write):
        with pytest.raises(OSError, match="down"):
            method()

    assert "now 0 of 2 tokens" in explain(Client, "write")
