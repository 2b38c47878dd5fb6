"""Inspecting: report the contents of a store, level by level.

The states of a store are stored in parts. A part consists of states of one level that were written together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np

from tiltframe.instants import instants_of
from tiltframe.ranges import EVER, Range
from tiltframe.store.backends.protocol import Backend
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import column_starts, expired_before
from tiltframe.store.log.run import retry_on_conflict, snapshot_of
from tiltframe.store.log.snapshot import pieces_of
from tiltframe.store.log.stream_watermarks import watermarks_of
from tiltframe.store.query.merging import groups_to_compact
from tiltframe.text.html_table import html_table

# entries of the manifest that are left out of the JSON, because users do not need them
_NOT_REPORTED = ("id", "schema", "checksum", "dropped", "earlier")


@dataclass(frozen=True)
class LevelReport:
    """The contents of a level.

    Parameters
    ----------
    level : str
    first, end : int or None
        The start of the first window and the end of the last one, in microseconds UTC; None if there are no windows.
    windows, rows, parts, bytes : int
        The number of windows that have states, the number of rows of states, the number of parts, and the approximate
        size of the parts in bytes.
    waiting : int
        The number of parts that compaction will merge once their windows are closed.
    gaps : ranges
        Ranges without windows, between the first and the last window.
    retention : str or None
        How long windows are kept; None means for ever.
    expired : int or None
        The time before which the windows of the level have expired, in microseconds UTC; None if no windows have
        expired.
    """

    level: str
    first: int | None
    end: int | None
    windows: int
    rows: int
    parts: int
    bytes: int
    waiting: int
    gaps: tuple[Range, ...]
    retention: str | None
    expired: int | None


@dataclass(frozen=True, repr=False)
class Report:
    """The contents of a store.

    Parameters
    ----------
    uri : str
    manifest : Manifest
    levels : tuple of LevelReport
    known_from : measure -> int
        For each measure that was added to the store later, the time in microseconds UTC before which its results are
        null. A measure that has a state in all rows has no entry.
    watermarks : stream -> int
        For each stream that writes to the store and has recorded a watermark, the time before which the stream has
        closed its windows, in microseconds UTC.
    """

    uri: str
    manifest: Manifest
    levels: tuple[LevelReport, ...]
    known_from: Mapping[str, int]
    watermarks: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        levels = ", ".join(f"{level.level}: {level.windows:,} windows, {level.rows:,} rows" for level in self.levels)
        return f"Report({self.uri!r}; {levels})"

    def _repr_html_(self) -> str:
        names = ("level", "windows", "rows", "bytes", "parts", "waiting")
        return html_table(names, ([getattr(level, name) for name in names] for level in self.levels))

    def to_json(self) -> str:
        """Return the report as JSON, with times in microseconds UTC."""
        described = {key: value for key, value in self.manifest.to_dict().items() if key not in _NOT_REPORTED}
        levels = [asdict(level) for level in self.levels]
        members = {"known_from": self.known_from, "watermarks": self.watermarks, "levels": levels}
        return json.dumps({"uri": self.uri, **described, **members}, indent=1)


def inspect(backend: Backend, manifest: Manifest) -> Report:
    """Return a report of all levels. Only the starts of windows are read."""
    levels = retry_on_conflict(lambda: tuple(_levels(backend, manifest)))
    snapshot = snapshot_of(backend)
    frame = manifest.frame
    since = column_starts(snapshot)
    first_known = {name: since[column] for name in frame.measures if (column := frame.state_of(name)) in since}
    return Report(
        uri=backend.display_uri,
        manifest=manifest,
        levels=levels,
        known_from=first_known,
        watermarks=watermarks_of(snapshot),
    )


def _levels(backend: Backend, manifest: Manifest) -> list[LevelReport]:
    """Return the report of each level, from the finest level to the coarsest."""
    snapshot = snapshot_of(backend)
    reports = []
    for level in manifest.frame.levels:
        parts = snapshot.of(level.name)
        starts = np.unique(instants_of(backend.read(pieces_of(parts, [EVER]), [])))
        window_ends = level.ends(starts)
        before_gap = window_ends[:-1] < starts[1:]
        gaps = zip(window_ends[:-1][before_gap].tolist(), starts[1:][before_gap].tolist(), strict=True)
        reports.append(
            LevelReport(
                level=level.name,
                first=int(starts[0]) if len(starts) else None,
                end=int(window_ends[-1]) if len(starts) else None,
                windows=len(starts),
                rows=sum(part.rows for part in parts),
                parts=len(parts),
                bytes=sum(part.bytes for part in parts),
                waiting=sum(map(len, groups_to_compact(parts, level))),
                gaps=tuple(gaps),
                retention=manifest.retention.get(level.name),
                expired=expired_before(snapshot).get(level.name),
            )
        )
    return reports
