"""Reports of late rows of `tiltframe stream --spark` on standard error: at the first late row, once a minute, and at
the end.
"""

from __future__ import annotations

import sys
import time as clock
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_udaf.streaming.progress import IntoProgress, progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_CHECK_SECONDS = 1
_REPORT_SECONDS = 60.0


@dataclass
class LateRowReporter:
    """Reports the number of late rows that a query on the result of `spark_udaf.stream` has dropped.

    Rows are counted from the creation of the checkpoint, so the number includes rows that were dropped before a
    restart.
    """

    query: StreamingQuery
    has_disorder: bool  # whether the watermark has a delay; the warning then advises a longer one
    _reported_count: int = 0
    _last_report: float = field(default_factory=clock.monotonic)

    def await_query_end(self) -> None:
        """Wait until the query ends, and report late rows while it runs. Raise the error of the query if it fails."""
        try:
            while not self.query.awaitTermination(_CHECK_SECONDS):
                self._report()
        finally:
            # An error of the last report must not replace the error of the query. The report fails, for example, if
            # the session has stopped.
            with suppress(Exception):
                self._report(is_end=True)

    def _report(self, is_end: bool = False) -> None:
        numbers = progress(self.query)
        count = 0 if isinstance(numbers, IntoProgress) else numbers.late_rows
        is_due = is_end or clock.monotonic() - self._last_report >= _REPORT_SECONDS
        if count and not self._reported_count:
            option = "a longer --disorder" if self.has_disorder else "--disorder TIME"
            print(
                f"tiltframe: warning: rows behind the watermark arrived late and are dropped; use {option} to wait "
                f"for such rows, or --late 'drop(TIME)' to let closed windows accept them",
                file=sys.stderr,
                flush=True,
            )
            self._reported_count = 1
        if is_due and count and (is_end or count != self._reported_count):
            print(f"tiltframe: {count:,} late rows were dropped since the stream began", file=sys.stderr, flush=True)
            self._reported_count = count
        if is_due:
            self._last_report = clock.monotonic()
