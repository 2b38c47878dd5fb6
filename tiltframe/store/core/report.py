"""Inspecting: what a store holds, level by level."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np

from tiltframe.level_chain import instants_of
from tiltframe.store.core.backend import Backend, Range
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.retry import retry_on_conflict
from tiltframe.store.core.writers import EXPIRED, MERGED

_UNTOLD = ("schema", "checksum", "dropped", "unfilled", "earlier")  # of a description, for programs only


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


@dataclass(frozen=True, repr=False)
class Report:
    """What a store holds."""

    uri: str
    manifest: Manifest
    levels: tuple[LevelReport, ...]

    def __repr__(self) -> str:
        """Show how much each level holds, in one line."""
        levels = ", ".join(f"{level.level}: {level.windows:,} windows, {level.rows:,} rows" for level in self.levels)
        return f"Report({self.uri!r}; {levels})"

    def _repr_html_(self) -> str:
        """Show the levels in a notebook."""
        names = ("level", "windows", "rows", "bytes", "parts", "commits", "behind")
        head = "".join(f"<th>{name}</th>" for name in names)
        rows = ("".join(f"<td>{getattr(level, name)}</td>" for name in names) for level in self.levels)
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"

    def to_json(self) -> str:
        """Say it as JSON: times in microseconds UTC."""
        described = {key: value for key, value in self.manifest.to_dict().items() if key not in _UNTOLD}
        return json.dumps({"uri": self.uri, **described, "levels": [asdict(level) for level in self.levels]}, indent=1)


def inspect(backend: Backend, manifest: Manifest) -> Report:
    """Look at every level; reads when its windows start, and nothing else."""
    return Report(backend.place, manifest, retry_on_conflict(lambda: tuple(_levels(backend, manifest))))


def _levels(backend: Backend, manifest: Manifest) -> list[LevelReport]:
    levels = manifest.frame.levels
    views = backend.view([level.name for level in levels])
    reports = []
    for i, (level, view) in enumerate(zip(levels, views, strict=True)):
        part_ranges = [(part, (part.least, part.greatest + 1)) for part in view.parts if part.rows]
        starts = np.unique(instants_of(backend.read(part_ranges, [])))
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
                bytes=backend.size(level.name),
                commits=len({(part.writer, part.commit) for part in view.parts if part.writer != MERGED}),
                behind=len({(p.writer, p.commit) for p in views[0].parts if not view.holds(p)}) if i else 0,
                gaps=tuple(gaps),
                retention=manifest.retention.get(level.name),
                expired=view.txn_versions.get(EXPIRED),
            )
        )
    return reports
