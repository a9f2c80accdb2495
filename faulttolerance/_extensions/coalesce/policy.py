"""The policy of ``@coalesce``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import final

from ..._policy.kind import key, kinds
from ..._policy.parameter import Policy


@final
class Coalesce(Policy):
    """Share one execution among overlapping calls of one function with equal keys.

    Args:
        key: The key of a call: a callable with the parameters of the function, the name of one of them, or several
            names; ``None`` for the object or class on which the function is called, by identity, and all arguments.
    """

    _kinds = kinds(
        key=key(),
    )

    key: Callable[..., Hashable] | str | Sequence[str] | None = None
