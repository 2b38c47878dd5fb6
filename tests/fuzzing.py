"""The number of damaged inputs that tests try: ``FUZZ=100`` multiplies it by 100, and pytest prints the number."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

TIMES = int(os.environ.get("FUZZ", "1"))
tried_counts: Counter[str] = Counter()


def inputs(kind: str, count: int) -> Iterator[int]:
    """Yield the numbers of the inputs of one kind, in [0, `TIMES` × ``count``), and count them in `tried_counts`."""
    for number in range(count * TIMES):
        tried_counts[kind] += 1
        yield number


def summary() -> str:
    """Return a sentence with the numbers of damaged inputs of each kind."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in tried_counts.items())
    return f"{tried_counts.total():,} damaged inputs were tried: {kinds}"
