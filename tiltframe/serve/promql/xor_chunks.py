"""Chunks of samples in the encoding in which Prometheus stores and streams them. A time is encoded as a delta of
deltas: the change between two successive differences of times. A value is encoded as its XOR with the previous value.

    chunk     number of samples, first time, first value, time difference, XOR, (delta of deltas, XOR)…
    frame     length, CRC-32C, ChunkedReadResponse with the chunks of one series

Each sample is written as four fields of bits. The fields of all samples are computed by column, and are then packed
into words of 64 bits.

Source: T. Pelkonen et al., Gorilla, VLDB 2015; ``tsdb/chunkenc/xor.go`` and ``storage/remote/chunked.go`` of
prometheus/prometheus.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggr.extend import compiled

SAMPLES = 120  # the maximum number of samples in a chunk, as in Prometheus
# An XOR is written as a range of its bits. If it fits into the range of an earlier XOR of the chunk, this range is used
# again. The value 255, in place of a number of leading zeros, means that the chunk has no earlier XOR.
_NO_RANGE = 255
# how a delta of deltas is written: the number of its bits, the prefix before it, and the number of bits of the prefix
_CHANGE_CODES = ((14, 0b10, 2), (17, 0b110, 3), (20, 0b1110, 4))
_CASTAGNOLI = 0x82F63B78

Words = NDArray[np.uint64]
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
    if not len(times):
        return []
    first_of_series = np.searchsorted(series, series)
    starts = np.flatnonzero((np.arange(len(times)) - first_of_series) % SAMPLES == 0)
    lengths = np.diff(starts, append=len(times))
    rows = np.repeat(np.arange(len(starts)), lengths)
    columns = np.arange(len(times)) - starts[rows]
    shape = len(starts), int(lengths.max())
    time_table = np.zeros(shape, np.int64)
    bit_table = np.zeros(shape, np.uint64)
    time_table[rows, columns] = times
    bit_table[rows, columns] = values.view(np.uint64)
    fields = np.zeros((*shape, 4), np.uint64)
    widths = np.zeros((*shape, 4), np.int64)
    _write_times(time_table, lengths, fields, widths)
    _write_values(bit_table, fields, widths)
    widths[np.arange(shape[1]) >= lengths[:, None]] = 0
    last_rows = starts + lengths - 1
    last_widths = widths[np.arange(len(starts)), lengths - 1, 3]
    chunks = _pack(fields.reshape(shape[0], -1), widths.reshape(shape[0], -1), last_widths)
    return list(zip(series[starts].tolist(), times[starts].tolist(), times[last_rows].tolist(), chunks, strict=True))


def _write_times(times: Counts, lengths: Counts, fields: Words, widths: Counts) -> None:
    """Write the first two fields of each sample into ``fields``, and their numbers of bits into ``widths``. For the
    first sample of a chunk, these fields are the number of samples (``lengths``) and the time. For the second sample,
    the first field is empty, and the second field is the difference of the two times. For later samples, the fields are
    the prefix and the bits of the delta of deltas.
    """
    fields[:, 0, 0], widths[:, 0, 0] = lengths, 16
    fields[:, 0, 1], widths[:, 0, 1] = _varints((times[:, 0] << 1) ^ (times[:, 0] >> 63))
    differences = np.diff(times, axis=1)
    if differences.shape[1]:
        fields[:, 1, 1], widths[:, 1, 1] = _varints(np.maximum(differences[:, 0], 0))
    changes = np.diff(differences, axis=1)
    prefixes = np.full(changes.shape, 0b1111)
    prefix_widths = np.full(changes.shape, 4)
    bits = np.full(changes.shape, 64)
    for width, prefix, prefix_width in reversed(_CHANGE_CODES):
        fits = (changes >= -((1 << (width - 1)) - 1)) & (changes <= 1 << (width - 1))
        prefixes[fits], prefix_widths[fits], bits[fits] = prefix, prefix_width, width
    is_zero = changes == 0
    prefixes[is_zero], prefix_widths[is_zero], bits[is_zero] = 0, 1, 0
    masks = ~np.uint64(0) >> np.minimum(64 - bits, 63).astype(np.uint64)
    fields[:, 2:, 0], widths[:, 2:, 0] = prefixes, prefix_widths
    fields[:, 2:, 1], widths[:, 2:, 1] = changes.view(np.uint64) & masks, bits


def _varints(numbers: Counts) -> tuple[Words, Counts]:
    """Return two arrays. The first has the varint of each number, as a 64-bit integer that consists of the bytes of the
    varint. The second has the number of bits of each varint. ``numbers`` must be at least 0 and below 2^56.
    """
    high_bits = numbers.astype(np.uint64)
    result = high_bits & np.uint64(127)
    sizes = np.ones(len(numbers), np.int64)
    for _ in range(7):
        high_bits = high_bits >> np.uint64(7)
        has_more = high_bits > 0
        longer = ((result | np.uint64(128)) << np.uint64(8)) | (high_bits & np.uint64(127))
        result = np.where(has_more, longer, result)
        sizes += has_more
    return result, 8 * sizes


def _write_values(bits: Words, fields: Words, widths: Counts) -> None:
    """Write the last two fields of each sample into ``fields``, and their numbers of bits into ``widths``: for the
    first sample of a chunk, the value; for later samples, the control bits of the XOR and its significant bits.
    """
    fields[:, 0, 3], widths[:, 0, 3] = bits[:, 0], 64
    changes = bits[:, 1:] ^ bits[:, :-1]
    leading = np.minimum(64 - _bit_lengths(changes), 31)
    trailing = _bit_lengths(changes & (~changes + np.uint64(1))) - 1
    is_changed = changes != 0
    is_new = np.zeros(changes.shape, np.bool_)
    range_leading = np.full(len(bits), _NO_RANGE)
    range_trailing = np.zeros(len(bits), np.int64)
    for i in range(changes.shape[1]):  # at most 119 iterations; each of them computes one sample of every chunk
        fits = (leading[:, i] >= range_leading) & (trailing[:, i] >= range_trailing) & (range_leading != _NO_RANGE)
        is_new[:, i] = is_changed[:, i] & ~fits
        range_leading = np.where(is_new[:, i], leading[:, i], range_leading)
        range_trailing = np.where(is_new[:, i], trailing[:, i], range_trailing)
        leading[:, i], trailing[:, i] = range_leading, range_trailing
    significant = np.where(is_changed, 64 - leading - trailing, 0)
    with_range = (0b11 << 11) | (leading << 6) | (significant & 63)
    fields[:, 1:, 2] = np.where(is_new, with_range, np.where(is_changed, 0b10, 0))
    widths[:, 1:, 2] = np.where(is_new, 13, np.where(is_changed, 2, 1))
    shifts = np.where(is_changed, trailing, 0).astype(np.uint64)
    fields[:, 1:, 3], widths[:, 1:, 3] = np.where(is_changed, changes >> shifts, np.uint64(0)), significant


def _bit_lengths(numbers: Words) -> Counts:
    """Return the number of bits of each number up to its highest set bit; 0 for 0. Each number is split into halves of
    32 bits, which float64 represents exactly.
    """
    high = (numbers >> np.uint64(32)).astype(np.float64)
    low = (numbers & np.uint64(0xFFFFFFFF)).astype(np.float64)
    lengths = np.where(high > 0, 32 + np.frexp(high)[1], np.frexp(low)[1])
    return lengths.astype(np.int64)


def _pack(fields: Words, widths: Counts, last_widths: Counts) -> list[bytes]:
    """Pack the bit fields of each row, and return the bytes of the row. ``widths`` are the numbers of bits of the
    fields. The highest bit of a field is written first.

    As in Prometheus, an empty byte follows a row that ends at the end of a byte, if the last field of the row consists
    of whole bytes. ``last_widths`` has the number of bits of the last field of each row.
    """
    bits = widths.sum(axis=1)
    has_empty_byte = (bits % 8 == 0) & (last_widths % 8 == 0) & (last_widths > 0)
    sizes_in_bytes = -(-bits // 8) + has_empty_byte
    words_of_rows = -(-sizes_in_bytes // 8)
    first_words = np.cumsum(words_of_rows) - words_of_rows
    offsets = np.cumsum(widths, axis=1) - widths + 64 * first_words[:, None]
    is_used = widths > 0
    values = fields[is_used]
    sizes = widths[is_used]
    places = offsets[is_used]
    words = np.zeros(int(words_of_rows.sum()) + 1, np.uint64)
    free_bits = 64 - places % 64  # for each field, the number of bits from its beginning to the end of the word
    overflow = np.maximum(sizes - free_bits, 0)
    shifted = np.where(
        sizes <= free_bits,
        values << np.maximum(free_bits - sizes, 0).astype(np.uint64),
        values >> overflow.astype(np.uint64),
    )
    np.bitwise_or.at(words, places // 64, shifted)
    is_split = overflow > 0
    remaining = values[is_split] << (64 - overflow[is_split]).astype(np.uint64)
    np.bitwise_or.at(words, places[is_split] // 64 + 1, remaining)
    packed = words.astype(">u8").tobytes()
    pieces = zip((8 * first_words).tolist(), sizes_in_bytes.tolist(), strict=True)
    return [packed[at : at + size] for at, size in pieces]


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
