"""The policy of ``@coalesce``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import final

from ..._policy.kind import key, kinds
from ..._policy.parameter import Policy


@final
class Coalesce(Policy):
    """Let calls of one function with one key that overlap be one call.

    Args:
        key: What tells calls apart: a callable with the parameters of the function, the name of one of them, or several
            names; ``None``: the object or class on which it is called, by identity, and all arguments.
    """

    _kinds = kinds(
        key=key(),
    )

    key: Callable[..., Hashable] | str | Sequence[str] | None = None
