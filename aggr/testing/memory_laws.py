"""Laws of memory: a function neither changes shared arrays nor reads rows other than its own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.arrow.bit_equality import digest
from aggr.arrow.normalize import is_number
from aggr.groups.groups import Groups
from aggr.testing.cases import WRITES, Case, is_write_into_shared, same
from aggr.testing.harness import LawBroken, holds
from aggr.values import Values


def neighbours(case: Case) -> None:
    """Reducing does not change the arrays that other measures of the column share: values, doubles and groups."""
    _check_untouched(case, case.function.grouped(case.values, case.groups))
    present = case.function.drop_null(case.function.grouped(case.values, case.groups))
    _check_untouched(case, present)  # without nulls, because with nulls the function would receive a copy


def _check_untouched(case: Case, shared: Values) -> None:
    before, ids = digest(shared.array), shared.groups.ids.copy()
    counts = np.bincount(ids, minlength=shared.groups.n)
    numeric = len(case.function.inputs) == 1 and is_number(shared.array.type)
    doubles = _doubles(shared) if numeric else None
    try:
        case.function.reduce(shared)
    except ValueError as error:
        if is_write_into_shared(error):
            raise LawBroken(WRITES) from error
        raise
    holds(np.array_equal(shared.groups.ids, ids), "reduce changed the group ids, which other measures also read")
    holds(
        np.array_equal(shared.groups.counts(), counts),
        "reduce changed the rows per group, which other measures also read",
    )
    holds(digest(shared.array) == before, "reduce changed the values of the column, which other measures also read")
    if doubles is not None:
        holds(
            np.array_equal(_doubles(shared), doubles, equal_nan=True),
            "reduce changed the converted values of the column, which other measures also read",
        )


def _doubles(values: Values) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return values.present.floats.array.copy()


def slices(case: Case) -> None:
    """A slice of a longer array gives the same state as a copy of its rows, with and without nulls."""
    plain = case.function.grouped(case.values, case.groups)
    for values in (plain, case.function.drop_null(plain)):
        longer = pa.concat_arrays([values.array[::-1], values.array])
        sliced = Values(longer.slice(len(values.array)), values.groups)
        same(case.function.reduce(sliced), case.function.reduce(Values(values.array, values.groups)), "a slice")


def repeats(case: Case) -> None:
    """The same rows always give the same state, independent of clocks, random numbers and earlier calls."""
    states = case.states
    for _ in range(3):
        same(case.states, states, "reducing the same rows again")
    same(case.function.reduce(case.values, Groups(case.groups.ids.copy(), case.groups.n)), states, "a copy of groups")
