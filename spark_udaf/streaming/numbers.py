"""Numbers of open windows: how each shard tells its own, and how they are read from a query's progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tiltframe.streaming import Progress

OBSERVED = "tiltframe"  # the name of a stream's numbers in Spark's own progress
WATERMARK = "watermark"

_SUMS = ("rows", "late_rows", "moved_rows", "refused_rows", "emitted_rows", "keys", "state_bytes")
_BY_LEVEL = ("open_windows", "kept_windows")


def names_of(levels: Sequence[str]) -> list[str]:
    """Name the numbers of a stream; all but the watermark are summed over the shards."""
    return [*_SUMS, WATERMARK, *(f"{kind} {level}" for kind in _BY_LEVEL for level in levels)]


def counted(progress: Progress) -> dict[str, int | None]:
    """Give the numbers of a shard by name."""
    numbers = {name: getattr(progress, name) for name in _SUMS} | {WATERMARK: progress.watermark_us}
    by_level = {f"{kind} {level}": n for kind in _BY_LEVEL for level, n in getattr(progress, kind).items()}
    return numbers | by_level


def read_counted(numbers: Mapping[str, int | None]) -> Progress:
    """Read a stream's numbers, put together from those of its shards."""
    counts: dict[str, Any] = {name: numbers[name] or 0 for name in _SUMS}
    for kind in _BY_LEVEL:
        begin = f"{kind} "
        counts[kind] = {name.removeprefix(begin): n or 0 for name, n in numbers.items() if name.startswith(begin)}
    return Progress(**counts, watermark_us=numbers[WATERMARK])
