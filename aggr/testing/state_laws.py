"""Laws of states: merging states gives the state of all their rows, bit for bit."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aggr.arrow.bit_equality import digest
from aggr.groups.groups import Groups
from aggr.testing.cases import Case, require_same_bits
from aggr.testing.harness import LawBroken, require


def tower(case: Case) -> None:
    """Merging the states of fine windows gives the state of all rows of the coarse window."""
    coarse = Groups(case.groups.ids // 3, (case.groups.n + 2) // 3)
    merged = case.function.merge(case.states, Groups(np.arange(case.groups.n) // 3, coarse.n))
    require_same_bits(merged, case.function.reduce(case.values, coarse))


def identity(case: Case) -> None:
    """Merging a state alone, or with an identity state, gives the same state. The state of no rows is the identity."""
    states = case.states
    zero = case.function.zero(case.groups.n, case.values.type)
    require_same_bits(case.merge(states), states)
    require_same_bits(case.merge(pa.concat_arrays([states, zero])), states)
    require_same_bits(case.merge(pa.concat_arrays([zero, states])), states)
    none = pa.array([], case.values.type)
    require_same_bits(zero, case.function.reduce(none, Groups.of([], case.groups.n)))


def no_groups(case: Case) -> None:
    """Zero rows in zero groups, as in an empty partition, give empty columns of states and results."""
    none = pa.array([], case.values.type)
    groups = Groups.of([], 0)
    try:
        states = case.function.reduce(none, groups)
        merged = case.function.merge(states, groups)
        results = case.function.finish(states)
    except (ValueError, IndexError, TypeError, ArithmeticError) as error:
        raise LawBroken(
            f"zero rows in zero groups raise {type(error).__name__}; reduce, merge and finish must return empty "
            f"columns for them: {error}"
        ) from error
    require(
        len(states) == len(merged) == len(results) == 0,
        "reduce, merge or finish returns rows for no groups; they must return empty columns",
    )
    for states_after, source in ((merged, "after merge"), (case.states, "for rows")):
        for field in states.type:
            index = states_after.type.get_field_index(field.name)
            actual_type = None if index < 0 else states_after.type.field(index).type
            require(
                actual_type == field.type,
                f"the field {field.name!r} of states is {field.type} after reduce without rows, and {actual_type} "
                f"{source}; reduce must always return the type into which the field merges",
            )
    require(
        states.type == merged.type == case.states.type,
        f"the states of no rows have the type {states.type}, and must have the type {case.states.type}",
    )


def any_order(case: Case) -> None:
    """States do not depend on the order of rows or of merged states."""
    require_same_bits(case.merge(case.parts(4)), case.states)


def any_tree(case: Case) -> None:
    """States do not depend on the tree of merges: left to right, in pairs, or all at once."""
    n = case.groups.n
    parts = case.parts(4)
    pieces = [parts.slice(i * n, n) for i in range(4)]
    left = pieces[0]
    for piece in pieces[1:]:
        left = case.merge(pa.concat_arrays([left, piece]))
    pairs = [case.merge(pa.concat_arrays(pieces[i : i + 2])) for i in (0, 2)]
    require_same_bits(left, case.merge(parts))
    require_same_bits(case.merge(pa.concat_arrays(pairs)), case.merge(parts))


def single_rows(case: Case) -> None:
    """Reducing rows gives the same state as merging the states of single rows."""
    singles = case.function.reduce(case.values, Groups.each(len(case.values)))
    require_same_bits(case.function.merge(singles, case.groups), case.states)


def null_is_identity(case: Case) -> None:
    """A null value, or a null state, has no effect."""
    nulls = pa.nulls(case.groups.n, case.values.type)
    groups_with_nulls = Groups(np.concatenate([case.groups.ids, np.arange(case.groups.n)]), case.groups.n)
    require_same_bits(case.function.reduce(pa.concat_arrays([case.values, nulls]), groups_with_nulls), case.states)
    states = case.states
    for none in (pa.nulls(len(states), states.type), pa.array([None] * len(states), states.type)):
        require_same_bits(case.merge(pa.concat_arrays([states, none])), states)
        require(
            case.function.finish(none).null_count == len(none),
            "finish returns a result for a null state, and must return null",
        )


def isolation(case: Case) -> None:
    """The state of a group depends only on its own rows."""
    states = case.states
    for group in range(case.groups.n):
        rows = case.groups.ids == group
        separate_state = case.function.reduce(case.values.filter(pa.array(rows)), Groups.single(int(rows.sum())))
        require_same_bits(separate_state, states.slice(group, 1))


def purity(case: Case) -> None:
    """Inputs never change, reading never changes a state, and reading a state twice gives the same result."""
    values = digest(case.values)
    states = case.states
    before = digest(states)
    results = digest(case.function.finish(states))
    case.merge(states)
    require(digest(case.function.finish(states)) == results, "finish returns two different results for the same states")
    require(
        digest(states) == before,
        "a state changed while it was read or merged; finish and merge must not write into their arguments",
    )
    require(
        digest(case.values) == values,
        "the input changed while it was reduced; reduce must not write into its arguments",
    )


def exact_type(case: Case) -> None:
    """There is one state and one result per group, and both have the declared types."""
    states = case.states
    results = case.function.finish(states)
    dtype = case.function.state_type(case.values.type)
    for what, actual, declared in (
        ("state", states.type, dtype),
        ("merged state", case.merge(states).type, dtype),
        ("result", results.type, case.function.result_type(dtype)),
    ):
        require(actual == declared, f"a {what} has type {actual}, and its declared type is {declared}")
    require(
        len(states) == len(results) == case.groups.n,
        f"{len(states)} states and {len(results)} results for {case.groups.n} groups; their numbers must be equal",
    )


def travel(case: Case) -> None:
    """States do not change if they are written and read by Arrow IPC, Parquet or pickle, or if they are sliced."""
    states = case.states
    table = pa.table({"state": states})
    sink = io.BytesIO()
    file = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    pq.write_table(table, file)
    trips = {
        "Arrow IPC": pa.ipc.open_stream(sink.getvalue()).read_all()["state"],
        "Parquet": pq.read_table(file)["state"],
        "pickle": pickle.loads(pickle.dumps(states)),
        "a slice": pa.concat_arrays([states, states]).slice(len(states)),
    }
    for name, restored in trips.items():
        restored = restored.combine_chunks() if isinstance(restored, pa.ChunkedArray) else restored
        require_same_bits(restored, states, name)
        require_same_bits(case.merge(restored), case.merge(states), name)
        require_same_bits(case.function.finish(restored), case.function.finish(states), name)


def isolated_results(case: Case) -> None:
    """The result of a state depends only on that state."""
    states = case.states
    results = case.function.finish(states)
    for group in range(case.groups.n):
        require_same_bits(
            case.function.finish(states.slice(group, 1)), results.slice(group, 1), "the result of a state alone"
        )
