"""Running laws. Each law is a function of a case; the error names the first law that does not hold, and describes the
failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

C = TypeVar("C")


class LawBroken(AssertionError):
    """A function or a kind of window broke a law; the message names the law and describes the failure."""


def holds(condition: bool, otherwise: str) -> None:
    """Raise `LawBroken` unless a condition is true."""
    if not condition:
        raise LawBroken(otherwise)


def obey(subject: str, laws: Iterable[Callable[[C], None]], case: Callable[[], C], where: str = "") -> None:
    """Check laws, each with a new case; raises `LawBroken`, which names the law."""
    for law in laws:
        try:
            law(case())
        except LawBroken as broken:
            raise LawBroken(f"{subject} breaks the law {law.__name__!r}{where}: {broken}") from None
