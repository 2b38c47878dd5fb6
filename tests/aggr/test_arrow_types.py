"""Every function on every Arrow type returns the result for the corresponding plain type, or rejects the type in one
sentence.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr import Groups
from aggr.function import input_rule
from aggr.sql.number_columns import Use
from tiltframe import TiltFrame, finish, rollup

INTEGERS = [3, 1, None, 2, 3]
INT64_VALUES = pa.array(INTEGERS, pa.int64())
WORDS = pa.array(["c", "a", None, "b", "c"])
BYTES = [None if word is None else word.encode() for word in WORDS.to_pylist()]
TIMES = pa.array([1, 2, 3, 4, 5], pa.int64()).cast(pa.timestamp("us", "UTC"))


def convert_integers(dtype: pa.DataType, convert) -> pa.Array:
    return pa.array([None if x is None else convert(x) for x in INTEGERS], dtype)


def in_steps(dtype: pa.DataType) -> pa.Array:
    return pa.array(INTEGERS, pa.int32() if dtype.bit_width == 32 else pa.int64()).cast(dtype)


def json_text(x: int) -> str:
    """Return a JSON string, which is not a number: frames read texts of numbers as numbers."""
    return json.dumps(str(x))


def types_of(name: str, *arguments: object) -> list[pa.DataType]:
    """Return a type, or none if this version of pyarrow lacks it."""
    return [getattr(pa, name)(*arguments)] if hasattr(pa, name) else []


UNITS = ("s", "ms", "us", "ns")
LARGE_BINARY = (pa.large_binary(), *types_of("binary_view"))
# a type by its name -> values of it, and the same values of a plain type (None: the type is plain itself)
TYPES: dict[str, tuple[pa.Array, pa.Array | None]] = {
    **{
        str(t): (INT64_VALUES.cast(t), None)
        for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16())
    },
    **{str(t): (INT64_VALUES.cast(t), None) for t in (pa.uint32(), pa.uint64(), pa.float32(), pa.float64())},
    "halffloat": (convert_integers(pa.float16(), np.float16), INT64_VALUES.cast(pa.float32())),
    **{
        str(t): (convert_integers(t, Decimal), convert_integers(pa.decimal128(t.precision, t.scale), Decimal))
        for t in (*types_of("decimal32", 5, 1), *types_of("decimal64", 10, 1), pa.decimal128(20, 2))
    },
    "decimal256": (convert_integers(pa.decimal256(40, 2), Decimal), None),
    **{str(t): (WORDS.cast(t), WORDS) for t in (pa.string(), pa.large_string(), *types_of("string_view"))},
    **{str(t): (pa.array(BYTES, t), pa.array(BYTES)) for t in (pa.binary(), *LARGE_BINARY)},
    "fixed_size_binary": (pa.array(BYTES, pa.binary(1)), None),
    "bool": (convert_integers(pa.bool_(), lambda x: x > 1), None),
    "date32": (in_steps(pa.date32()), None),
    "date64": (convert_integers(pa.date64(), lambda x: dt.date(1970, 1, 1 + x)), in_steps(pa.date32())),
    "time32[s]": (in_steps(pa.time32("s")), in_steps(pa.time32("s")).cast(pa.time32("ms"))),
    **{str(t): (in_steps(t), None) for t in (pa.time32("ms"), pa.time64("us"), pa.time64("ns"))},
    **{str(pa.timestamp(unit)): (in_steps(pa.timestamp(unit)), None) for unit in UNITS},
    **{str(pa.timestamp(u, z)): (in_steps(pa.timestamp(u, z)), None) for u, z in (("us", "UTC"), ("ns", "Asia/Tokyo"))},
    **{str(pa.duration(unit)): (in_steps(pa.duration(unit)), None) for unit in UNITS},
    "null": (pa.nulls(5), pa.nulls(5, pa.float64())),
    "dictionary of text": (WORDS.dictionary_encode(), WORDS),
    "dictionary of int64": (INT64_VALUES.dictionary_encode(), INT64_VALUES),
    "runs of int64": (pc.run_end_encode(INT64_VALUES), INT64_VALUES),
    "runs of text": (pc.run_end_encode(WORDS), WORDS),
    "runs of double": (pc.run_end_encode(INT64_VALUES.cast(pa.float64())), INT64_VALUES.cast(pa.float64())),
    "month_day_nano_interval": (
        convert_integers(pa.month_day_nano_interval(), lambda x: pa.MonthDayNano([x, x, x])),
        None,
    ),
    "list": (convert_integers(pa.list_(pa.int64()), lambda x: [x]), None),
    "large_list": (convert_integers(pa.large_list(pa.int64()), lambda x: [x]), None),
    "fixed_size_list": (convert_integers(pa.list_(pa.int64(), 1), lambda x: [x]), None),
    "struct": (convert_integers(pa.struct([("a", pa.int64())]), lambda x: {"a": x}), None),
    "map": (convert_integers(pa.map_(pa.string(), pa.int64()), lambda x: [("a", x)]), None),
    "dense_union": (
        pa.UnionArray.from_dense(pa.array([0] * 5, pa.int8()), pa.array(range(5), pa.int32()), [INT64_VALUES]),
        None,
    ),
}
for uuids in types_of("uuid"):
    bytes_of = partial(convert_integers, convert=lambda x: uuid.UUID(int=x).bytes)
    TYPES["uuid"] = (bytes_of(uuids), bytes_of(pa.binary(16)))
for texts in types_of("json_"):
    TYPES["json"] = (convert_integers(texts, json_text), convert_integers(pa.string(), json_text))
for views in types_of("list_view", pa.int64()):
    TYPES["list_view"] = (convert_integers(views, lambda x: [x]), None)
NOT_NULL = sum(x is not None for x in INTEGERS)


def answer(function: aggr.Function, values: pa.Array) -> list:
    inputs = values
    if len(function.inputs) > 1:
        inputs = [TIMES if role == "time" else values for role in function.inputs]
    states = function.reduce(inputs, Groups.of([0, 1, 0, 1, 1], 2))
    return function.finish(function.merge(states, Groups.single(2))).to_pylist()


def answer_of_frame(measure: aggr.Measure, values: pa.Array, keys: list[str]) -> list:
    frame = TiltFrame(["1m", "1h"], "ts", {"m": measure}, keys)
    results = finish(rollup(pa.table({"ts": TIMES, "x": values}), frame), frame)
    return results.filter(pc.equal(results["level"], "1h"))["m"].to_pylist()


def measure_of_x(function: aggr.Function) -> aggr.Measure:
    """Return the measure whose inputs are all the column x, except the event time."""
    roles = {"time": {}} | {role: {role: "x"} for role in ("by", "weight", "x", "volume")}
    further = {name: column for role in function.inputs[1:] for name, column in roles[role].items()}
    return aggr.caller(function.name)("x", **further)


def outcome(compute, *arguments):
    """Give the answer, or the one sentence that refuses; anything else is an error of the test."""
    try:
        return repr(compute(*arguments))
    except (TypeError, ValueError) as error:
        refusal = error
    assert type(refusal) in (TypeError, ValueError), refusal  # none of Arrow's own
    assert len(str(refusal)) <= 300
    assert "\n" not in str(refusal)
    return "refused"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", aggr.names())
def test_every_function_takes_or_refuses_every_type(name, dtype):
    values, plain = TYPES[dtype]
    function = aggr.get(name)()
    result = outcome(answer, function, values)
    if name == "count" and dtype not in ("dense_union", "null"):
        assert result == repr([NOT_NULL])
    if plain is not None:
        assert result == outcome(answer, function, plain)
    assert outcome(answer_of_frame, measure_of_x(function), values, []) == result


DIGITS = convert_integers(pa.string(), json.dumps)
ENCODED_DIGITS = {
    **{str(t): DIGITS.cast(t) for t in (pa.large_string(), *types_of("string_view"))},
    **{str(t): convert_integers(t, json.dumps) for t in types_of("json_")},
    "dictionary": DIGITS.dictionary_encode(),
    "runs": pc.run_end_encode(DIGITS),
}


@pytest.mark.parametrize("name", aggr.names())
def test_frames_read_texts_of_numbers_alike_in_every_type_of_text(name):
    function = aggr.get(name)()
    measure = measure_of_x(function)
    expected = outcome(answer_of_frame, measure, DIGITS, [])
    for dtype, values in ENCODED_DIGITS.items():
        assert outcome(answer_of_frame, measure, values, []) == expected, dtype
    if expected != "refused" and input_rule(function, function.inputs[0]).use is Use.NUMBER:
        assert expected == outcome(answer_of_frame, measure, INT64_VALUES, [])


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_as_a_key_and_in_a_condition(dtype):
    values, plain = TYPES[dtype]
    for measure, keys in [
        (aggr.count(), ["x"]),
        (aggr.count(where="x IS NOT NULL"), []),
        (aggr.count("coalesce(x, x)"), []),
    ]:
        result = outcome(answer_of_frame, measure, values, keys)
        if plain is not None:
            assert result == outcome(answer_of_frame, measure, plain, keys)
        if not keys and result != "refused":
            assert result == repr([0 if dtype == "null" else NOT_NULL])
