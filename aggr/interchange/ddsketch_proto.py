"""DDSketch protobuf: convert states of `dds` to the messages that DataDog's sketches read and write, and back.

The content of a message, and the values that are passed separately::

    message    mapping: gamma, index offset 0, no interpolation     positive, negative: buckets     zero: count
    separate   sum, min and max, which a message cannot contain

The libraries number buckets in two ways, and a message does not say which one it uses. With ``keys="upper"``, bucket
``k`` ends at ``γ^k``, as in Python, JavaScript and this package. With ``keys="lower"``, bucket ``k`` starts at ``γ^k``,
as in Go, Java and Rust. If a message is read with the wrong numbering, all values are wrong by a factor of γ.

Source: ``DDSketch.proto`` and ``LogarithmicMapping`` of sketches-go, ``KeyMapping`` of sketches-py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from aggr import Dds
from aggr.extend import Buckets, Groups, Histograms
from aggr.extend.arguments import MissingExtra, shown
from aggr.extend.columns import Floats, Ids, Whole, normalize, with_nulls
from aggr.extend.tables import checked
from aggr.interchange.bucket_summary import check_fit, derive_summaries, fill_summaries

Keys = Literal["upper", "lower"]

_SIGNS = {"positive": "positiveValues", "negative": "negativeValues"}
_MAX_ADJACENT_KEYS = 1 << 24  # the maximum number of adjacent keys in a message; their counts take 128 MB


def _import_library() -> tuple[Any, type[Exception]]:
    """Return the module of message classes, and the class of decoding errors.

    Raise ``MissingExtra`` if they are not installed.
    """
    try:
        from ddsketch.pb import ddsketch_pb2
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise MissingExtra("a DDSketch message", "sketches", error) from None
    return ddsketch_pb2, DecodeError


def to_dds_proto(states: pa.Array, function: Dds, keys: Keys = "upper") -> pa.Array:
    """Write each state as a serialized DDSketch message.

    Parameters
    ----------
    states : column of states of ``function``, shape (n,)
    function : Dds
    keys : "upper" or "lower"
        The numbering of buckets: "upper" for readers in Python and JavaScript, "lower" for those in Go, Java and Rust.

    Returns
    -------
    array of binary, shape (n,); a null state gives null

    Raises
    ------
    ValueError
        If states have another accuracy, counts exceed 2^53, or buckets span more than 2^24 keys.
    MissingExtra
        If the extra sketches is not installed.

    Guarantee
    ---------
    Every count is written in its own bucket. Counts of NaN and of infinities are not written.

    Examples
    --------
    >>> from ddsketch.pb.proto import DDSketchProto, pb
    >>> messages = to_dds_proto(Dds().reduce(pa.array([1.0, 2.0, 4.0]), Groups.single(3)), Dds())
    >>> theirs = DDSketchProto.from_proto(pb.DDSketch.FromString(messages[0].as_py()))
    >>> round(theirs.get_quantile_value(0.5), 2)
    1.99
    """
    shift = _key_shift(keys)
    states = checked(function, states).states
    pb, _ = _import_library()
    valid_states = states.drop_null()
    counts = {store: Histograms.from_arrow(valid_states.field(sign)) for sign, store in _SIGNS.items()}
    all_counts = (valid_states.field("zero").to_numpy(), *(histograms.counts for histograms in counts.values()))
    largest_count = max(column.max(initial=0) for column in all_counts)
    if largest_count > 1 << 53:
        raise ValueError(
            f"a DDSketch message stores counts as doubles, which are exact up to 2^53; got the count {largest_count}; "
            "store the states as an Arrow column in the place of messages"
        )
    stores = {sign: _store_messages(buckets, shift, pb.Store) for sign, buckets in counts.items()}
    zeros = valid_states.field("zero").to_numpy().astype(np.float64).tolist()
    mapping = pb.IndexMapping(gamma=function.mapping.gamma)
    messages: list[bytes | None] = [None] * len(states)
    for i, row in enumerate(np.flatnonzero(states.is_valid().to_numpy(zero_copy_only=False)).tolist()):
        parts = {sign: store[i] for sign, store in stores.items()}
        messages[row] = pb.DDSketch(mapping=mapping, zeroCount=zeros[i], **parts).SerializeToString()
    return pa.array(messages, pa.binary())


def from_dds_proto(
    messages: pa.Array,
    function: Dds,
    sums: pa.Array | None = None,
    mins: pa.Array | None = None,
    maxs: pa.Array | None = None,
    keys: Keys = "upper",
) -> pa.StructArray:
    """Read serialized DDSketch messages as states.

    Parameters
    ----------
    messages : array of binary, shape (n,)
    function : Dds
        The function, with the accuracy of the messages.
    sums, mins, maxs : arrays of numbers, shape (n,), optional
        The sum, the min and the max of the values of each message, which a message cannot contain. Sums may also be
        exact sums, as in the field ``sum`` of a state.
    keys : "upper" or "lower"
        See `to_dds_proto`.

    Returns
    -------
    column of states of ``function``, shape (n,); null gives null

    Raises
    ------
    TypeError, ValueError
        If columns have another type or length, messages are damaged, or their accuracy differs; if messages have an
        index offset or an interpolation; if counts are negative or not whole; if sums, mins or maxs are not finite.
    MissingExtra
        If the extra sketches is not installed.

    Guarantee
    ---------
    Every count is read into its own bucket. If sum, min or max is missing or null, it is computed from the values of
    the buckets. The relative error of min and max is then at most α, the relative accuracy, and the error of the sum is
    at most ``α·Σ|x|``.

    Examples
    --------
    >>> states = Dds().reduce(pa.array([1.0, 2.0, 4.0]), Groups.single(3))
    >>> summaries = [states.field(name) for name in ("sum", "min", "max")]
    >>> from_dds_proto(to_dds_proto(states, Dds()), Dds(), *summaries).equals(states)
    True
    """
    shift = _key_shift(keys)
    messages = normalize(messages)
    if not pa.types.is_binary(messages.type) and messages.null_count < len(messages):
        raise TypeError(f"DDSketch messages must be an Arrow column of type binary; got {messages.type}")
    valid = messages.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(valid)
    sketches = _parse_messages(messages.drop_null().to_pylist(), rows.tolist(), function)
    zero = _read_counts(np.array([sketch.zeroCount for sketch in sketches], np.float64), rows)
    columns = {}
    for sign, store in _SIGNS.items():
        columns[sign] = _read_stores([getattr(sketch, store) for sketch in sketches], function, shift, rows)
    positive, negative = (Histograms.from_arrow(columns[sign]) for sign in _SIGNS)
    derived_parts = derive_summaries(
        positive, negative, zero, lambda histograms: function.mapping.values(histograms.keys)
    )
    parts = fill_summaries(derived_parts, {"sum": sums, "min": mins, "max": maxs}, valid)
    if function.max_bins is not None:
        merge_low_buckets = Buckets(function.max_bins, wider=True).merge_checked
        columns = {sign: merge_low_buckets(column, Groups.each(len(rows))) for sign, column in columns.items()}
    no_counts = pa.array(np.zeros(len(rows), np.int64))
    parts |= {
        "zero": pa.array(zero),
        "nan": no_counts,
        "positive_infinity": no_counts,
        "negative_infinity": no_counts,
        **columns,
    }
    states = function.own_state.pack(parts, len(rows))
    if sums is not None or mins is not None or maxs is not None:
        check_fit(function, states, rows)
    return with_nulls(states, messages.is_valid())


def check_keys(keys: Keys) -> None:
    """Check the name of a numbering of buckets.

    Parameters
    ----------
    keys : "upper" or "lower"
        The numbering of the buckets in messages.

    Raises
    ------
    ValueError
        If ``keys`` has another value.
    """
    if keys not in ("upper", "lower"):
        raise ValueError(
            "keys, the numbering of buckets, must be 'upper', as in messages of Python and JavaScript, or 'lower', as "
            f"in those of Go, Java and Rust; got {shown(keys)}"
        )


def _key_shift(keys: Keys) -> int:
    check_keys(keys)
    return -1 if keys == "lower" else 0


def _store_messages(buckets: Histograms, shift: int, store: Callable[..., Any]) -> list[Any]:
    """Return a message of the class ``store``, which contains only buckets, for each histogram.

    ``shift`` is added to the keys. The counts of all keys from the lowest to the highest key are written as one list,
    because this is the only form that all readers support.
    """
    stores = []
    for low, counts in buckets.dense(_MAX_ADJACENT_KEYS):
        offset = (low + shift) * (len(counts) > 0)
        stores.append(store(contiguousBinCounts=counts.astype(np.float64).tolist(), contiguousBinIndexOffset=offset))
    return stores


def _parse_messages(messages: list[bytes], rows: list[int], function: Dds) -> list[Any]:
    """Return the parsed messages.

    Raise ``ValueError`` for a message that is damaged, or whose mapping is not that of ``function``. Errors name a
    message by its number in ``rows``.
    """
    pb, decode_error = _import_library()
    sketches = []
    for message, row in zip(messages, rows, strict=True):
        try:
            sketches.append(pb.DDSketch.FromString(message))
        except decode_error as error:
            raise ValueError(
                f"message {row} cannot be parsed as a DDSketch: {error}; pass messages of DDSketch.proto, or null for "
                "this row"
            ) from None
        _check_mapping(sketches[-1].mapping, function, row)
    return sketches


def _check_mapping(mapping: Any, function: Dds, row: int) -> None:
    gamma = function.mapping.gamma
    if not mapping.gamma > 1.0:
        raise ValueError(
            f"message {row} is not a DDSketch: its gamma is {mapping.gamma}, and must be above 1; pass messages of "
            "DDSketch.proto, or null for this row"
        )
    if mapping.interpolation != mapping.NONE:
        names = {number: name for name, number in type(mapping).Interpolation.items()}
        name = names.get(mapping.interpolation, mapping.interpolation)
        raise ValueError(
            f"message {row} has interpolation {name}; dds can read only the interpolation NONE; write the message from "
            "a sketch with a logarithmic mapping"
        )
    if mapping.indexOffset != 0:
        raise ValueError(
            f"message {row} has index offset {mapping.indexOffset}; dds can read only the offset 0; write the message "
            "from a sketch without an offset"
        )
    # Libraries compute gamma in different ways, so its last bits may differ. A relative error of 1e-9 in gamma - 1
    # moves the edge of the bucket k by 1e-9 · k buckets. For the largest possible key, this is less than half a bucket.
    if not abs(mapping.gamma - gamma) <= min(1e-12 * gamma, 1e-9 * (gamma - 1.0)):
        accuracy = f"{(mapping.gamma - 1.0) / (mapping.gamma + 1.0):.15g}"
        expected = function.relative_accuracy
        raise ValueError(
            f"message {row} has relative accuracy {accuracy}; this call expects {expected}; use "
            f"relative_accuracy={accuracy}"
        )


def _read_counts(counts: Floats, rows: Ids) -> Whole:
    """Return counts, which messages store as doubles, as int64.

    Raise ``ValueError`` for a count that is not whole, or is negative. ``rows`` contains the number of each count's
    message, for the error.
    """
    bad = np.flatnonzero(~((counts >= 0) & (counts < 2.0**63) & (counts == np.floor(counts))))
    if len(bad):
        raise ValueError(
            f"message {rows[bad[0]]} has a count of {counts[bad[0]]}; counts must be whole numbers of at least 0 and "
            "below 2^63; correct the message, or pass null for this row"
        )
    return counts.astype(np.int64)


def _read_stores(stores: list[Any], function: Dds, shift: int, rows: Ids) -> pa.StructArray:
    """Return the buckets in each of ``stores`` as a column of histograms.

    A store is the part of a DDSketch message with the buckets of the positive, or of the negative, numbers. ``stores``
    has one store per message, all of the same sign. A store has counts in a list and in a map, and counts of the same
    key are added. ``shift`` is subtracted from the keys. ``rows`` has the number of each message, for errors.
    """
    counts = [np.array(store.contiguousBinCounts, np.float64) for store in stores]
    keys = [np.arange(len(c)) + store.contiguousBinIndexOffset for c, store in zip(counts, stores, strict=True)]
    sparse = [i for i, store in enumerate(stores) if store.binCounts]
    for i in sparse:
        ordered = sorted(stores[i].binCounts.items())
        keys.append(np.array([key for key, _ in ordered], np.int64))
        counts.append(np.array([count for _, count in ordered], np.float64))
    ids = [*range(len(stores)), *sparse]
    owners = np.repeat(np.arange(len(ids)), [len(part) for part in counts])
    bucket_counts = _read_counts(np.concatenate([*counts, np.zeros(0)]), rows[np.array(ids, np.intp)[owners]])
    used = np.flatnonzero(bucket_counts)
    key = np.concatenate([*keys, np.zeros(0, np.int64)])[used] - shift
    lowest, highest = function.mapping.key_range
    if (bad := np.flatnonzero((key > highest) | (key < lowest))).size:
        raise ValueError(
            f"message {rows[ids[owners[used[bad[0]]]]]} has a bucket {key[bad[0]]}, which lies outside the range of "
            "doubles; correct the message, or pass null for this row"
        )
    parts = Histograms(np.bincount(owners[used], minlength=len(ids)), key, bucket_counts[used]).to_arrow()
    return Buckets().merge_checked(parts, Groups.of(ids, len(stores))) if sparse else parts
