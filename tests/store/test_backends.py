"""The guarantees of the backend protocol: every backend gives them, and broken backends are rejected by name."""

from __future__ import annotations

import pickle
import uuid
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.backends.delta.backend import DeltaBackend
from tiltframe.store.backends.protocol import Backend
from tiltframe.store.log.errors import Conflict
from tiltframe.store.testing import MemoryBackend, check_backend

pytestmark = pytest.mark.store

FRAME = TiltFrame(["1m", "1h", "1d"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])


@pytest.mark.parametrize("retains", [False, True])
def test_the_one_in_memory_keeps_the_protocol(retains):
    check_backend(lambda: MemoryBackend(retains=retains))


@pytest.mark.long
def test_delta_keeps_the_protocol(tmp_path):
    check_backend(lambda: DeltaBackend(str(tmp_path / uuid.uuid4().hex)))


@pytest.mark.long
def test_postgresql_keeps_the_protocol(postgres_server):
    import adbc_driver_postgresql.dbapi as dbapi

    from tiltframe.store.backends.postgres.backend import PostgresBackend

    def fresh():
        name = f"test_{uuid.uuid4().hex[:12]}"
        with dbapi.connect(postgres_server, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        return PostgresBackend(postgres_server.replace("/postgres?", f"/{name}?"), "checked")

    check_backend(fresh)


class Forgetful(MemoryBackend):
    """Records again what someone else has recorded since: a commit that is tried again counts twice."""

    def commit(self, transaction):
        now = self.snapshot(transaction.record_names)
        transaction.snapshot = replace(transaction.snapshot, records=now.records)
        return super().commit(transaction)


class ByText(MemoryBackend):
    """Compares records by their texts, so that one that has changed and come back is taken for the same."""

    def commit(self, transaction):
        now, before = self.snapshot(transaction.record_names), transaction.snapshot
        if all(now.text(name) == before.text(name) for name in transaction.record_names):
            transaction.snapshot = replace(before, records=now.records)
        return super().commit(transaction)


class Unread(MemoryBackend):
    """Does not look at the ranges that a transaction has read."""

    def commit(self, transaction):
        transaction.ranges.clear()
        return super().commit(transaction)


class Partial(MemoryBackend):
    """Removes nothing in a commit with a new manifest."""

    def commit(self, transaction):
        if transaction.manifest is not None:
            transaction.removed.clear()
        return super().commit(transaction)


class Half(MemoryBackend):
    """Makes parts readable before it looks whether they may be."""

    def commit(self, transaction):
        self.tables.parts.update({part.name: part for part in transaction.added})
        return super().commit(transaction)


class Hasty(MemoryBackend):
    """Makes readable what is written."""

    def write(self, level, states):
        parts = super().write(level, states)
        self.tables.parts.update({part.name: part for part in parts})
        return parts


class Keeping(MemoryBackend):
    """Leaves parts readable that are to be removed."""

    def commit(self, transaction):
        transaction.removed.clear()
        return super().commit(transaction)


class Racing(MemoryBackend):
    """Does not compare the manifest with the one that a commit was made on."""

    def commit(self, transaction):
        transaction.snapshot = replace(transaction.snapshot, manifest=self.snapshot().manifest)
        return super().commit(transaction)


class Rounding(MemoryBackend):
    """Reads -0.0 as 0.0 in the field of a state."""

    def read(self, parts, columns, where=None):
        rows = super().read(parts, columns)
        if "low" not in rows.column_names or not rows.num_rows:
            return rows
        low = rows.column("low").combine_chunks()
        fields = [low.field(i) for i in range(low.type.num_fields)]
        plus = [pa.array(f.to_numpy(zero_copy_only=False) + 0.0) if f.type == pa.float64() else f for f in fields]
        at = rows.schema.get_field_index("low")
        return rows.set_column(at, rows.schema.field("low"), pa.StructArray.from_arrays(plus, fields=list(low.type)))


class Skipping(MemoryBackend):
    """Skips the parts that have been vacuumed, as if they had had no rows."""

    def read(self, parts, columns, where=None):
        return super().read([(part, span) for part, span in parts if part.name in self.tables.rows], columns)


class Shared(MemoryBackend):
    """Has all that is recorded in every snapshot."""

    def snapshot(self, recorded=()):
        return super().snapshot(self.tables.records)


class SameVersion(MemoryBackend):
    """Returns the first version from every commit."""

    def commit(self, transaction):
        super().commit(transaction)
        return 1


class Paged(MemoryBackend):
    """Reads the first thousand rows only."""

    def read(self, parts, columns, where=None):
        return super().read(parts, columns, where).slice(0, 1000)


class Mistaken(MemoryBackend):
    """Keeps tables by their key, and not by their parts."""

    keeps_tables = True
    tables_by_key: ClassVar[dict] = {}

    def kept_tables(self, groups, key):
        return [self.tables_by_key.get(key) for _ in groups]

    def keep_table(self, parts, key, table):
        self.tables_by_key[key] = table


class Unordered(Mistaken):
    """Keeps tables by their parts and keys, and returns the tables of several groups in reverse order."""

    def kept_tables(self, groups, key):
        return [self.tables_by_key.get((tuple(parts), key)) for parts in reversed(groups)]

    def keep_table(self, parts, key, table):
        self.tables_by_key[tuple(parts), key] = table


class Unselective(MemoryBackend):
    """Returns the results of complete parts, whatever their ranges are."""

    def read_results(self, parts, columns, functions, where=None):
        complete = [(part, part.range) for part, _ in parts]
        rows = self.read(complete, [*columns, *{function.column for function in functions.values()}])
        results = rows.select(["window_start", *columns])
        for name, function in functions.items():
            results = results.append_column(name, function(rows.column(function.column).combine_chunks()))
        return results


@pytest.mark.long
@pytest.mark.parametrize(
    ("broken", "guarantee"),
    [
        (SameVersion, "greater than all earlier versions"),
        (Paged, "a part with thousands of rows"),
        (Skipping, "that vacuum.. has removed raises Conflict"),
        (Forgetful, "writes a record which was written after its snapshot"),
        (ByText, "replaced by the same text after its snapshot"),
        (Unread, "range to which a part was added"),
        (Partial, "replaces the manifest can also add and remove parts"),
        (Half, "changes nothing"),
        (Hasty, "not readable before they are committed"),
        (Keeping, "can add and remove parts"),
        (Racing, "which has changed since its snapshot|has an earlier manifest"),
        (Rounding, "the same bits"),
        (Mistaken, "kept_tables.. returns (a table only for the parts|the table that was kept)"),
        (Unordered, "in the order of the groups"),
        (Unselective, "the rows that read"),
        (Shared, "exactly the requested records|a thousand records"),
    ],
)
def test_broken_backends_are_refused(broken, guarantee):
    with pytest.raises(AssertionError, match=f"the backend breaks a guarantee: .*({guarantee})"):
        check_backend(broken)


def test_a_store_keeps_its_states_in_a_backend_of_ones_own():
    backend = MemoryBackend()
    assert isinstance(backend, Backend)
    store = FrameStore(backend, FRAME, retention={"1m": "1h"})
    data = pa.table({"ts": [0, 60_000, 7_200_000], "x": [1, 2, 4], "k": ["a", "b", "a"]})
    assert store.append(rollup(data, FRAME), "w", 1)
    again = FrameStore(backend)
    assert not again.append(rollup(data, FRAME), "w", 1)
    again.append(rollup(data.slice(0, 1), FRAME), "w", 2)
    again.compact()
    again.expire("1970-01-02")
    moved = pickle.loads(pickle.dumps(again))
    assert moved.query("1d", keys=[])["s"].to_pylist() == [8]
    assert moved.inspect().levels[0].windows == 0
    assert moved.verify().ok
    assert moved.uri == f"memory://{backend.name}"


def test_a_backend_takes_no_options():
    with pytest.raises(ValueError, match="pass them to the backend itself"):
        FrameStore(MemoryBackend(), FRAME, storage_options={"region": "x"})


def test_rows_that_were_removed_cannot_be_read_unless_they_are_retained():
    for retains in (False, True):
        store = FrameStore(MemoryBackend(retains=retains), FRAME)
        for i in range(2):
            store.append(rollup(pa.table({"ts": [i], "x": [1], "k": ["a"]}), FRAME), "w", i)
        before = store.backend.snapshot()
        store.compact()
        pieces = [(part, (0, 1)) for part in before.of("1m")]
        if retains:
            assert store.backend.read(pieces, ["k"]).num_rows == 2
            store.vacuum("1s")
        with pytest.raises(Conflict):
            store.backend.read(pieces, ["k"])
