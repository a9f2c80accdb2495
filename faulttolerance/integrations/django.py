"""What services of Django need of the library."""

from __future__ import annotations

from ._django_atomic import refuse_retries_in_atomic as refuse_retries_in_atomic

__all__ = ["refuse_retries_in_atomic"]
