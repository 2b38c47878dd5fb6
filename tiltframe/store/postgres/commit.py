"""Commits in PostgreSQL: which parts of a level are readable, changed in one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tiltframe.frame import START
from tiltframe.store.core.backend import Conflict, Part, Range, Snapshot
from tiltframe.store.core.writers import FRAME
from tiltframe.store.postgres.limits import PART
from tiltframe.store.postgres.schema import Layout
from tiltframe.store.postgres.session import Session, moment, numbers

_MICROS = "(extract(epoch FROM {}) * 1000000)::bigint"
_FIELDS = 'part bigint, level text, writer text, "commit" bigint, least bigint, greatest bigint, rows bigint'


def commit(
    db: Session,
    layout: Layout,
    level: str,
    add: Sequence[Part],
    cut: Sequence[tuple[Part, Range]],
    txn_versions: Mapping[str, int],
    seen: Snapshot | None = None,
    notes: Mapping[str, int] | None = None,
) -> None:
    """Add parts, cut ranges and note numbers, or raise `Conflict`; the transaction is the caller's.

    Commits to a level take turns. Each waits for those who write under its writer and number, and keeps them waiting.
    """
    layout.table(level)
    db.lock(layout.name, level)
    for writer, number in sorted({(part.writer, part.commit) for part in add}):
        db.lock(layout.name, level, writer, number)
    held = last_numbers(db, layout, level)
    for writer, last in txn_versions.items():
        if held.get(writer, last - 1) >= last:
            raise Conflict(f"the level {level} of {layout.name} already holds {held[writer]} of {writer}")
    if seen:
        for writer in (FRAME, *txn_versions):
            if held.get(writer) != seen.txn_versions.get(writer):
                raise Conflict(f"the level {level} of {layout.name} has taken commits of {writer} meanwhile")
    if cut:
        check_seen(db, layout, level, [part for part, _ in cut])
        _cut(db, layout, level, cut)
    if add:
        _add(db, layout, level, add)
    if noted := {**txn_versions, **(notes or {})}:
        db.run(
            f"INSERT INTO {layout.txn_versions} SELECT $1, c.key, sha256(convert_to(c.key, 'UTF8')), c.value::bigint "
            "FROM json_each_text($2::json) AS c ON CONFLICT (level, digest) DO UPDATE SET number = EXCLUDED.number",
            level,
            json.dumps(noted),
        )


def readable(db: Session, layout: Layout, level: str, ids: Sequence[int] | None = None) -> list[Part]:
    """Read which parts of a level are readable; of some only, if asked."""
    some = "" if ids is None else f"AND part = ANY({numbers(ids)}) "
    rows = db.rows(
        f'SELECT level, writer, "commit", least, greatest, rows, part::text AS name FROM {layout.parts} '
        f'WHERE level = $1 {some}ORDER BY least, writer, "commit", part',
        level,
    )
    return [Part(**row) for row in rows]


def last_numbers(db: Session, layout: Layout, level: str) -> dict[str, int]:
    """Read the last number that a level holds of each writer."""
    layout.table(level)
    rows = db.rows(f"SELECT writer, number FROM {layout.txn_versions} WHERE level = $1 ORDER BY writer", level)
    return {row["writer"]: row["number"] for row in rows}


def check_seen(db: Session, layout: Layout, level: str, parts: Sequence[Part]) -> None:
    """Raise `Conflict` unless parts are as they were seen."""
    ids = sorted({int(part.name) for part in parts})
    now = {part.name: part for part in readable(db, layout, level, ids)}
    for part in parts:
        if now.get(part.name) != replace(part, bytes=0):
            raise Conflict(f"the level {level} of {layout.name} was changed since it was looked at")


def _cut(db: Session, layout: Layout, level: str, cut: Sequence[tuple[Part, Range]]) -> None:
    """Delete rows of ranges, and put down what remains of their parts."""
    spans = [(part, *both) for part, span in cut if (both := part.within(span))]
    if not spans:
        return
    table, ids = layout.table(level), [int(part.name) for part, _, _ in spans]
    lows, highs = [low for _, low, _ in spans], [high for _, _, high in spans]
    db.run(
        f"DELETE FROM {table} AS t "
        f"USING unnest({numbers(ids)}, {numbers(lows)}, {numbers(highs)}) AS w (part, low, high) "
        f"WHERE t.{PART} = w.part AND t.{START} >= {moment('w.low')} AND t.{START} < {moment('w.high')} "
        f"AND t.{START} >= {moment(str(min(lows)))} AND t.{START} < {moment(str(max(highs)))}"
    )
    parts = {int(part.name): part for part, _, _ in spans}
    db.run(f"DELETE FROM {layout.parts} WHERE part = ANY({numbers(ids)})")
    counted = _counted(db, table, list(parts.values()))
    left = [replace(parts[c["part"]], least=c["least"], greatest=c["greatest"], rows=c["rows"]) for c in counted]
    _insert(db, layout, level, left)


def _add(db: Session, layout: Layout, level: str, add: Sequence[Part]) -> None:
    """List parts, each of which must still have every row that was written for it."""
    kept = {row["part"]: row["rows"] for row in _counted(db, layout.table(level), [part for part in add if part.rows])}
    for part in add:
        if kept.get(int(part.name), 0) != part.rows:
            raise Conflict(f"rows of {part.writer} {part.commit} in {level} were written again since; write anew")
    ids = [int(part.name) for part in add]
    there = db.rows(f"SELECT part FROM {layout.parts} WHERE part = ANY({numbers(ids)})")
    if there or len(set(ids)) < len(ids):
        raise Conflict(f"the level {level} of {layout.name} already holds {add[0].writer} {add[0].commit}")
    _insert(db, layout, level, add)


def _counted(db: Session, table: str, parts: Sequence[Part]) -> list[dict[str, int]]:
    """Count the rows that parts have, and find their first and last window."""
    if not parts:
        return []
    ids = [int(part.name) for part in parts]
    low, high = min(part.least for part in parts), max(part.greatest for part in parts)
    return db.rows(
        f"SELECT {PART} AS part, count(*) AS rows, {_MICROS.format(f'min({START})')} AS least, "
        f"{_MICROS.format(f'max({START})')} AS greatest FROM {table} WHERE {PART} = ANY({numbers(ids)}) "
        f"AND {START} >= {moment(str(low))} AND {START} <= {moment(str(high))} GROUP BY {PART}"
    )


def _insert(db: Session, layout: Layout, level: str, parts: Sequence[Part]) -> None:
    described = [
        {
            "part": int(part.name),
            "level": level,
            "writer": part.writer,
            "commit": part.commit,
            "least": part.least,
            "greatest": part.greatest,
            "rows": part.rows,
        }
        for part in parts
    ]
    rows = f"json_to_recordset($1::json) AS p ({_FIELDS})"
    db.run(f"INSERT INTO {layout.parts} SELECT * FROM {rows}", json.dumps(described))
