"""HdrHistogram V2: convert states of `hdr` to the texts that all HdrHistogram libraries read and write, and back.

The content of a text::

    base64   cookie, length, zlib of the rest
    header   cookie, length, index offset, digits, lowest and highest trackable value, ratio
    counts   from index 0 up, zig-zag LEB128: n >= 0 is a count, n < 0 means -n counts of 0

The ratio stores the parameter ``unit`` of `hdr`, or 1.0 if the function has no unit. The format cannot contain the
number of NaN or the exact min and max. Readers take min and max from the lowest and the highest bucket.

If the lowest discernible value is 2 or more, values are counted in units. The unit is the largest power of two up to
the lowest discernible value, such as 16384 for 20000 in logs of jHiccup. Each bucket of such a histogram is a union of
buckets of a histogram whose lowest discernible value is 1.

Source: the V2 format of HdrHistogram, ``AbstractHistogram`` in Java and the ``hdrhistogram`` package.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from aggr import Hdr
from aggr.extend import Histograms
from aggr.extend.columns import Whole, normalize, with_nulls
from aggr.extend.histograms import first_last
from aggr.extend.tables import checked
from aggr.functions.hdrhistogram import Layout
from aggr.histograms import leb128

_PLAIN_COOKIE = 0x1C849303
_COMPRESSED_COOKIE = 0x1C849304
_WORD_SIZE_BITS = 0x10
# the end of each message about a damaged histogram
_ADVICE = "; encode the histogram again, or leave it out"
# For each cookie of an unsupported format, the name of the format. In cookies of V0 and V1, the bits of the word size
# are set to 0 before the lookup; cookies of histograms of doubles are looked up unchanged.
_UNSUPPORTED_FORMATS = {
    0x1C849308: "a histogram of version V0",
    0x1C849309: "a compressed histogram of version V0",
    0x1C849301: "a histogram of version V1",
    0x1C849302: "a compressed histogram of version V1",
    0x0C72124E: "a histogram of doubles",
    0x0C72124F: "a compressed histogram of doubles",
}
_OUTER = struct.Struct(">II")
_HEADER = struct.Struct(">IIIIqqd")
_HIGHEST = np.iinfo(np.int64).max  # the largest number that a header can contain as the highest trackable value


def to_hdr_v2(states: pa.Array, function: Hdr) -> pa.Array:
    """Write each state as a compressed HdrHistogram V2 in base64.

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
        If states have other digits or another unit.

    Guarantee
    ---------
    Every count is written in its own bucket. Counts of NaN are not written, and min and max are written only to
    ``digits`` digits. Readers that ignore the ratio return values as multiples of the function's unit. The reader in
    Rust rejects a ratio other than 1.

    Examples
    --------
    >>> from aggr.groups.groups import Groups
    >>> from hdrh.histogram import HdrHistogram
    >>> texts = to_hdr_v2(Hdr().reduce(pa.array([3, 5, 8]), Groups.single(3)), Hdr())
    >>> HdrHistogram.decode(texts[0].as_py()).get_value_at_percentile(50)
    5
    """
    states = checked(function, states).states
    valid_states = states.drop_null()
    buckets = Histograms.from_arrow(valid_states.field("buckets"))
    _, last = first_last(buckets.sizes, buckets.keys)
    # Readers require that the highest trackable value is at least twice the lowest discernible value, which is 1.
    highest = np.maximum(function.layout.highest(last), 2).tolist()
    texts = (
        _encode_text(counts, highest=highest_value, function=function)
        for counts, highest_value in zip(_encoded_counts(buckets), highest, strict=True)
    )
    return pa.array([next(texts) if valid else None for valid in states.is_valid().to_pylist()], pa.string())


def from_hdr_v2(texts: pa.Array, function: Hdr) -> pa.StructArray:
    """Read HdrHistograms (V2 in base64, compressed or not) as states.

    Parameters
    ----------
    texts : array of string or binary, shape (n,)
    function : Hdr
        The function. It must have the same number of digits as the texts, and its unit must be equal to the ratio of
        the texts (None or 1.0 if the ratio is 1). Texts may have any lowest discernible value.

    Returns
    -------
    column of states of ``function``, shape (n,); null gives null

    Raises
    ------
    TypeError, ValueError
        If the column has another type, or a text is damaged, is not an HdrHistogram, or has other digits or another
        ratio. The message names the row.

    Guarantee
    ---------
    Every count is read into its own bucket. If the lowest discernible value is 2 or more, a bucket of the text is a
    union of buckets of the state, and its count is read into the highest bucket of this union. Max, and all quantiles
    above 0, are therefore exactly those of the histogram. Min, mean and stdev differ by at most one unit of the
    histogram. Min and max are the lowest value of the lowest bucket and the highest value of the highest bucket,
    and agree with the exact min and max to ``digits`` digits. The index offset in the header is ignored, because it
    describes the writer's memory (some writers always write 1).

    Examples
    --------
    >>> from aggr.groups.groups import Groups
    >>> states = Hdr(digits=2).reduce(pa.array([3, 5000]), Groups.single(2))
    >>> again = from_hdr_v2(to_hdr_v2(states, Hdr(digits=2)), Hdr(digits=2))
    >>> again.field("buckets").equals(states.field("buckets")), again.field("max")[0].as_py()
    (True, 5023)
    """
    texts = normalize(texts)
    if texts.type not in (pa.string(), pa.binary()) and texts.null_count < len(texts):
        raise TypeError(f"HdrHistogram texts must be an Arrow column of strings; got {texts.type}")
    rows = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)).tolist()
    states = states_of_texts(texts.drop_null().to_pylist(), function, [f"text {row}" for row in rows])
    return with_nulls(states, texts.is_valid())


def states_of_texts(texts: Sequence[str | bytes], function: Hdr, names: Sequence[str]) -> pa.StructArray:
    """Read HdrHistograms like `from_hdr_v2`.

    Parameters
    ----------
    texts : texts or bytes, shape (n,)
        None of them may be missing.
    function : Hdr
    names : texts, shape (n,)
        The name of each text in error messages.

    Returns
    -------
    column of states of ``function``, shape (n,)

    Raises
    ------
    ValueError
        For the same reasons as `from_hdr_v2`.
    """
    layout = function.layout
    max_bytes = _HEADER.size + leb128.LONGEST * int(_array_lengths(np.array([_HIGHEST]), layout)[0])
    decoded = []
    for name, text in zip(names, texts, strict=True):
        try:
            decoded.append(_decode_text(text, function, max_bytes))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    highest, magnitudes = (np.array([part[i] for part in decoded], np.int64) for i in (1, 2))
    buckets = _read_histograms([counts for counts, *_ in decoded], _array_lengths(highest >> magnitudes, layout), names)
    if magnitudes.any():
        shifts = np.repeat(magnitudes, buckets.sizes)
        highest_values = layout.highest(buckets.keys)
        buckets = buckets._replace(keys=layout.index((highest_values << shifts) + ((np.int64(1) << shifts) - 1)))
    empty = buckets.sizes == 0
    first, last = first_last(buckets.sizes, buckets.keys)
    parts = {
        "nan": pa.array(np.zeros(len(texts), np.int64)),
        "min": pa.array(layout.lowest(first), mask=empty),
        "max": pa.array(layout.highest(last), mask=empty),
        "buckets": buckets.to_arrow(),
    }
    return function.own_state.pack(parts, len(texts))


def _array_lengths(highest: Whole, layout: Layout) -> Whole:
    """Return the length of the counts array of each histogram.

    ``highest`` has the highest trackable value of each histogram, in the unit in which its values are counted.
    """
    half = layout.half_magnitude
    return ((np.maximum(layout.index(highest), 1 << half) >> half) + 1) << half


def _encode_text(counts: bytes, highest: int, function: Hdr) -> str:
    index_offset = 0
    lowest = 1
    numbers = (index_offset, function.digits, lowest, highest, function.unit or 1.0)
    header = _HEADER.pack(_PLAIN_COOKIE | _WORD_SIZE_BITS, len(counts), *numbers)
    packed = zlib.compress(header + counts)
    return base64.b64encode(_OUTER.pack(_COMPRESSED_COOKIE | _WORD_SIZE_BITS, len(packed)) + packed).decode("ascii")


def _encoded_counts(buckets: Histograms) -> list[bytes]:
    """Return the encoded counts of each histogram, from index 0 on."""
    from_0 = leb128.write(np.zeros_like(buckets.sizes), *buckets)
    # Some readers require at least one count, so an empty histogram gets one count of 0.
    return [row or b"\0" for row in from_0.to_pylist()]


def _decode_text(text: str | bytes, function: Hdr, max_bytes: int) -> tuple[bytes, int, int]:
    """Decode a text. Return its encoded counts, its highest trackable value, and its magnitude.

    The values of the histogram are counted in units of 2^magnitude.
    Raise ``ValueError`` if the text is damaged, if its digits are not those of ``function``, or if its ratio is not the
    function's ``unit``. ``max_bytes`` limits the size after decompression.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("the text is not in base64; pass a histogram as HdrHistogram writes it in a log") from None
    cookie, length = _OUTER.unpack_from(data) if len(data) >= _OUTER.size else (0, 0)
    if cookie & ~0xF0 == _COMPRESSED_COOKIE:
        packed = data[_OUTER.size :]
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(packed, max_bytes)
        except zlib.error as error:
            raise ValueError(f"a damaged histogram: {error}{_ADVICE}") from None
        if length != len(packed) or not inflate.eof:
            raise ValueError(
                "a damaged histogram: its compressed bytes are cut off, or too long after decompression; its header "
                f"announces {length} compressed bytes, and there are {len(packed)}{_ADVICE}"
            )
        cookie = _OUTER.unpack_from(data)[0] if len(data) >= _OUTER.size else 0
    if cookie & ~0xF0 != _PLAIN_COOKIE:
        raise ValueError(_unsupported_format(cookie))
    if len(data) < _HEADER.size:
        raise ValueError(
            f"a damaged histogram: it has {len(data)} bytes, and its header alone needs {_HEADER.size}{_ADVICE}"
        )
    _, length, _, digits, lowest, highest, ratio = _HEADER.unpack_from(data)
    # The length in the header should be the number of bytes of the counts, but some writers add the size of the header.
    if length not in (len(data) - _HEADER.size, len(data)) or highest < 0:
        raise ValueError(
            f"a damaged histogram: its header announces {length} bytes of counts and the highest value {highest}, and "
            f"there are {len(data) - _HEADER.size} bytes of counts{_ADVICE}"
        )
    if digits != function.digits:
        raise ValueError(
            f"a histogram with {digits} significant digits cannot be read with digits={function.digits}; use "
            f"digits={digits}"
        )
    magnitude = lowest.bit_length() - 1
    # If the unit, 2^magnitude, were larger, int64 could not represent the values of the first bucket.
    if lowest < 1 or magnitude + function.layout.half_magnitude > 61:
        raise ValueError(
            f"a damaged histogram: its lowest discernible value is {lowest}, which is impossible with {digits} "
            f"significant digits{_ADVICE}"
        )
    # For a ratio of 1, JavaScript writes the bits of the integer 1 instead of the bits of the double 1.0.
    ratio = 1.0 if 0 < ratio < 1e-323 else ratio
    if ratio != (function.unit or 1.0):
        raise ValueError(
            f"a histogram with the ratio {ratio} cannot be read with unit={function.unit}; use unit={ratio}"
        )
    return data[_HEADER.size :], highest, magnitude


def _unsupported_format(cookie: int) -> str:
    """Return an error message for an unsupported cookie. It names the format, if the cookie is known."""
    for known_cookie in (cookie & ~0xF0, cookie):
        if known_cookie in _UNSUPPORTED_FORMATS:
            return (
                f"this is {_UNSUPPORTED_FORMATS[known_cookie]}, and only V2 of HdrHistogram is supported; decode it "
                "with HdrHistogram 2.1 or newer, which encodes it again as V2"
            )
    return (
        f"unknown cookie {cookie:#x}; V2 of HdrHistogram begins with {_COMPRESSED_COOKIE:#x} or {_PLAIN_COOKIE:#x}; "
        "pass a histogram that HdrHistogram 2.1 or newer has encoded"
    )


def _read_histograms(payloads: list[bytes], array_lengths: Whole, names: Sequence[str]) -> Histograms:
    histograms, key_ends, broken = leb128.read(np.zeros(len(payloads), np.int64), pa.array(payloads, pa.binary()))
    bad = np.flatnonzero(broken | (key_ends > array_lengths))
    if len(bad):
        raise ValueError(
            f"{names[bad[0]]}: a damaged histogram: its counts are cut off, or include values above its "
            f"maximum{_ADVICE}"
        )
    return Histograms(*histograms)
