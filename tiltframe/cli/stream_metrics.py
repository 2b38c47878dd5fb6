"""The metrics of a running stream: numbers of rows, dropped rows, windows and commits, and the watermarks."""

from __future__ import annotations

import time as clock
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiltframe.cli.output import time_or_dot
from tiltframe.cli.stream_inputs import SINGLE_INPUT
from tiltframe.cli.stream_losses import DroppedRows
from tiltframe.cli.stream_sinks import OutputSink, StoreSink
from tiltframe.metrics_text import metric_lines
from tiltframe.streaming.progress import Progress
from tiltframe.streaming.source_watermarks import SourceWatermarks

_REFRESH_SECONDS = 1.0
# If a batch or a commit takes more than this number of seconds, /healthz reports a failure.
_STUCK_SECONDS = 300.0
_MICROS = 1e6
Samples = list[tuple[dict[str, str], float]]


@dataclass
class StreamMetrics:
    """Metrics of a stream: counts since the start of the process, and the current windows and watermarks.
    ``row_counts`` has the number of rows that have arrived from each input.

    The thread of the stream calls `count_arrived` and `refresh`. Any thread may call `text`, `line` and `is_alive`.
    """

    sink: OutputSink | StoreSink
    losses: DroppedRows
    watermarks_of_inputs: SourceWatermarks
    row_counts: Counter[str] = field(default_factory=Counter)
    progress: Progress = field(default_factory=Progress)
    _initial_progress: Progress = field(default_factory=Progress)
    _initial_commits: int = 0
    _started: float = field(default_factory=clock.monotonic)
    _refreshed: float = 0.0
    _last_pass: float = field(default_factory=clock.monotonic)

    def __post_init__(self) -> None:
        """Store the counts of earlier processes. The saved state contains these counts, and they are later subtracted
        from the current counts.
        """
        self._initial_progress = self.progress = self.sink.windows.progress
        self._initial_commits = self._commits()
        self.row_counts.update(dict.fromkeys(self.watermarks_of_inputs.watermarks, 0))

    def count_arrived(self, source: str, rows: int) -> None:
        """Add ``rows`` to the number of rows that have arrived from ``source``. Late rows count too."""
        self.row_counts[source] += rows

    def refresh(self, now: bool = False) -> None:
        """Record that the stream is alive. Update the numbers of rows and windows in ``progress`` if a second has
        passed since their last update, or if ``now`` is true.
        """
        self._last_pass = clock.monotonic()
        if now or self._last_pass - self._refreshed >= _REFRESH_SECONDS:
            self.progress = self.sink.windows.progress
            self._refreshed = self._last_pass

    def dropped(self) -> dict[str, int]:
        """Return the number of dropped rows by reason: ``late``, ``bad``, or ``keys``. A row is dropped for the reason
        ``keys`` if it has a new key, and the stream already has the maximum number of keys.

        ``late`` and ``keys`` include the rows that earlier processes dropped, because the saved state contains these
        numbers. ``bad`` is counted since this process started.
        """
        return {
            "late": max(self.progress.late_rows, self.losses.late),
            "bad": 0 if self.losses.bad is None else self.losses.bad.count,
            "keys": self.progress.refused_rows,
        }

    def line(self) -> str:
        """Return the most important metrics as one line of text, for a terminal."""
        row_count = sum(self.row_counts.values())
        seconds = max(clock.monotonic() - self._started, 1e-9)
        windows = ", ".join(f"{level} {count:,}" for level, count in self.progress.open_windows.items()) or "·"
        dropped = " · ".join(f"{reason} {count:,}" for reason, count in self.dropped().items() if reason != "keys")
        at = time_or_dot(self.progress.watermark_us)
        return f"{row_count:,} rows, {row_count / seconds:,.0f}/s · watermark {at} · open {windows} · {dropped}"

    def is_alive(self) -> bool:
        """Return whether the stream has processed a batch, or looked for a new batch, in the last five minutes."""
        return clock.monotonic() - self._last_pass < _STUCK_SECONDS

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        progress = self.progress
        now = clock.time_ns() // 1000
        watermarks = {name: at for name, at in self.watermarks_of_inputs.watermarks.items() if at is not None}
        idle = set(self.watermarks_of_inputs.idle_sources(now))
        stream_watermark = [] if progress.watermark_us is None else [progress.watermark_us]
        lines = [
            *_counter(
                "rows",
                "Rows that this process has read, including late rows.",
                [(_input_labels(n), c) for n, c in self.row_counts.items()],
            ),
            *_counter(
                "dropped_rows", "Rows that were dropped.", [({"reason": r}, c) for r, c in self.dropped().items()]
            ),
            *_counter(
                "partly_late_rows",
                "Rows that came too late for windows of the finest level, and count on coarser levels only.",
                [({}, progress.partly_late_rows)],
            ),
            *_counter(
                "committed_again_rows",
                "Rows that were ignored because their windows are already committed.",
                [({}, progress.committed_rows - self._initial_progress.committed_rows)],
            ),
            *_counter(
                "emitted_rows", "Emitted rows.", [({}, progress.emitted_rows - self._initial_progress.emitted_rows)]
            ),
            *_counter("commits", "Commits to the store.", [({}, self._commits() - self._initial_commits)]),
            *_gauge("open_windows", "Open windows, one per key.", _by_level(progress.open_windows)),
            *_gauge("kept_windows", "Closed windows that are kept for late rows.", _by_level(progress.kept_windows)),
            *_gauge("keys", "Distinct keys of the windows in memory.", [({}, progress.keys)]),
            *_gauge("state_bytes", "Bytes of the windows in memory.", [({}, progress.state_bytes)]),
            *_gauge(
                "watermark_seconds", "The watermark, in Unix seconds.", [({}, at / _MICROS) for at in stream_watermark]
            ),
            *_gauge(
                "watermark_age_seconds",
                "Seconds by which the watermark is behind the clock.",
                [({}, (now - at) / _MICROS) for at in stream_watermark],
            ),
            *_gauge(
                "input_watermark_seconds",
                "The watermark of each input, in Unix seconds.",
                [(_input_labels(name), at / _MICROS) for name, at in watermarks.items()],
            ),
            *_gauge(
                "input_idle",
                "1 if an input had no rows for the time of --idle, else 0.",
                [(_input_labels(n), n in idle) for n in self.row_counts],
            ),
        ]
        return "\n".join(lines) + "\n"

    def _commits(self) -> int:
        return self.sink.closed.commit_number if isinstance(self.sink, StoreSink) else 0


def _input_labels(name: str) -> dict[str, str]:
    """Return the Prometheus labels of an input. The result is empty if ``--input`` is not used."""
    return {} if name == SINGLE_INPUT else {"input": name}


def _by_level(counts: Mapping[str, int]) -> Samples:
    return [({"level": level}, count) for level, count in counts.items()]


def _counter(name: str, help: str, samples: Samples) -> list[str]:
    return metric_lines(f"tiltframe_stream_{name}_total", help=help, kind="counter", samples=samples)


def _gauge(name: str, help: str, samples: Samples) -> list[str]:
    return metric_lines(f"tiltframe_stream_{name}", help=help, kind="gauge", samples=samples)
