"""Specification, inheritance of annotations: the decorators of a class, and the objects that share their state.

A base class, a subclass and an override are combined in every way, and called in every convention. A method that is
reached through ``super()`` runs plainly, as under CDI: no second circuit counts it, and no second retry repeats it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from faulttolerance import CircuitBreakerOpenException, circuit_breaker, retry
from kit import Invoke, Service, TestException, stacked

Decorator = Callable[[Any], Any]
Body = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class Classes:
    """The decorators of each class and method; ``None`` where there is none."""

    on_base: Decorator | None = None
    on_base_method: Decorator | None = None
    has_subclass: bool = False
    on_subclass: Decorator | None = None
    overrides: bool = False
    """Whether the subclass has a method of its own, which only calls ``super()``."""
    on_override: Decorator | None = None


def under_test(classes: Classes, invoke: Invoke, work: Body) -> Any:
    """Return the class under test; the method of its base counts its executions and does *work*."""

    @_if_any(classes.on_base)
    class Base(Service):
        @_if_any(classes.on_base_method)
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            await work(self)

        @invoke.body
        async def delegate(self) -> None:
            raise TestException

    if not classes.has_subclass:
        return Base

    if not classes.overrides:

        @_if_any(classes.on_subclass)
        class Derived(Base):
            pass

        return Derived

    @_if_any(classes.on_subclass)
    class Overriding(Base):
        @_if_any(classes.on_override)
        @invoke.body
        async def service(self) -> None:
            await end_of(super().service(), invoke)

    return Overriding


def _if_any(decorator: Decorator | None) -> Decorator:
    return stacked() if decorator is None else decorator


async def end_of(pending: Any, invoke: Invoke) -> None:
    """Wait, in a body, for the end of a call of another body."""
    if invoke.is_on_loop:
        await pending
    elif invoke.is_detached:
        pending.result(30)


# Circuit breakers

_4, _8, _16, _50 = (circuit_breaker(request_volume_threshold=number) for number in (4, 8, 16, 50))


async def _fail(_: Any) -> None:
    raise OSError("the service is down")


@pytest.mark.parametrize(
    ("classes", "instances", "calls", "afterwards"),
    [
        pytest.param(
            Classes(on_base=_8),
            4,
            8,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnClass"),
            id="circuitBreakerOnClass",
        ),
        pytest.param(
            Classes(on_base=_8, has_subclass=True, on_subclass=_4),
            2,
            4,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnClassOverrideOnClass"),
            id="circuitBreakerOnClassOverrideOnClass",
        ),
        pytest.param(
            Classes(on_base=_8, has_subclass=True, on_subclass=_4, overrides=True),
            2,
            4,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck(
                "CircuitBreakerLifecycleTest.circuitBreakerOnClassOverrideOnClassWithOverriddenMethod"
            ),
            id="circuitBreakerOnClassOverrideOnClassWithOverriddenMethod",
        ),
        pytest.param(
            Classes(on_base=_8, has_subclass=True, on_subclass=_50, overrides=True, on_override=_4),
            2,
            4,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnClassOverrideOnMethod"),
            id="circuitBreakerOnClassOverrideOnMethod",
        ),
        pytest.param(
            Classes(on_base=_8, has_subclass=True, overrides=True),
            4,
            8,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnClassMissingOnOverriddenMethod"),
            id="circuitBreakerOnClassMissingOnOverriddenMethod",
        ),
        pytest.param(
            Classes(on_base=_8, has_subclass=True),
            4,
            8,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnClassNoRedefinition"),
            id="circuitBreakerOnClassNoRedefinition",
        ),
        pytest.param(
            Classes(on_base_method=_8),
            4,
            8,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnMethod"),
            id="circuitBreakerOnMethod",
        ),
        pytest.param(
            Classes(on_base_method=_8, has_subclass=True, on_subclass=_4),
            4,
            8,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnMethodOverrideOnClass"),
            id="circuitBreakerOnMethodOverrideOnClass",
        ),
        pytest.param(
            Classes(on_base_method=_8, has_subclass=True, on_subclass=_4, overrides=True),
            2,
            4,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck(
                "CircuitBreakerLifecycleTest.circuitBreakerOnMethodOverrideOnClassWithOverriddenMethod"
            ),
            id="circuitBreakerOnMethodOverrideOnClassWithOverriddenMethod",
        ),
        pytest.param(
            Classes(on_base_method=_8, has_subclass=True, on_subclass=_50, overrides=True, on_override=_4),
            2,
            4,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnMethodOverrideOnMethod"),
            id="circuitBreakerOnMethodOverrideOnMethod",
        ),
        pytest.param(
            Classes(on_base_method=_8, has_subclass=True, overrides=True),
            50,
            100,
            OSError,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnMethodMissingOnOverriddenMethod"),
            id="circuitBreakerOnMethodMissingOnOverriddenMethod",
        ),
        pytest.param(
            Classes(on_base_method=_8, has_subclass=True),
            4,
            8,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnMethodNoRedefinition"),
            id="circuitBreakerOnMethodNoRedefinition",
        ),
        pytest.param(
            Classes(on_base=_16, on_base_method=_8),
            4,
            8,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnClassAndMethod"),
            id="circuitBreakerOnClassAndMethod",
        ),
        pytest.param(
            Classes(on_base=_16, on_base_method=_8, has_subclass=True, on_subclass=_4),
            4,
            8,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnClassAndMethodOverrideOnClass"),
            id="circuitBreakerOnClassAndMethodOverrideOnClass",
        ),
        pytest.param(
            Classes(on_base=_16, on_base_method=_8, has_subclass=True, on_subclass=_4, overrides=True),
            2,
            4,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck(
                "CircuitBreakerLifecycleTest.circuitBreakerOnClassAndMethodOverrideOnClassWithOverriddenMethod"
            ),
            id="circuitBreakerOnClassAndMethodOverrideOnClassWithOverriddenMethod",
        ),
        pytest.param(
            Classes(on_base=_16, on_base_method=_8, has_subclass=True, overrides=True, on_override=_4),
            2,
            4,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnClassAndMethodOverrideOnMethod"),
            id="circuitBreakerOnClassAndMethodOverrideOnMethod",
        ),
        pytest.param(
            Classes(on_base=_16, on_base_method=_8, has_subclass=True, overrides=True),
            8,
            16,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck(
                "CircuitBreakerLifecycleTest.circuitBreakerOnClassAndMethodMissingOnOverriddenMethod"
            ),
            id="circuitBreakerOnClassAndMethodMissingOnOverriddenMethod",
        ),
        pytest.param(
            Classes(on_base=_16, on_base_method=_8, has_subclass=True),
            4,
            8,
            CircuitBreakerOpenException,
            marks=pytest.mark.tck("CircuitBreakerLifecycleTest.circuitBreakerOnClassAndMethodNoRedefinition"),
            id="circuitBreakerOnClassAndMethodNoRedefinition",
        ),
    ],
)
def test_circuit_of_a_class_is_the_one_declared_nearest(
    classes: Classes, instances: int, calls: int, afterwards: type[Exception], invoke: Invoke
) -> None:
    """All instances share one circuit, which opens when its window, told apart by its size, is full.

    The method's decorator goes before that of its class, the subclass's before that of its base. A class's decorator is
    inherited, also by overrides; a method's goes with the method, and is lost to an override that does not repeat it.
    """
    client_class = under_test(classes, invoke, _fail)
    clients = [client_class() for _ in range(instances)]
    counted = [invoke.outcome(clients[number % instances].service) for number in range(calls)]
    executions = sum(client.executions for client in clients)
    then = [invoke.outcome(client.service) for client in clients]

    assert counted == [OSError] * calls
    assert executions == calls
    assert then == [afterwards] * instances


# Retries

_DEFAULT, _R4, _R5 = retry(), retry(max_retries=4), retry(max_retries=5)


@pytest.mark.parametrize(
    ("classes", "executions"),
    [
        pytest.param(
            Classes(on_base=_DEFAULT),
            4,
            marks=pytest.mark.tck("RetryVisibilityTest.baseRetryServiceUsesDefaults"),
            id="baseRetryServiceUsesDefaults",
        ),
        pytest.param(
            Classes(on_base=_DEFAULT, has_subclass=True),
            4,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceDerivedClassNoRedefinition"),
            id="serviceDerivedClassNoRedefinition",
        ),
        pytest.param(
            Classes(on_base=_DEFAULT, has_subclass=True, on_subclass=_R4),
            5,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceOverrideClassLevelUsesClassLevelAnnotation"),
            id="serviceOverrideClassLevelUsesClassLevelAnnotation",
        ),
        pytest.param(
            Classes(on_base=_DEFAULT, has_subclass=True, on_subclass=_R4, overrides=True),
            5,
            marks=pytest.mark.tck(
                "RetryVisibilityTest.serviceOverrideClassLevelUsesClassLevelAnnotationWithMethodOverride"
            ),
            id="serviceOverrideClassLevelUsesClassLevelAnnotationWithMethodOverride",
        ),
        pytest.param(
            Classes(on_base=_DEFAULT, has_subclass=True, on_subclass=_R5, overrides=True, on_override=_R4),
            5,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceOverrideMethodLevelUsesMethodLevelAnnotation"),
            id="serviceOverrideMethodLevelUsesMethodLevelAnnotation",
        ),
        # it is not removed: the class's holds for overrides too
        pytest.param(
            Classes(on_base=_DEFAULT, has_subclass=True, overrides=True),
            4,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceRetryRemovedAtMethodLevel"),
            id="serviceRetryRemovedAtMethodLevel",
        ),
        pytest.param(
            Classes(on_base_method=_DEFAULT),
            4,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceBaseROM"),
            id="serviceBaseROM",
        ),
        pytest.param(
            Classes(on_base_method=_DEFAULT, has_subclass=True, overrides=True),
            1,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceBaseROMRetryMissingOnMethod"),
            id="serviceBaseROMRetryMissingOnMethod",
        ),
        # overrides: in the official kit the qualifiers of this case and the next are crossed
        pytest.param(
            Classes(on_base_method=_DEFAULT, has_subclass=True, on_subclass=_R4, overrides=True),
            5,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceBaseROMOverridedClassLevelNoMethodOverride"),
            id="serviceBaseROMOverridedClassLevelNoMethodOverride",
        ),
        pytest.param(
            Classes(on_base_method=_DEFAULT, has_subclass=True, on_subclass=_R4),
            4,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceBaseROMOverridedClassLevelMethodOverride"),
            id="serviceBaseROMOverridedClassLevelMethodOverride",
        ),
        pytest.param(
            Classes(on_base_method=_DEFAULT, has_subclass=True, overrides=True, on_override=_R4),
            5,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceBaseROMOverridedMethodLevel"),
            id="serviceBaseROMOverridedMethodLevel",
        ),
        pytest.param(
            Classes(on_base_method=_DEFAULT, has_subclass=True),
            4,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceBaseROMNoRedefinition"),
            id="serviceBaseROMNoRedefinition",
        ),
        pytest.param(
            Classes(on_base=_DEFAULT, on_base_method=_R4),
            5,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceBaseROCM"),
            id="serviceBaseROCM",
        ),
        pytest.param(
            Classes(on_base=_DEFAULT, on_base_method=_R4, has_subclass=True),
            5,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceBaseROCMNoRedefinition"),
            id="serviceBaseROCMNoRedefinition",
        ),
        pytest.param(
            Classes(on_base=_DEFAULT, on_base_method=_R4, has_subclass=True, on_subclass=_R5),
            5,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceBaseROCMOverridedClassLevelNoMethodOverride"),
            id="serviceBaseROCMOverridedClassLevelNoMethodOverride",
        ),
        pytest.param(
            Classes(on_base=_DEFAULT, on_base_method=_R4, has_subclass=True, on_subclass=_R5, overrides=True),
            6,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceBaseROCMOverridedClassLevelMethodOverride"),
            id="serviceBaseROCMOverridedClassLevelMethodOverride",
        ),
        pytest.param(
            Classes(on_base=_DEFAULT, on_base_method=_R4, has_subclass=True, overrides=True),
            4,
            marks=pytest.mark.tck("RetryVisibilityTest.serviceBaseROCMRetryMissingOnMethod"),
            id="serviceBaseROCMRetryMissingOnMethod",
        ),
    ],
)
def test_retry_of_a_class_is_the_one_declared_nearest(classes: Classes, executions: int, invoke: Invoke) -> None:
    """The number of executions tells which decorator was in force, and that it was so once.

    ``delegate`` has no decorator of its own, but that of the class holds for it: here a call through ``self`` is
    guarded, in Java it is not. So it is tried more often, and its caller no more often.
    """

    async def work(client: Any) -> None:
        await end_of(client.delegate(), invoke)

    client = under_test(classes, invoke, work)()
    with pytest.raises(TestException):
        invoke(client.service)

    assert client.executions == executions
