"""Constant columns are detected from their bytes, also in slices, as a comparison of each row detects them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggr.arrow.bit_equality import same_bits
from aggr.arrow.constant_column import is_constant, repeat_value

TYPES = {
    pa.string(): ["", "a", "aa", "ab", "é", None],
    pa.binary(): [b"", b"a", b"aa", b"ab", None],
    pa.int8(): [0, 1, -1, None],
    pa.int64(): [0, 1, 256, None],
    pa.float64(): [0.0, -0.0, float("nan"), 1.5, None],
    pa.decimal128(9, 2): [Decimal("0.01"), Decimal("1.00"), None],
    pa.timestamp("us", "UTC"): [0, 1, None],
    pa.bool_(): [True, False, None],
    pa.list_(pa.int8()): [[1], [1, 1], [], None],
    pa.struct([("a", pa.int8())]): [{"a": 1}, {"a": 2}, None],
}
UNKNOWN = [pa.bool_(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())])]


@given(st.data())
def test_as_row_by_row(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(list(TYPES)))
    values = data.draw(st.lists(st.sampled_from(TYPES[dtype][: data.draw(st.integers(1, 6))]), max_size=9))
    value = pa.array([data.draw(st.sampled_from(TYPES[dtype]))], dtype)
    start = data.draw(st.integers(0, len(values)))
    column = pa.array(values, dtype).slice(start)
    constants, expected = (
        list(map(repr, rows.to_pylist())) for rows in (column, value)
    )  # as text -0.0 is not 0.0, NaN is NaN
    same = bool(constants) and set(constants) == set(expected) and expected != ["None"]
    assert is_constant(column, value) == (same and dtype not in UNKNOWN)


@given(st.data())
def test_copies_of_a_value(data: st.DataObject) -> None:
    """Each copy has the bits of the value, also if the value lies in the middle of a column."""
    dtype = data.draw(st.sampled_from([*TYPES, pa.uint16(), pa.float16(), pa.binary(2), pa.null()]))
    numbers = {pa.uint16(): [0, 65_535], pa.float16(): [np.float16(-0.0), np.float16(1.5)], pa.binary(2): [b"ab"]}
    values = TYPES.get(dtype) or numbers.get(dtype) or [None]
    number = data.draw(st.integers(0, len(values) - 1))
    count = data.draw(st.integers(0, 5))
    value = pa.array(values, dtype).slice(number, 1)
    copies = repeat_value(value, count)
    copies.validate(full=True)
    assert copies.type == dtype
    assert len(copies) == count
    if count:
        assert same_bits(copies, pa.concat_arrays([value] * count))


@pytest.mark.parametrize("texts", [["co", "untcount"], ["count", "coun", "tcount"], ["", "countcount"], ["tnuoc"]])
def test_texts_that_begin_elsewhere(texts: list[str]) -> None:
    assert not is_constant(pa.array(texts), pa.array(["count"]))


def test_another_type() -> None:
    assert not is_constant(pa.array([1], pa.int32()), pa.array([1], pa.int64()))


def test_offsets_that_lead_nowhere() -> None:
    """Texts that have not been validated are read within their buffers."""
    for offsets in ([0, 50, -7, 10], [0, 0, 5, 10], [0, 5, 5, 10]):
        buffers = [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(b"count" * 2)]
        assert not is_constant(pa.Array.from_buffers(pa.string(), 3, buffers), pa.array(["count"]))
