"""Reports of dropped rows on standard error: a warning for the first late row, the counts once a minute, and the counts
at the end.
"""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field

import click
import pyarrow as pa

from tiltframe.cli.output import time_or_dot
from tiltframe.event_time import event_times
from tiltframe.files.bad_rows import BadRows
from tiltframe.frame import TiltFrame
from tiltframe.ordered.query import OrderedQuery
from windows.timezone import Instants

_REPORT_SECONDS = 60.0  # the minimum number of seconds between two reports


@dataclass
class DroppedRows:
    """Counts the rows that were dropped as late, and prints this count together with the count of bad rows."""

    # the frame, from which the name of the time column and the time zone of the windows are read
    row_frame: TiltFrame | OrderedQuery
    bad: BadRows | None
    # the file to which dropped rows are appended
    file: str | None
    # whether --disorder was passed; if it was, the watermark stays behind the newest event
    has_disorder: bool
    late: int = 0
    _reported: tuple[int, int] = (0, 0)
    _last_check: float = field(default_factory=clock.monotonic)

    def count_late(self, late_rows: pa.Table, watermark: int | None) -> None:
        """Count rows that are dropped as late, and print a warning for the first one. ``watermark`` is in microseconds
        UTC.
        """
        if late_rows.num_rows and not self.late:
            behind = time_or_dot(int(self._times(late_rows)[0]))
            more = "a longer --disorder" if self.has_disorder else "--disorder TIME"
            click.echo(
                f"tiltframe: warning: a row with the time {behind} came late, behind the watermark "
                f"{time_or_dot(watermark)}, and is dropped; with {more}, windows are closed later; with --late "
                "'drop(TIME)', closed windows accept such rows",
                err=True,
            )
        self.late += late_rows.num_rows

    def report(self) -> None:
        """Print the counts of late and bad rows if they have changed since they were last printed. This is checked at
        most once a minute; other calls do nothing.
        """
        if clock.monotonic() - self._last_check >= _REPORT_SECONDS:
            self._last_check = clock.monotonic()
            if self._late_and_bad() != self._reported:
                self._print(" so far")

    def end(self) -> None:
        """Print those counts of late and bad rows that are not 0."""
        self._print("")

    def _times(self, rows: pa.Table) -> Instants:
        time = self.row_frame.time
        return event_times(rows.column(time), time, self.row_frame.timezone)

    def _late_and_bad(self) -> tuple[int, int]:
        return self.late, 0 if self.bad is None else self.bad.count

    def _print(self, when: str) -> None:
        self._reported = self._late_and_bad()
        if self.bad is not None and (summary := self.bad.summary()):
            click.echo(f"tiltframe: {summary}{when}", err=True)
        if self.late:
            place = "" if self.file is None else f", and kept in {self.file}"
            click.echo(f"tiltframe: {self.late:,} late rows were dropped{place}{when}", err=True)
