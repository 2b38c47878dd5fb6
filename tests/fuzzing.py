"""The number of damaged inputs that tests try: ``FUZZ=100`` multiplies it by 100, and pytest prints the number."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

TIMES = int(os.environ.get("FUZZ", "1"))
tried: Counter[str] = Counter()


def inputs(what: str, count: int) -> Iterator[int]:
    """Number the inputs of one kind, ``FUZZ`` times as many as the suite tries, and count them."""
    for number in range(count * TIMES):
        tried[what] += 1
        yield number


def summary() -> str:
    """Say how many were tried."""
    kinds = ", ".join(f"{count:,} {what}" for what, count in tried.items())
    return f"{tried.total():,} damaged inputs were tried: {kinds}"
