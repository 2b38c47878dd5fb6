"""Checks of operations that a backend may have: results of stored rows, and tables that are kept in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from aggr.arrow.normalize import one_array
from tiltframe.names import START
from tiltframe.ranges import EVER
from tiltframe.store.backends.guarantees.store_under_test import (
    HOUR,
    StoreUnderTest,
    are_equal,
    expect,
    new_transaction,
    rows_of_host_a,
    states_of_hours,
)
from tiltframe.store.backends.protocol import Part, ResultReader, TableKeeper
from tiltframe.store.log.errors import Conflict


@dataclass(frozen=True)
class _Field:
    """A function of stored rows that returns one field of the states in a column."""

    column: str
    field: str

    def __call__(self, states: pa.Array) -> pa.Array:
        return pc.struct_field(states, self.field)


def check_results(store: StoreUnderTest) -> None:
    """Check that a `ResultReader` returns the results of the rows that `Backend.read` returns, also if it has computed
    other results of the same parts before. Other backends are not checked.
    """
    backend = store.backend
    if not isinstance(backend, ResultReader):
        return
    store.add(states_of_hours(range(3)))
    functions = {
        f"{column.name}.{field.name}": _Field(column.name, field.name)
        for column in store.schema
        if pa.types.is_struct(column.type)
        for field in column.type
    }
    parts = store.snapshot().of("1s")
    for span, where in ((EVER, None), ((HOUR, 2 * HOUR), None), (EVER, "host = 'a'"), (EVER, None)):
        pieces = [(part, span) for part in parts]
        for names in (list(functions)[:1], list(functions)):
            requested = {name: functions[name] for name in names}
            results = backend.read_results(pieces, ["host"], requested, where)
            if results is None:
                continue
            expected = _compute_results(backend.read(pieces, store.schema.names[1:], where), requested)
            if where is not None:  # Both calls may return rows that the condition excludes.
                results = rows_of_host_a(results)
                expected = rows_of_host_a(expected)
            expect(
                are_equal(results.select(expected.column_names), expected),
                "read_results() returns window_start, the keys and the results of the rows that read() returns",
            )


def _compute_results(rows: pa.Table, functions: Mapping[str, _Field]) -> pa.Table:
    """Return window_start, the key and the results of ``functions`` of each row of states."""
    results = rows.select([START, "host"])
    for name, function in functions.items():
        results = results.append_column(name, function(one_array(rows.column(function.column))))
    return results


def check_kept_tables(store: StoreUnderTest) -> None:
    """Check that a `TableKeeper` returns a kept table only for the parts and the key for which it was kept. Other
    backends are not checked.
    """
    backend = store.backend
    if not isinstance(backend, TableKeeper):
        return
    first, second, third = store.add(states_of_hours(range(3)))
    tables = {
        ((first,), "a"): pa.table({"x": [1]}),
        ((first,), ("a", 1)): pa.table({"x": [2]}),
        ((second,), "a"): pa.table({"x": [3]}),
        ((first, second), "a"): pa.table({"x": [4]}),
    }
    for (parts, key), table in tables.items():
        backend.keep_table(parts, key, table)
    requests = [*tables, ((third,), "a"), ((second,), ("a", 1)), ((first, third), "a"), ((first, second, third), "a")]
    for parts, key in requests:
        (table,) = backend.kept_tables([parts], key)
        expected_table = tables.get((parts, key)) if backend.keeps_tables else None
        if expected_table is None:
            expect(table is None, "kept_tables() returns a table only for the parts and the key for which it was kept")
        else:
            expect(table is None or table.equals(expected_table), "kept_tables() returns the table that was kept")
    groups = [parts for parts, key in requests if key == "a"]
    tables_of_groups = backend.kept_tables(groups, "a")
    expect(
        len(tables_of_groups) == len(groups)
        and all(
            table is None or table.equals(tables.get((parts, "a"), pa.table({})))
            for parts, table in zip(groups, tables_of_groups, strict=True)
        ),
        "kept_tables() of several groups returns one table or None for each group, in the order of the groups",
    )
    store.backend.commit(new_transaction(store.snapshot(), removes=[first]))
    store.backend.vacuum(0.0)
    expect(
        _is_old_or_missing(backend, [first], tables[(first,), "a"]),
        "kept_tables() of a part that vacuum() has removed raises Conflict, or returns the table that was kept or None",
    )


def _is_old_or_missing(keeper: TableKeeper, parts: Sequence[Part], old_table: pa.Table) -> bool:
    try:
        (table,) = keeper.kept_tables([parts], "a")
    except Conflict:
        return True
    return table is None or bool(table.equals(old_table))
