"""Errors as Prometheus has them: a kind, a status and a sentence."""

from __future__ import annotations

from typing import ClassVar


class PromQLError(ValueError):
    """A request that is not answered."""

    kind: ClassVar[str]
    status: ClassVar[int]


class BadData(PromQLError):
    """What was given cannot be read."""

    kind = "bad_data"
    status = 400


class Unanswerable(PromQLError):
    """What was given can be read, but is no merge of states, or too much."""

    kind = "execution"
    status = 422


class OutOfTime(PromQLError):
    """It took longer than it may."""

    kind = "timeout"
    status = 503
