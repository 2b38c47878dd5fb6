"""Damaged states and messages raise an error that reports the damage, or give a valid state. They never cause a crash.

States and messages of DDSketch have no checksum, so a flipped bit that gives another valid state is not detected. Every
state that is not rejected must merge and finish like any other, and merge and finish must reject the same states.

``make fuzz FUZZ=100`` runs this file with checked indices and a hundred times as many states.
"""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.fields import EXACT
from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.histograms.buckets import Buckets
from aggr.histograms.column import HISTOGRAM_TYPE, Histograms
from aggr.interchange.ddsketch_proto import from_dds_proto, to_dds_proto
from aggr.interchange.hdr_v2 import from_hdr_v2, to_hdr_v2
from aggr.interchange.theta_sketch import from_theta_sketch, to_theta_sketch
from tests.aggr.test_approx_count_distinct import SPARK
from tests.fuzzing import TIMES, inputs

RNG = np.random.default_rng(20)
X = RNG.lognormal(3, 2, 300).round(2)
IDS = Groups.of(RNG.integers(0, 4, 300), 5)


def pairs(*names: str) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(X), pa.array(RNG.integers(0, 9, 300))], names=names)


EVENTS = pairs("value", "time")
TIMED = pa.StructArray.from_arrays(
    [EVENTS.field("value"), pa.array(RNG.integers(0, 300, 300), pa.timestamp("us"))], ["value", "time"]
)
STATES: dict[str, tuple[Function, pa.Array]] = {
    "count": (aggr.Count(), pa.array(X)),
    "max": (aggr.Max(), pa.array(X)),
    "min of text": (aggr.Min(), pa.array([str(x) for x in X])),
    "sum": (aggr.Sum(), pa.array(X)),
    "sum of whole numbers": (aggr.Sum(), pa.array(X.astype(np.int64))),
    "avg of decimals": (aggr.Avg(), pa.array(X).cast(pa.decimal128(12, 2), safe=False)),
    "var": (aggr.Var(), pa.array(np.append(X[1:], np.inf))),
    "dds": (aggr.Dds(), pa.array(np.append(-X[:150], X[150:]))),
    "dds folded": (aggr.Dds(max_bins=20), pa.array(X)),
    "exponential": (aggr.Exponential(max_buckets=20), pa.array(np.append(-X[:150], X[150:]))),
    "hdr": (aggr.Hdr(digits=2), pa.array(X.astype(np.int64))),
    "hdr of fractions": (aggr.Hdr(unit=0.01), pa.array(X)),
    "bit_xor": (aggr.BitXor(), pa.array(X.astype(np.int64))),
    "range": (aggr.Range(), pa.array(X)),
    "rms": (aggr.Rms(), pa.array(X)),
    "geometric_mean": (aggr.GeometricMean(), pa.array(X)),
    "harmonic_mean": (aggr.HarmonicMean(), pa.array(X)),
    "bool_and": (aggr.BoolAnd(), pa.array(X > 1)),
    "first": (aggr.First(), EVENTS),
    "arg_max": (aggr.get("arg_max")(), pairs("value", "by")),
    "per": (aggr.Per({"a": aggr.avg("x"), "n": aggr.count()}, 8, "sample"), pairs("of.x", "key")),
    "value_counts": (aggr.ValueCounts(), pa.array(X.round())),
    "frequent": (aggr.Frequent(0.5), EVENTS),
    "top_k": (aggr.TopK(4), pairs("value", "by")),
    "histogram": (aggr.Histogram((1, 5, 20, 100)), pa.array(X)),
    "weighted_avg": (aggr.get("weighted_avg")(), pairs("value", "weight")),
    "m4": (aggr.M4(), EVENTS),
    "lttb": (aggr.Lttb(5), TIMED),
    "time_weighted_avg": (aggr.TimeWeightedAvg("linear"), TIMED),
    "decayed_sum": (aggr.DecayedSum("1us"), TIMED),
    "candlestick": (
        aggr.Candlestick(),
        pa.StructArray.from_arrays([pa.array(X), pa.array(X[::-1]), EVENTS.field("time")], ["value", "volume", "time"]),
    ),
    "corr": (aggr.Corr(), pairs("y", "x")),
    "kurtosis": (aggr.Kurtosis(), pa.array(X)),
    "collect": (aggr.get("collect")(), EVENTS),
    "collect_set": (aggr.get("collect_set")(), pa.array(X.round())),
    "hll": (aggr.Hll(8), pa.array(X)),
    "approx_count_distinct": (aggr.ApproxCountDistinct(16), pa.array(X.round())),
    "count_distinct": (aggr.get("count_distinct")(), pa.array(X.round())),
}
SPECIAL = [0, 1, -1, 2, 63, 64, 127, 128, 2**15, -(2**15), 2**31 - 1, -(2**31), 2**60, 2**62, 2**63 - 1, -(2**63)]


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Flip, change, insert, drop or cut bytes."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(out) + 1))
        what = int(rng.integers(5))
        if what == 0 and at < len(out):
            out[at] ^= 1 << int(rng.integers(8))
        elif what == 1 and at < len(out):
            out[at] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.integers(256)]))
        elif what == 2:
            out[at:at] = rng.bytes(int(rng.integers(1, 10)))
        elif what == 3:
            del out[at : at + int(rng.integers(1, 4))]
        elif rng.random() < 0.3:
            del out[at:]
    return bytes(out)


def spoilt_list(items: list[Any], of_numbers: bool, rng: np.random.Generator) -> list[Any]:
    """Change a number, drop an item, or add one."""
    at = int(rng.integers(len(items))) if items else 0
    if items and of_numbers and rng.random() < 0.6:
        items[at] = int(rng.choice(SPECIAL[:12]))
    elif items and rng.random() < 0.5:
        items.pop(at)
    elif of_numbers:
        items.insert(at, int(rng.integers(-2, 3)))
    elif items:
        items.insert(int(rng.integers(len(items) + 1)), items[at])
    return items


def spoilt(column: pa.Array, rng: np.random.Generator) -> pa.Array:
    """Change one value somewhere within a column: a number, some bytes, a null, the length of a list."""
    kind = column.type
    if pa.types.is_struct(kind):
        chosen = int(rng.integers(kind.num_fields))
        children = [spoilt(column.field(i), rng) if i == chosen else column.field(i) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, names=[f.name for f in kind], mask=column.is_null())
    if pa.types.is_list(kind) and not pa.types.is_integer(kind.value_type) and rng.random() < 0.6:
        return pa.ListArray.from_arrays(column.offsets, spoilt(column.values, rng), mask=column.is_null())
    values = column.to_pylist()
    if not values:
        return column
    row = int(rng.integers(len(values)))
    if rng.random() < 0.03:
        values[row] = None
    elif pa.types.is_list(kind):
        values[row] = spoilt_list(list(values[row] or []), pa.types.is_integer(kind.value_type), rng)
    elif pa.types.is_binary(kind):
        values[row] = mutated(values[row] or b"", rng)
    elif pa.types.is_integer(kind):
        changed_integer = (
            SPECIAL[int(rng.integers(len(SPECIAL)))]
            if rng.random() < 0.5
            else (values[row] or 0) + int(rng.integers(-3, 4))
        )
        half = 1 << (kind.bit_width - 1)
        values[row] = (changed_integer + half) % (2 * half) - half
    elif pa.types.is_floating(kind):
        bits = np.float64(values[row] or 0.0).view(np.int64) ^ np.int64(1) << np.int64(rng.integers(63))
        values[row] = float(bits.view(np.float64))
    return pa.array(values, kind)


def outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return what a call gives, or None if it refuses; anything else than a refusal is a failure."""
    try:
        return call(*arguments, **named)
    except OverflowError as error:
        assert "int64" in str(error) or "fit into" in str(error), error  # noqa: PT017 a legal state of huge numbers
    except ValueError as error:
        words = str(error)
        assert not any(inner in words for inner in ("buffer", "ndarray", "object", "NoneType")), words
    return None


def passes(check: Callable[[pa.Array], None], column: pa.Array) -> bool:
    check(column)
    return True


def in_current_version(function: Function, state: pa.Array) -> pa.Array:
    """Return states with the function's version instead of the earlier versions that it reads."""
    versions = state.field("version")
    earlier = pc.is_in(versions, pa.array(function.own_state.versions[:-1], versions.type))
    current = pc.if_else(earlier, pa.scalar(function.own_state.version, versions.type), versions)
    names = [field.name for field in state.type]
    children = [current if name == "version" else state.field(name) for name in names]
    return pa.StructArray.from_arrays(children, names=names, mask=state.is_null())


def is_whole(function: Function, state: pa.Array) -> bool:
    """See that merge and finish agree on whether these are states; if they are, that they behave as states do."""
    n = len(state)
    alone, merged = (outcome(function.merge, state, groups) for groups in (Groups.each(n), Groups.single(n)))
    twice = outcome(function.merge, pa.concat_arrays([state, state]), Groups.of([*range(n)] * 2, n))
    try:
        results = function.finish(state)
    except OverflowError:
        return False
    except ValueError as error:
        assert alone is None, f"merge alone takes what finish refuses: {error}"  # noqa: PT017
        assert merged is None, f"merge takes what finish refuses: {error}"  # noqa: PT017
        assert twice is None, f"merge of two takes what finish refuses: {error}"  # noqa: PT017
        return False
    assert alone is not None, "merge refuses what finish takes"
    assert len(results) == n
    assert same_bits(alone, in_current_version(function, state))
    if merged is not None:
        function.finish(merged)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", STATES)
def test_states_with_spoilt_fields(name):
    function, values = STATES[name]
    states, rng = function.reduce(values, IDS), np.random.default_rng(zlib.crc32(name.encode()))
    results = function.finish(states)
    wrong = 0
    for _ in inputs("states", 120):
        damaged = spoilt(states, rng)
        if not is_whole(function, damaged):
            wrong += 1
    assert wrong > 10 * TIMES
    assert same_bits(function.finish(states), results)


@pytest.mark.slow
@pytest.mark.parametrize("max_buckets", [None, 20])
def test_bytes_of_histograms(max_buckets):
    rng = np.random.default_rng(3)
    intact = Buckets(max_buckets).count(RNG.integers(0, 60 if max_buckets is None else 20, 400), Groups.single(400))
    rows = intact.to_pylist()[0]
    refused = 0
    for _ in inputs("histograms", 1500):
        counts = mutated(rows["counts"], rng) if rng.random() < 0.8 else rng.bytes(int(rng.integers(0, 40)))
        row = rows | {"counts": counts}
        if rng.random() < 0.3:
            row["total"] = int(rng.choice(SPECIAL))
        if rng.random() < 0.3:
            row[str(rng.choice(["low", "high"]))] = int(rng.integers(-(2**31), 2**31))
        column = pa.array([row], HISTOGRAM_TYPE)
        read = outcome(Histograms.from_arrow, column)
        if max_buckets is not None and outcome(passes, Buckets(max_buckets).check, column) is None:
            read = None
        several = [(pa.concat_arrays([column] * k), Groups.single(k)) for k in (1, 2)]
        merged = [outcome(Buckets(max_buckets).merge_checked, *arguments) for arguments in several]
        assert (read is None) == (merged[0] is None)
        if read is None:
            refused += 1
            assert merged[1] is None
        else:
            assert same_bits(read.to_arrow(), column)
    assert refused > 1000 * TIMES


def test_digits_of_exact_sums():
    rng = np.random.default_rng(4)
    states = aggr.Sum().reduce(pa.array(X), IDS).field("sum")
    for _ in inputs("exact sums", 500):
        damaged = spoilt(states, rng)
        checked = outcome(passes, EXACT.check, damaged)
        if checked:
            assert same_bits(EXACT.merge(damaged, Groups.each(len(damaged))), damaged)


@pytest.mark.slow
def test_texts_of_hdrhistogram():
    function, rng = aggr.Hdr(digits=2), np.random.default_rng(5)
    text = to_hdr_v2(function.reduce(pa.array([1, 5, 5, 900, 10**6]), Groups.single(5)), function)[0].as_py()
    refused = 0
    for _ in inputs("texts of HdrHistogram", 1200):
        data = mutated(base64.b64decode(text), rng) if rng.random() < 0.9 else rng.bytes(int(rng.integers(0, 60)))
        text_of_histogram = (
            base64.b64encode(data).decode() if rng.random() < 0.9 else mutated(text.encode(), rng).decode("latin-1")
        )
        states = outcome(from_hdr_v2, pa.array([text_of_histogram]), function)
        refused += states is None
        assert states is None or is_whole(function, states)
    assert refused > 800 * TIMES  # zlib has a checksum


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["upper", "lower"])
def test_messages_of_ddsketch(keys):
    function, rng = aggr.Dds(), np.random.default_rng(6)
    message = to_dds_proto(function.reduce(pa.array([1.0, 5.0, -5.0, 0.0]), Groups.single(4)), function, keys)[
        0
    ].as_py()
    read = 0
    for _ in inputs("messages of DDSketch", 800):
        data = mutated(message, rng) if rng.random() < 0.9 else rng.bytes(int(rng.integers(0, 60)))
        states = outcome(from_dds_proto, pa.array([data], pa.binary()), function, keys=keys)
        assert states is None or is_whole(function, states)
        read += states is not None
    assert read > 10


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_bytes_of_theta_sketches(packed):
    function, rng = aggr.ApproxCountDistinct(16), np.random.default_rng(8)
    states = function.reduce(pa.array(X), IDS)
    sketch = bytes.fromhex(SPARK) if packed else to_theta_sketch(states, function)[0].as_py()
    read = refused = 0
    for _ in inputs("Theta sketches", 800):
        data = mutated(sketch, rng) if rng.random() < 0.9 else rng.bytes(int(rng.integers(0, 60)))
        result = outcome(from_theta_sketch, pa.array([data], pa.binary()), function)
        assert result is None or is_whole(function, result)
        read, refused = read + (result is not None), refused + (result is None)
    assert min(read, refused) > 10 * TIMES


def test_buffers_that_lead_out_of_bounds():
    function, values = STATES["dds"]
    states, rng = function.reduce(values, IDS), np.random.default_rng(7)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("s", states.type)])) as writer:
        writer.write_table(pa.table({"s": states}))
    data = sink.getvalue()
    start, seen = len(data) // 2, 0
    for _ in inputs("Arrow streams", 400):
        damaged = bytearray(data)
        for at in rng.integers(start, len(data) - 8, 3).tolist():
            damaged[at] = int(rng.integers(256))
        try:
            column = pa.ipc.open_stream(bytes(damaged)).read_all()["s"]
        except (pa.ArrowException, OSError, EOFError):
            continue
        seen += 1
        outcome(function.finish, column)
        outcome(function.merge, column, Groups.single(len(column)))
    assert seen > 100
