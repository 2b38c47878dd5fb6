"""What a stream has done so far, in numbers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Progress:
    """What a stream has done so far, and what it holds.

    Parameters
    ----------
    rows : int
        That came, the late ones included.
    late_rows : int
        Dropped, because none of their windows was kept.
    moved_rows : int
        Older than a buffer, and counted in its oldest window.
    refused_rows : int
        Dropped, because their keys are beyond ``max_keys``.
    committed_rows : int
        Not taken, because a store holds them already.
    emitted_rows : int
        Rows of emitted tables, retractions included.
    open_windows : level -> int
        Windows and keys that are not closed. Under a buffer a coarser window is open once a window of the level below
        has closed in it: until then its rows are still in that one.
    kept_windows : level -> int
        Closed, and kept for late events.
    keys : int
        Distinct keys among the windows that are held.
    watermark_us : int, optional
        Microseconds UTC, as `OpenWindows.advance` received it, or None before the first; `watermark` has it as a time.
    state_bytes : int
        Of the tables that are held, in memory.
    """

    rows: int = 0
    late_rows: int = 0
    moved_rows: int = 0
    refused_rows: int = 0
    committed_rows: int = 0
    emitted_rows: int = 0
    open_windows: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    kept_windows: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    keys: int = 0
    watermark_us: int | None = None
    state_bytes: int = 0

    @property
    def watermark(self) -> dt.datetime | None:
        """The watermark in UTC; None before the first, and once all windows were closed (`OpenWindows.close`)."""
        try:
            return None if self.watermark_us is None else _EPOCH + dt.timedelta(microseconds=self.watermark_us)
        except OverflowError:  # of a year that datetime has not
            return None

    def as_dict(self) -> dict[str, Any]:
        """Give the numbers as plain data, for JSON and for a query's progress; the watermark as ISO 8601."""
        counts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "watermark_us"}
        plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in counts.items()}
        return plain | {"watermark": None if self.watermark is None else self.watermark.isoformat()}
