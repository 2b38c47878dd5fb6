"""Inspecting: what a store holds, level by level."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from tiltframe.frame import START
from tiltframe.store.compact import again
from tiltframe.store.description import Description
from tiltframe.store.tables import EXPIRED, MERGED, Range, Tables


@dataclass(frozen=True)
class LevelReport:
    """What a level holds.

    Parameters
    ----------
    level : str
    first, end : int or None
        Start of its first window and end of its last one, microseconds UTC; None if it holds none.
    windows, rows, parts, bytes : int
        Windows with events, rows of states, the parts they are in, and what these take.
    commits : int
        That are still apart, until compaction merges them.
    behind : int
        Commits that finer levels hold and this one does not yet.
    gaps : ranges
        Without windows, between the first and the last.
    retention : str or None
        How long windows are kept; None is for ever.
    expired : int or None
        The time before which it holds no windows any more, microseconds UTC.
    """

    level: str
    first: int | None
    end: int | None
    windows: int
    rows: int
    parts: int
    bytes: int
    commits: int
    behind: int
    gaps: tuple[Range, ...]
    retention: str | None
    expired: int | None


@dataclass(frozen=True)
class Report:
    """What a store holds."""

    uri: str
    description: Description
    levels: tuple[LevelReport, ...]

    def to_json(self) -> str:
        """Say it as JSON: times in microseconds UTC."""
        described = {key: value for key, value in self.description.to_dict().items() if key != "schema"}
        return json.dumps({"uri": self.uri, **described, "levels": [asdict(level) for level in self.levels]}, indent=1)


def inspect(tables: Tables, description: Description) -> Report:
    """Look at every level; reads when its windows start, and nothing else."""
    return Report(tables.place, description, again(lambda: tuple(_levels(tables, description))))


def _levels(tables: Tables, description: Description) -> list[LevelReport]:
    levels = description.frame.levels
    views = tables.view([level.name for level in levels])
    reports = []
    for i, (level, view) in enumerate(zip(levels, views, strict=True)):
        pieces = [(part, (part.least, part.greatest + 1)) for part in view.parts if part.rows]
        starts = np.unique(tables.read(pieces, []).column(START).cast(pa.int64()).to_numpy())
        ends = level.ends(starts)
        open_ends = ends[:-1] < starts[1:]
        gaps = zip(ends[:-1][open_ends].tolist(), starts[1:][open_ends].tolist(), strict=True)
        reports.append(
            LevelReport(
                level=level.name,
                first=int(starts[0]) if len(starts) else None,
                end=int(ends[-1]) if len(starts) else None,
                windows=len(starts),
                rows=sum(part.rows for part in view.parts),
                parts=len(view.parts),
                bytes=tables.size(level.name),
                commits=len({(part.writer, part.commit) for part in view.parts if part.writer != MERGED}),
                behind=len({(p.writer, p.commit) for p in views[0].parts if not view.holds(p)}) if i else 0,
                gaps=tuple(gaps),
                retention=description.retention.get(level.name),
                expired=view.covers.get(EXPIRED),
            )
        )
    return reports
