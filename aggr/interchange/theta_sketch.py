"""Theta sketches: convert states of `approx_count_distinct` to the bytes that Apache DataSketches reads and writes, and
back.

A compact sketch, in little-endian order::

    longs of the preamble   version   family   …   flags   seed hash     8 bytes
    number of hashes                                                     8, if there are several
    theta                                                                8, if it is below 2^63 - 1
    hashes, ascending                                                    8 each

Sketches are written in this form, with the same bytes as DataSketches in C++ and Python writes for a trimmed, ordered
sketch. Spark, Druid, Pinot and other systems can read them. `from_theta_sketch` reads two versions of the format:
version 3 is the form above. Version 4, which Spark writes, stores the differences of the hashes in fewer bits.

Source: ``CompactThetaSketch`` and ``PreambleUtil`` of Apache DataSketches in Java, ``compact_theta_sketch`` in C++.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr import ApproxCountDistinct
from aggr.extend import Groups, Int, compiled
from aggr.extend.columns import Bytes, Flags, Ids, Whole, normalize, with_nulls
from aggr.extend.columns import compute as pc
from aggr.extend.hashes import NO_THRESHOLD, LeastHashes, Sketches
from aggr.extend.tables import checked
from aggr.histograms.leb128 import of_arrow, to_arrow, word_at

# the id of compact Theta sketches among DataSketches' families of sketches
_COMPACT = 3
# Each sketch contains a hash of its seed. This is the hash of the default seed of DataSketches, 9001.
_SEED_HASH = 0x93CC
_BIG_ENDIAN = 1
_EMPTY = 4
# the flags read-only, compact and ordered, which are set in every sketch that is written
_FLAGS = 2 | 8 | 16
# the size of a long in bytes
_LONG = 8
# a mask for the first byte of the preamble; it selects the bits that contain the number of longs
_LONGS = 0x3F
# the versions of the format that can be read
_PLAIN = 3
_PACKED = 4


def to_theta_sketch(states: pa.Array, function: ApproxCountDistinct) -> pa.Array:
    """Write each state as a compact Theta sketch.

    Parameters
    ----------
    states : column of states of ``function``, shape (n,)
    function : ApproxCountDistinct

    Returns
    -------
    array of binary, shape (n,); a null state gives null

    Raises
    ------
    ValueError
        If states belong to another function, or have another k.

    Guarantee
    ---------
    `from_theta_sketch` restores an identical state.

    Examples
    --------
    >>> states = ApproxCountDistinct().reduce(pa.array([1]), Groups.single(1))
    >>> to_theta_sketch(states, ApproxCountDistinct())[0].as_py().hex()
    '01030300001acc9315f97dcbbd86a105'
    """
    column = checked(function, states).states
    sketches = column.drop_null().field("sketch")
    parts = Sketches.from_arrow(sketches)
    retained = parts.retained
    preamble_longs = np.where(parts.thetas < NO_THRESHOLD, 3, np.where(retained > 1, 2, 1))
    flags = _FLAGS + _EMPTY * parts.are_empty
    first_words = (
        preamble_longs | _PLAIN << 8 | _COMPACT << 16 | flags << 40 | np.uint64(_SEED_HASH << 48).astype(np.int64)
    )
    words = np.stack([first_words, retained, parts.thetas], axis=1)
    head = words[np.arange(3) < preamble_longs[:, np.newaxis]].astype("<i8").view(np.uint8)
    heads = to_arrow(head, np.append(0, np.cumsum(preamble_longs * _LONG)))
    return with_nulls(pc.binary_join_element_wise(heads, sketches.field("hashes"), b""), column.is_valid())


def from_theta_sketch(sketches: pa.Array, function: ApproxCountDistinct) -> pa.StructArray:
    """Read compact Theta sketches as states.

    Parameters
    ----------
    sketches : array of binary, shape (n,)
        Sketches with any number of hashes, ordered or not, that were hashed with the default seed of DataSketches.
    function : ApproxCountDistinct

    Returns
    -------
    column of states of ``function``, shape (n,); null gives null

    Raises
    ------
    TypeError, ValueError
        If the column has another type, or a sketch is not compact, is damaged, or was hashed with another seed. The
        error names its row.

    Guarantee
    ---------
    If a sketch has more than k hashes, the k smallest are kept. The state is then equal to the result of
    ``function.reduce`` for the values that the sketch has counted. A sketch with fewer hashes keeps its theta, and
    therefore its error.

    Examples
    --------
    >>> states = ApproxCountDistinct().reduce(pa.array(["a", "b"]), Groups.single(2))
    >>> written = to_theta_sketch(states, ApproxCountDistinct())
    >>> from_theta_sketch(written, ApproxCountDistinct()).equals(states)
    True
    """
    sketches = normalize(sketches)
    if sketches.null_count == len(sketches):
        sketches = pa.nulls(len(sketches), pa.binary())
    if not pa.types.is_binary(sketches.type):
        raise TypeError(f"Theta sketches must be an Arrow column of type binary; got {sketches.type}")
    valid = sketches.is_valid()
    rows = np.flatnonzero(valid.to_numpy(zero_copy_only=False))
    sketches_read = _read_sketches(sketches.drop_null(), rows)
    trimmed = LeastHashes(function.k).merge(sketches_read.to_arrow(), Groups.each(len(rows)))
    has_lost_hashes = Sketches.from_arrow(trimmed).retained < np.minimum(sketches_read.retained, function.k)
    _raise_if_any(
        rows,
        has_lost_hashes,
        "a damaged sketch: its hashes are not distinct, or not below its theta; serialize it again",
    )
    return with_nulls(function.own_state.pack({"sketch": trimmed}, len(rows)), valid)


def _read_sketches(column: pa.BinaryArray, rows: Ids) -> Sketches:
    """Decode compact sketches with any number of hashes. Errors name a sketch by its number in ``rows``."""
    data, places = of_arrow(column)
    starts = places[:-1]
    sizes = np.diff(places)
    _raise_if_any(
        rows,
        sizes < _LONG,
        "not a compact Theta sketch, because it has fewer than 8 bytes; call compact() on it, and serialize it",
    )
    # The first six bytes of each sketch. Only version 4 uses two of them: the number of bits of a hash, and the number
    # of bytes of the count.
    preamble_longs, version, family, bit_counts, count_bytes, flags = (
        _read_numbers(data, starts + at, 1) for at in range(6)
    )
    preamble_longs &= _LONGS
    is_nonempty = flags & _EMPTY == 0
    is_packed = version == _PACKED
    _raise_if_any(rows, family != _COMPACT, "not a compact Theta sketch; call compact() on it before it is serialized")
    _raise_if_any(
        rows,
        ~is_packed & (version != _PLAIN),
        "not in version 3 or 4 of the format, which are the supported ones; serialize it with a newer DataSketches",
    )
    _raise_if_any(rows, flags & _BIG_ENDIAN != 0, "in big-endian order; write it in little-endian order")
    _raise_if_any(
        rows,
        is_nonempty & (_read_numbers(data, starts + 6, 2) != _SEED_HASH),
        "hashed with a seed other than 9001; create it with the default seed",
    )
    min_preamble_longs = 1 + ~is_packed  # the number of longs in a preamble without theta: 2, or 1 in version 4
    counts = np.where(
        preamble_longs < min_preamble_longs,
        1,
        _read_numbers(
            data, starts + np.where(is_packed, preamble_longs, 1) * _LONG, np.where(is_packed, count_bytes, 4)
        ),
    )
    counts *= is_nonempty
    thetas = np.where(
        is_nonempty & (preamble_longs > min_preamble_longs),
        _read_numbers(data, starts + min_preamble_longs * _LONG, _LONG),
        NO_THRESHOLD,
    )
    preamble_bytes = preamble_longs * _LONG + is_packed * count_bytes
    bit_counts = np.where(is_packed, bit_counts, 8 * _LONG)
    is_impossible = (
        (preamble_longs < 1)
        | (preamble_longs > min_preamble_longs + 1)
        | is_packed & (count_bytes > 4)
        | (bit_counts < 1) & (counts > 0)
        | (thetas < 1)
    )
    is_wrong = is_impossible | (preamble_bytes + (counts * bit_counts + 7) // 8 != sizes)
    _raise_if_any(
        rows,
        is_nonempty & is_wrong,
        "a damaged sketch: its bytes are cut off, or followed by other bytes; serialize it again",
    )
    hash_places = np.append(0, np.cumsum(counts))
    hashes = _read_hashes(data, starts + preamble_bytes, hash_places, bit_counts=bit_counts, is_packed=is_packed)
    return Sketches(thetas, hashes, hash_places)


def _raise_if_any(rows: Ids, is_bad: Flags, problem: str) -> None:
    if is_bad.any():
        raise ValueError(f"sketch {rows[np.argmax(is_bad)]} is {problem}")


def _read_numbers(data: Bytes, places: Whole, widths: Whole | int) -> Whole:
    """Return the little-endian numbers at the byte offsets ``places`` of ``data``, shape (len(places),).

    ``widths`` is the number of bytes of each number. Bytes beyond the end of the data count as 0.
    """
    numbers = np.zeros(len(places), np.int64)
    for byte in range(min(int(np.max(widths, initial=0)), _LONG)):
        is_inside = (byte < widths) & (places + byte < len(data))
        numbers[is_inside] |= data[places[is_inside] + byte].astype(np.int64) << 8 * byte
    return numbers


@compiled
def _read_hashes(data: Bytes, starts: Whole, hash_places: Whole, bit_counts: Whole, is_packed: Flags) -> Whole:
    """Return the hashes of all sketches, one sketch after the other.

    Sketch ``i`` has the hashes from index ``hash_places[i]`` to before ``hash_places[i + 1]`` of the result. ``starts``
    contains the byte offset of each sketch's hashes in ``data``. ``is_packed`` is a mask of the packed sketches. A
    packed sketch contains the difference of each hash to the previous hash, in ``bit_counts`` bits, highest bit first.
    Other sketches contain the hashes as words of 64 bits.
    """
    hashes = np.empty(hash_places[-1], np.int64)
    for row in range(len(starts)):
        previous_hash = np.int64(0)
        at = 8 * starts[row]
        for i in range(hash_places[row], hash_places[row + 1]):
            if is_packed[row]:
                previous_hash += _read_bits(data, at, bit_counts[row])
                hashes[i] = previous_hash
            else:
                hashes[i] = np.int64(word_at(data, at >> 3))
            at += bit_counts[row]
    return hashes


@compiled
def _read_bits(data: Bytes, at: Int, size: Int) -> Int:
    """Return the integer in the ``size`` bits from the bit offset ``at`` on, highest bit first."""
    number = np.int64(0)
    end = at + size
    while at < end:
        bit_count = min(8 - (at & 7), end - at)
        byte = np.int64(data[at >> 3]) >> (8 - (at & 7) - bit_count)
        number = (number << bit_count) | (byte & ((1 << bit_count) - 1))
        at += bit_count
    return number
