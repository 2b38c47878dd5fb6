"""The harness that runs laws. A law is a function of a case, which raises `LawBroken` if the law does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

C = TypeVar("C")


class LawBroken(AssertionError):
    """The error for a function or a kind of window that breaks a law. The message names the law and the failure."""


def require(condition: bool, otherwise: str) -> None:
    """Raise `LawBroken` with the message ``otherwise`` unless a condition is true."""
    if not condition:
        raise LawBroken(otherwise)


def check_laws(
    subject: str, laws: Iterable[Callable[[C], None]], case: Callable[[], C], case_description: str = ""
) -> None:
    """Check laws. ``case`` returns a new case for each law.

    Raise `LawBroken` for the first law that does not hold. The message names ``subject`` and the law.
    ``case_description`` is appended to the name of the law, for example " (seed 3)".
    """
    for law in laws:
        try:
            law(case())
        except LawBroken as broken:
            raise LawBroken(f"{subject} breaks the law {law.__name__!r}{case_description}: {broken}") from None
        except Exception as error:
            error.add_note(f"raised by {subject} in the law {law.__name__!r}{case_description}")
            raise
