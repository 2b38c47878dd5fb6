"""A new store in the backend that is checked, states with values that are difficult to store, and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import aggr
from aggr.arrow.bit_equality import digest
from tiltframe.frame import TiltFrame
from tiltframe.instants import instants_of
from tiltframe.names import LEVEL, START
from tiltframe.ranges import EVER, inside
from tiltframe.rolling_up import rollup
from tiltframe.store.backends.protocol import Backend, Part, Snapshot, Transaction
from tiltframe.store.log.errors import Conflict
from tiltframe.store.log.manifest import Manifest, schema_of

SECOND = 1_000_000
HOUR = 3600 * SECOND
FRAME = TiltFrame(["1s", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x"), "low": aggr.min("x")}, ["host"])
FINE, COARSE = FRAME.levels


@dataclass
class StoreUnderTest:
    """A backend with a new store, and methods that write to the store and compare its contents with expected states."""

    backend: Backend
    schema: pa.Schema

    @classmethod
    def create(cls, backend: Backend) -> StoreUnderTest:
        """Create a store in the location of the backend."""
        manifest = manifest_of_store()
        backend = backend.store_named(manifest.name)
        backend.create(manifest.to_dict(), manifest.schema)
        return cls(backend, manifest.schema)

    def snapshot(self, *recorded: str) -> Snapshot:
        """Return the current snapshot with the records named in ``recorded``."""
        snapshot = self.backend.snapshot(recorded)
        assert snapshot is not None, "the backend breaks a guarantee: snapshot() is not None after create()"
        return snapshot

    def add(self, states: pa.Table, **recorded: str) -> list[Part]:
        """Commit the records ``recorded`` and states of the finest level, and return the new parts."""
        parts = self.backend.write(FINE, states)
        self.backend.commit(new_transaction(self.snapshot(*recorded), adds=parts, records=recorded))
        return parts

    def rows(self) -> pa.Table:
        """Return all rows of the finest level."""
        pieces = [(part, EVER) for part in self.snapshot().of(FINE.name)]
        return self.backend.read(pieces, self.schema.names[1:])

    def expect_rows(self, states: pa.Table, guarantee: str) -> None:
        """Check that the finest level has exactly these rows, bit for bit."""
        expect(are_equal(self.rows(), states), guarantee)

    def expect_conflict(self, description: str, transaction: Transaction) -> None:
        """Check that a commit of ``transaction`` raises `Conflict` and changes nothing. ``description`` describes the
        transaction in the message of an error.
        """
        before = self.snapshot("w", "other")
        rows = self.rows()
        try:
            self.backend.commit(transaction)
        except Conflict:
            pass
        else:
            raise AssertionError(f"the backend breaks a guarantee: commit() must raise Conflict for {description}")
        after = self.snapshot("w", "other")
        is_same = set(before.parts) == set(after.parts) and before.records == after.records
        is_same = is_same and before.manifest == after.manifest
        expect(is_same and are_equal(rows, self.rows()), "a commit that raises Conflict changes nothing")


def new_transaction(
    snapshot: Snapshot,
    adds: Sequence[Part] = (),
    removes: Sequence[Part] = (),
    records: Mapping[str, str] | None = None,
    describes: tuple[Mapping[str, Any], pa.Schema] | None = None,
) -> Transaction:
    """Return a transaction with the changes in the parameters. ``describes`` is a new manifest with its schema."""
    transaction = Transaction(snapshot)
    transaction.adds(adds)
    transaction.removes(removes)
    for name, text in (records or {}).items():
        transaction.records(name, text)
    if describes is not None:
        transaction.describes(*describes)
    return transaction


def transaction_that_read(snapshot: Snapshot, name: str, **records: str) -> Transaction:
    """Return a transaction that read the record ``name`` and writes ``records``."""
    transaction = new_transaction(snapshot, records=records)
    transaction.read(name)
    return transaction


def expect(holds: bool, guarantee: str) -> None:
    """Raise ``AssertionError`` with the guarantee in the message unless ``holds`` is true."""
    if not holds:
        raise AssertionError(f"the backend breaks a guarantee: {guarantee}")


def manifest_of_store() -> Manifest:
    """Return the manifest of a store with the frame `FRAME`."""
    return Manifest("checked", FRAME, schema_of(states_of_hours([0]).schema, FRAME))


def states_of_hours(hours: Sequence[int]) -> pa.Table:
    """Return states of the finest level whose rows have values that are difficult to store: ``"``, a backslash and null
    as keys, and -0.0, infinity, NaN and the smallest double as numbers. There are states for three hosts, in the first
    five seconds of each hour in ``hours``.
    """
    hosts = ["a", 'ü"\\', None]
    values = [0.1, -0.0, float("inf"), 5e-324, float("nan")]
    events = [
        {"ts": (hour * HOUR + second * SECOND) // 1000, "host": host, "x": values[(second + i) % 5]}
        for hour in hours
        for second in range(5)
        for i, host in enumerate(hosts)
    ]
    schema = pa.schema([("ts", pa.int64()), ("host", pa.string()), ("x", pa.float64())])
    states = rollup(pa.Table.from_pylist(events, schema), FRAME)
    finest = states.filter(pc.equal(states.column(LEVEL), FINE.name))
    return finest.select(schema_of(states.schema, FRAME).names)


def states_of_hosts(count: int) -> pa.Table:
    """Return one state of the finest level for each of ``count`` hosts, all in the first second."""
    numbers = range(count)
    hosts = [f"h{i}" for i in numbers]
    values = [i / 3 for i in numbers]
    events = pa.table({"ts": pa.array([0] * count), "host": hosts, "x": values})
    states = rollup(events, FRAME)
    finest = states.filter(pc.equal(states.column(LEVEL), FINE.name))
    return finest.select(schema_of(states.schema, FRAME).names)


def states_between(states: pa.Table, low: int, high: int) -> pa.Table:
    """Return the states whose windows start in the range ``[low, high)``, in microseconds UTC."""
    return states.filter(pa.array(inside(instants_of(states), [(low, high)])))


def shifted(states: pa.Table, by: int) -> pa.Table:
    """Return states whose windows start ``by`` microseconds later."""
    starts = pa.array(instants_of(states) + by).cast(states.schema.field(START).type)
    return states.set_column(states.column_names.index(START), states.schema.field(START), starts)


def rows_of_host_a(states: pa.Table) -> pa.Table:
    """Return the rows whose key is ``a``."""
    return states.filter(pc.equal(states.column("host"), "a"))


def are_equal(table: pa.Table, other: pa.Table) -> bool:
    """Return whether two tables have the same columns and the same rows, bit for bit. The order of rows is ignored."""
    if table.column_names != other.column_names or table.schema.types != other.schema.types:
        return False
    by = [(name, "ascending") for name in (START, "host") if name in table.column_names]
    table = table.sort_by(by)
    other = other.sort_by(by)
    return table.num_rows == other.num_rows and all(
        digest(table[name]) == digest(other[name]) for name in table.column_names
    )
