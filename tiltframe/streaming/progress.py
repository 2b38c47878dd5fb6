"""The progress of a stream: its numbers of rows, windows, keys and bytes, and its watermark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Progress:
    """The numbers of rows that a stream has received, dropped and emitted, and the windows, keys and bytes in memory.

    Parameters
    ----------
    rows : int
        The number of rows that arrived, including late rows.
    late_rows : int
        The number of rows that were dropped because none of their windows was in memory any more.
    partly_late_rows : int
        The number of rows that count on coarser levels only, because their windows on the finest level were not in
        memory any more. The counts of finer windows therefore add up to less than those of coarser ones.
    moved_rows : int
        The number of rows that count in a later window than the window that contains their time. The late policy
        ``buffer`` moves rows that are older than its oldest window to this window.
    refused_rows : int
        The number of rows that were dropped because there were more than ``max_keys`` keys.
    committed_rows : int
        The number of rows that were ignored because a store already has them.
    emitted_rows : int
        The number of rows in emitted tables, including retractions.
    refused_values : int
        The number of values that measures with ``bad_values="skip"`` have skipped. Values in dropped rows do not count.
    results_beyond_limit : int
        The number of emitted results that are null because their window has more values than a limit of the measure. A
        window counts each time that it is emitted.
    open_windows : level -> int
        The number of open windows of each level. A window with several keys counts once per key. With the late policy
        ``buffer``, a coarser window opens when the first window of the next finer level closes in it.
    kept_windows : level -> int
        The number of closed windows of each level that are kept in memory for late events. A window with several keys
        counts once per key.
    keys : int
        The number of different keys of the windows in memory.
    watermark_us : int, optional
        The watermark that `OpenWindows.advance` received, in microseconds UTC, or None before the first watermark. The
        property `watermark` has the same time as a datetime.
    state_bytes : int
        The size of the tables in memory, in bytes.
    """

    rows: int = 0
    late_rows: int = 0
    partly_late_rows: int = 0
    moved_rows: int = 0
    refused_rows: int = 0
    committed_rows: int = 0
    emitted_rows: int = 0
    refused_values: int = 0
    results_beyond_limit: int = 0
    open_windows: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    kept_windows: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    keys: int = 0
    watermark_us: int | None = None
    state_bytes: int = 0

    @property
    def watermark(self) -> dt.datetime | None:
        """The watermark as a datetime in UTC. None before the first watermark, and after `OpenWindows.close`, which
        moves the watermark beyond the range of datetime.
        """
        try:
            return None if self.watermark_us is None else _EPOCH + dt.timedelta(microseconds=self.watermark_us)
        except OverflowError:  # `datetime` does not support years after 9999.
            return None

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as a dictionary that can be written as JSON, for example in the progress of a Spark query.
        The watermark is a text in ISO 8601.
        """
        counts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "watermark_us"}
        plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in counts.items()}
        return plain | {"watermark": None if self.watermark is None else self.watermark.isoformat()}
