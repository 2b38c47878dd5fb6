"""Values with nanoseconds as Python objects: the same with and without pandas, and nothing is rounded."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import re
import subprocess
import sys
from fractions import Fraction

import pyarrow as pa
import pytest

from aggr.python_objects import python_objects

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
TYPES = [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns"), pa.duration("ns")]
ZERO = {"timestamp": dt.datetime(1970, 1, 1), "time64": dt.datetime(1970, 1, 1), "duration": None}


def nanoseconds(value: object) -> int:
    """Return the number of nanoseconds of an object or an ISO 8601 text, by arithmetic of whole numbers."""
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1) * 1000
    if not isinstance(value, str):
        value = value.isoformat()
    duration = re.fullmatch(r"(-?)PT(.*)S", value)
    if duration:
        count = Fraction(duration[2]) * 10**9 * (-1 if duration[1] else 1)
        assert count.denominator == 1
        return int(count)
    text = re.sub(r"(Z|\+00:00)$", "", value)
    seconds, _, fraction = text.partition(".")
    moment = dt.datetime.fromisoformat(seconds if "T" in seconds else f"1970-01-01T{seconds}")
    return (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(seconds=1) * 10**9 + int(f"{fraction:0<9}")


def draw(rng: random.Random, dtype: pa.DataType) -> list[int | None]:
    if pa.types.is_time(dtype):
        pool = [0, 1, 999, 1000, 86_399_999_999_999, rng.randrange(86_400 * 10**9)]
    else:
        pool = [
            0,
            1,
            -1,
            999,
            -1000,
            10**18 + 1,
            -(10**18),
            rng.randrange(-(2**62), 2**62),
            rng.randrange(2**62) // 1000 * 1000,
        ]
    return [*pool, None]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("nested", [False, True])
def test_no_nanosecond_is_lost(dtype, nested):
    values = draw(random.Random(SEED), dtype)
    column = pa.array(values, dtype)
    if nested:
        column = pa.array([[{"a": value, "b": {"k": value}}] for value in column.cast(pa.int64()).to_pylist()])
        target = pa.list_(pa.struct({"a": dtype, "b": pa.struct({"k": dtype})}))
        objects = [(row[0]["a"], row[0]["b"]["k"]) for row in python_objects(column.cast(target))]
    else:
        objects = [(value, value) for value in python_objects(pa.chunked_array([column]))]
    for value, pair in zip(values, objects, strict=True):
        for result in pair:
            assert result is None if value is None else nanoseconds(result) == value, (SEED, value, result)
            assert isinstance(result, str) == (value is not None and value % 1000 != 0)


@pytest.mark.parametrize(
    "dtype", [pa.map_(pa.string(), TYPES[0]), pa.large_list(TYPES[2]), pa.list_(TYPES[3], 1)], ids=str
)
def test_values_of_maps_and_lists(dtype):
    plain = pa.map_(pa.string(), pa.int64()) if pa.types.is_map(dtype) else dtype
    value = {"k": 1} if pa.types.is_map(dtype) else [1]
    ((entry,),) = python_objects(pa.array([value], plain).cast(dtype))
    assert nanoseconds(entry[1] if pa.types.is_map(dtype) else entry) == 1


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "-03:30"])
def test_texts_are_those_of_pandas(zone):
    pandas = pytest.importorskip("pandas")
    counts = [1, -1, 1_711_846_800_123_456_789, 1_729_987_200_000_000_001]
    expected = [pandas.Timestamp(n, tz="UTC").tz_convert(zone) if zone else pandas.Timestamp(n) for n in counts]
    texts = [re.sub(r"\+00:00$", "Z", time.isoformat()) for time in expected]
    assert python_objects(pa.array(counts, pa.timestamp("ns", zone))) == texts


WITHOUT = """
import sys
class Missing:
    def find_spec(name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing)
import pyarrow as pa
from tiltframe.extend import json_lines
from tiltframe.text.cells import cells_of
columns = [pa.array([1], dtype) for dtype in (pa.timestamp("ns", "UTC"), pa.time64("ns"), pa.duration("ns"))]
table = pa.table({str(place): column for place, column in enumerate(columns)})
print(json_lines(table) + str([cells_of(column) for column in table.columns]))
"""


def test_results_are_written_without_pandas():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    texts = ["1970-01-01T00:00:00.000000001Z", "00:00:00.000000001", "PT0.000000001S"]
    line, cells = done.stdout.splitlines()
    assert list(json.loads(line).values()) == texts
    assert cells == str([[text] for text in texts])
