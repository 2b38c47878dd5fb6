"""HdrHistogram V2: states of `hdr` as the texts that every HdrHistogram reads and writes, and back.

    base64   cookie, length, zlib of the rest
    header   cookie, length, index offset, digits, lowest and highest trackable value, ratio
    counts   from index 0 up, zig-zag LEB128: n >= 0 is a count, n < 0 stands for -n counts of 0

The ratio carries ``unit``, 1.0 where there is none. The format has no place for the number of NaN, nor for the exact
min and max, which readers take from the outermost buckets.

Source: the V2 format of HdrHistogram, ``AbstractHistogram`` in Java and the ``hdrhistogram`` package.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.functions.hdrhistogram import Hdr, Layout, Whole
from aggr.kernels import leb128
from aggr.kernels.histogram.column import Histograms
from aggr.kernels.normalize import normalize, with_nulls
from aggr.kernels.ragged import Ragged

_PLAIN, _COMPRESSED, _WORDS = 0x1C849303, 0x1C849304, 0x10
_OUTER, _HEADER = struct.Struct(">II"), struct.Struct(">IIIIqqd")
_HIGHEST = np.iinfo(np.int64).max  # of a value


def to_hdr_v2(states: pa.Array, function: Hdr) -> pa.Array:
    """Write each state as an HdrHistogram, V2, compressed, in base64.

    Parameters
    ----------
    states : column of states of ``function``, shape (n,)
    function : Hdr

    Returns
    -------
    array of string, shape (n,); a null state gives null

    Raises
    ------
    ValueError
        For states of other digits or another unit.

    Guarantee
    ---------
    Every count arrives in the bucket it had. NaN counts stay behind, and min and max but for the digits. Readers that
    know no ratio count in units; the one in Rust refuses a ratio other than 1.

    Examples
    --------
    >>> from aggr.kernels.groups import Groups
    >>> from hdrh.histogram import HdrHistogram
    >>> texts = to_hdr_v2(Hdr().reduce(pa.array([3, 5, 8]), Groups.single(3)), Hdr())
    >>> HdrHistogram.decode(texts[0].as_py()).get_value_at_percentile(50)
    5
    """
    states = normalize(states)
    kept = states.drop_null()
    function.check_states(kept)
    buckets = Histograms.of(kept.field("buckets"))
    _, last = Ragged(buckets.sizes, buckets.keys).first_last()
    highest = np.maximum(function.layout.highest(last), 2).tolist()  # readers allow no less than twice the lowest
    texts = (_text(counts, top, function) for counts, top in zip(_written(buckets), highest, strict=True))
    return pa.array([next(texts) if valid else None for valid in states.is_valid().to_pylist()], pa.string())


def from_hdr_v2(texts: pa.Array, function: Hdr) -> pa.StructArray:
    """Read HdrHistograms, V2 in base64, compressed or plain, as states.

    Parameters
    ----------
    texts : array of string or binary, shape (n,)
    function : Hdr
        Its digits are theirs, its unit their ratio (None or 1.0 where that is 1).

    Returns
    -------
    column of states of ``function``, shape (n,); null gives null

    Raises
    ------
    TypeError, ValueError
        For a column of another type; for what is no such histogram or is damaged; for other digits, another ratio,
        a lowest discernible value other than 1. It names the row.

    Guarantee
    ---------
    Every count arrives in the bucket it had. min and max are the lowest value of the lowest bucket and the highest of
    the highest one, so within the digits of the true ones. The index offset in the header tells how a writer laid out
    its memory (some always put 1), and is passed over.

    Examples
    --------
    >>> from aggr.kernels.groups import Groups
    >>> states = Hdr(digits=2).reduce(pa.array([3, 5000]), Groups.single(2))
    >>> again = from_hdr_v2(to_hdr_v2(states, Hdr(digits=2)), Hdr(digits=2))
    >>> again.field("buckets").equals(states.field("buckets")), again.field("max")[0].as_py()
    (True, 5023)
    """
    texts = normalize(texts)
    if texts.type not in (pa.string(), pa.binary()) and texts.null_count < len(texts):
        raise TypeError(f"HdrHistogram texts are a column of strings; got {texts.type}")
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(valid)
    layout = function.layout
    most = _HEADER.size + leb128.LONGEST * int(_rooms([_HIGHEST], layout)[0])
    opened = []
    for row, text in zip(rows, texts.drop_null().to_pylist(), strict=True):
        try:
            opened.append(_opened(text, function, most))
        except ValueError as error:
            raise ValueError(f"text {row}: {error}") from None
    counts, rooms = [data for data, _ in opened], _rooms([highest for _, highest in opened], layout)
    buckets = _read(counts, rooms, rows)
    empty = buckets.sizes == 0
    first, last = Ragged(buckets.sizes, buckets.keys).first_last()
    parts = {
        "nan": pa.array(np.zeros(len(rows), np.int64)),
        "min": pa.array(layout.lowest(first), mask=empty),
        "max": pa.array(layout.highest(last), mask=empty),
        "buckets": buckets.to_arrow(),
    }
    return with_nulls(function._pack(parts, len(rows)), texts.is_valid())


def _rooms(highest: list[int], layout: Layout) -> Whole:
    """Return how many counts histograms have that track values up to a highest one."""
    half = layout.half_magnitude
    return ((np.maximum(layout.index(np.array(highest, np.int64)), 1 << half) >> half) + 1) << half


def _text(counts: bytes, highest: int, function: Hdr) -> str:
    header = _HEADER.pack(_PLAIN | _WORDS, len(counts), 0, function.digits, 1, highest, function.unit or 1.0)
    packed = zlib.compress(header + counts)
    return base64.b64encode(_OUTER.pack(_COMPRESSED | _WORDS, len(packed)) + packed).decode("ascii")


def _written(buckets: Histograms) -> list[bytes]:
    """Write the counts of each histogram, from 0 on."""
    from_0 = leb128.write(np.zeros_like(buckets.sizes), *buckets)
    return [row or b"\0" for row in from_0.to_pylist()]  # some readers want one count at least


def _opened(text: str | bytes, function: Hdr, most: int) -> tuple[bytes, int]:
    """Open a text: its counts, still written as numbers, and its highest trackable value."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("not a histogram in base64") from None
    cookie, length = _OUTER.unpack_from(data) if len(data) >= _OUTER.size else (0, 0)
    if cookie & ~0xF0 == _COMPRESSED:
        packed, inflate = data[_OUTER.size :], zlib.decompressobj()
        try:
            data = inflate.decompress(packed, most)
        except zlib.error as error:
            raise ValueError(f"a damaged histogram: {error}") from None
        if length != len(packed) or not inflate.eof:
            there = f"{length} announced, {len(packed)} there"
            raise ValueError(f"a damaged histogram: its compressed bytes break off or expand too far ({there})")
        cookie = _OUTER.unpack_from(data)[0] if len(data) >= _OUTER.size else 0
    if cookie & ~0xF0 != _PLAIN:
        raise ValueError(f"unknown cookie {cookie:#x}; only V2 of HdrHistogram is read: {_COMPRESSED:#x}, {_PLAIN:#x}")
    if len(data) < _HEADER.size:
        raise ValueError(f"a damaged histogram: its header has {len(data)} bytes, not {_HEADER.size}")
    _, length, _, digits, lowest, highest, ratio = _HEADER.unpack_from(data)
    if length not in (len(data) - _HEADER.size, len(data)) or highest < 0:  # some writers count the header as well
        raise ValueError(f"a damaged histogram: {length} bytes of counts announced, up to {highest}")
    if digits != function.digits:
        raise ValueError(f"a histogram of {digits} significant digits cannot be read as digits={function.digits}")
    if lowest != 1:
        raise ValueError(f"the lowest discernible value must be 1 (unit magnitude 0); got {lowest}")
    ratio = 1.0 if 0 < ratio < 1e-323 else ratio  # JavaScript writes the integer 1 in the double's place
    if ratio != (function.unit or 1.0):
        raise ValueError(f"a histogram of ratio {ratio} cannot be read with unit={function.unit}; use unit={ratio}")
    return data[_HEADER.size :], highest


def _read(payloads: list[bytes], rooms: Whole, rows: NDArray[np.intp]) -> Histograms:
    """Read the counts of all histograms at once."""
    found, ends, broken = leb128.read(np.zeros(len(payloads), np.int64), pa.array(payloads, pa.binary()))
    bad = rows[broken | (ends > rooms)]
    if len(bad):
        raise ValueError(f"text {bad.min()}: a damaged histogram: its counts break off, or go beyond its highest value")
    return Histograms(*found)
