"""Chunks of samples in the encoding in which Prometheus stores and streams them. A time is encoded as a delta of
deltas: the change between two successive differences of times. A value is encoded as its XOR with the previous value.

    chunk     number of samples, first time, first value, time difference, XOR, (delta of deltas, XOR)…
    frame     length, CRC-32C, ChunkedReadResponse with the chunks of one series

Source: T. Pelkonen et al., Gorilla, VLDB 2015; ``tsdb/chunkenc/xor.go`` and ``storage/remote/chunked.go`` of
prometheus/prometheus.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from aggr.extend import compiled

# the maximum number of samples in a chunk, as in Prometheus
SAMPLES = 120
# Only a range of the bits of an XOR is written, and all bits of the XOR outside of this range are 0. The range that was
# written for an earlier XOR in the chunk is used again if all bits of the new XOR outside of this range are 0. The
# value 255, in place of the number of leading zeros, means that no range was written in the chunk before.
_NO_RANGE = 255
# the encodings of a delta of deltas: the number of bits of the delta of deltas, the prefix that is written before these
# bits, and the number of bits of the prefix
_CHANGE_CODES = ((14, 0b10, 2), (17, 0b110, 3), (20, 0b1110, 4))
# the maximum number of bytes of the first sample of a chunk, and of any other sample
_FIRST_SAMPLE_BYTES = 32
_SAMPLE_BYTES = 20
_ONE = np.uint64(1)
_SEVEN_BITS = np.uint64(127)
_CASTAGNOLI = 0x82F63B78

Counts = NDArray[np.int64]


def encode_chunks(times: Counts, values: NDArray[np.float64], series: Counts) -> list[tuple[int, int, int, bytes]]:
    """Return samples as encoded chunks. Each chunk comes with its series, its first time and its last time.

    Parameters
    ----------
    times : array of int64, shape (samples,)
        Times in milliseconds, between the years 5 and 9987, ascending in each series.
    values : array of float64, shape (samples,)
    series : array of int64, shape (samples,)
        The index of each sample's series, ascending.

    Returns
    -------
    list of (series, first time, last time, bytes)
        The chunks, in the order of the series. A chunk has 120 samples, and the last chunk of a series may have fewer.
    """
    first_of_series = np.searchsorted(series, series)
    starts = np.flatnonzero((np.arange(len(times)) - first_of_series) % SAMPLES == 0)
    edges = np.append(starts, len(times))
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    data, byte_edges = _write_chunks(np.ascontiguousarray(times, np.int64), bits, edges)
    chunks = [data[begin:end].tobytes() for begin, end in pairwise(byte_edges.tolist())]
    last_times = times[edges[1:] - 1].tolist()
    return list(zip(series[starts].tolist(), times[starts].tolist(), last_times, chunks, strict=True))


@compiled
def _write_chunks(times, bits, edges):  # type: ignore[no-untyped-def]
    """Return two arrays: the bytes of all chunks, and the index of the first byte of each chunk, followed by the number
    of bytes. ``edges`` has the index of the first sample of each chunk, followed by the number of samples.
    """
    data = np.zeros(_FIRST_SAMPLE_BYTES * len(edges) + _SAMPLE_BYTES * len(times), np.uint8)
    byte_edges = np.zeros(len(edges), np.int64)
    at = 0  # the number of bits that have been written so far
    for chunk in range(len(edges) - 1):
        first = edges[chunk]
        end = edges[chunk + 1]
        at = _append(data, at, np.uint64(end - first), 16)
        at = _append_varint(data, at, (times[first] << 1) ^ (times[first] >> 63))
        at = _append(data, at, bits[first], 64)
        last_width = 64
        difference = 0
        leading = _NO_RANGE
        trailing = 0
        for i in range(first + 1, end):
            change = times[i] - times[i - 1] - difference
            difference += change
            at = _append_varint(data, at, difference) if i == first + 1 else _append_change(data, at, change)
            at, last_width, leading, trailing = _append_xor(
                data, at, bits[i] ^ bits[i - 1], leading=leading, trailing=trailing
            )
        # As in Prometheus, a zero byte is added to a chunk if the chunk ends at the end of a byte, and the number of
        # bits of its last value or XOR is a multiple of 8 and not 0.
        has_empty_byte = at % 8 == 0 and last_width % 8 == 0 and last_width > 0
        at = (at + 8 * has_empty_byte + 7) // 8 * 8
        byte_edges[chunk + 1] = at // 8
    return data, byte_edges


@compiled
def _append(data, at, value, width):  # type: ignore[no-untyped-def]
    """Write the lowest ``width`` bits of ``value`` into ``data`` after the first ``at`` bits. The highest bit is
    written first. Return the number of bits in ``data`` after the call.
    """
    while width > 0:
        free = 8 - at % 8
        count = min(free, width)
        piece = (value >> np.uint64(width - count)) & ((_ONE << np.uint64(count)) - _ONE)
        data[at // 8] |= np.uint8(piece << np.uint64(free - count))
        at += count
        width -= count
    return at


@compiled
def _append_varint(data, at, number):  # type: ignore[no-untyped-def]
    """Append a number of at least 0 to ``data`` as a varint. Return the number of bits in ``data`` after the call."""
    word = np.uint64(number)
    while word > _SEVEN_BITS:
        at = _append(data, at, (word & _SEVEN_BITS) | (_SEVEN_BITS + _ONE), 8)
        word >>= np.uint64(7)
    return _append(data, at, word, 8)


@compiled
def _append_change(data, at, change):  # type: ignore[no-untyped-def]
    """Append a delta of deltas to ``data``. Return the number of bits in ``data`` after the call."""
    if change == 0:
        return _append(data, at, np.uint64(0), 1)
    for width, prefix, prefix_width in _CHANGE_CODES:
        if -((1 << (width - 1)) - 1) <= change <= 1 << (width - 1):
            return _append(data, _append(data, at, np.uint64(prefix), prefix_width), np.uint64(change), width)
    return _append(data, _append(data, at, np.uint64(0b1111), 4), np.uint64(change), 64)


@compiled
def _append_xor(data, at, xor, leading, trailing):  # type: ignore[no-untyped-def]
    """Append the XOR of two values to ``data``. ``leading`` and ``trailing`` are the numbers of bits before and after
    the significant bits of an earlier XOR. Return the number of bits in ``data`` after the call, the number of
    significant bits that were written, and the values of ``leading`` and ``trailing`` for the next XOR.
    """
    if xor == 0:
        return _append(data, at, np.uint64(0), 1), 0, leading, trailing
    own_leading = 0
    while own_leading < 31 and (xor >> np.uint64(63 - own_leading)) == 0:
        own_leading += 1
    own_trailing = 0
    while ((xor >> np.uint64(own_trailing)) & _ONE) == 0:
        own_trailing += 1
    if own_leading >= leading and own_trailing >= trailing:
        at = _append(data, at, np.uint64(0b10), 2)
    else:
        leading = own_leading
        trailing = own_trailing
        at = _append(data, at, np.uint64(0b11), 2)
        at = _append(data, at, np.uint64(leading), 5)
        at = _append(data, at, np.uint64(64 - leading - trailing), 6)
    significant = 64 - leading - trailing
    return _append(data, at, xor >> np.uint64(trailing), significant), significant, leading, trailing


def frame(message: bytes) -> bytes:
    """Return a message as a frame of a stream: its length, its CRC-32C and the message.

    >>> frame(b"123456789").hex()
    '09e3069283313233343536373839'
    """
    checksum = int(_crc32c(np.frombuffer(message, np.uint8), _CRC_TABLE)) ^ 0xFFFFFFFF
    return _varint(len(message)) + checksum.to_bytes(4, "big") + message


def _varint(size: int) -> bytes:
    pieces = bytearray()
    while size > 127:
        pieces.append(size & 127 | 128)
        size >>= 7
    return bytes([*pieces, size])


def _crc_table() -> Counts:
    remainders = np.arange(256)
    for _ in range(8):
        remainders = np.where(remainders & 1, remainders >> 1 ^ _CASTAGNOLI, remainders >> 1)
    return remainders


_CRC_TABLE = _crc_table()


@compiled
def _crc32c(data, table):  # type: ignore[no-untyped-def]
    """Return the CRC-32C of bytes without the final inversion of its bits. ``table`` has the remainder of each value
    that a byte may have.
    """
    remainder = 0xFFFFFFFF
    for i in range(len(data)):
        remainder = table[(remainder ^ np.int64(data[i])) & 0xFF] ^ (remainder >> 8)
    return remainder
