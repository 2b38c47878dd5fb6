"""Records as keys and values: each(fields) and fields[class], compared with a table with one row per field."""

import random

import pyarrow as pa
import pytest

import aggr
from aggr import each
from tiltframe import TiltFrame, finish, rollup
from tiltframe.streaming import OpenWindows

NAMES = ["a", "b", "7", "07", "x.y"]


def frame_of(value: str, key: str) -> TiltFrame:
    measures = {
        "n": aggr.count(),
        "total": aggr.sum(value),
        "stats": aggr.hdr(value),
        "last": aggr.last(value),
        "large": aggr.count(where=f"{value} > 50 and host = 'x'"),
    }
    return TiltFrame(["1s", "1m"], "ts", measures, keys={"host": "host", "class": key})


def random_records(seed: int) -> list[dict[str, float | None] | None]:
    chance = random.Random(seed)
    records: list[dict[str, float | None] | None] = []
    for _ in range(300):
        names = chance.sample(NAMES, chance.randrange(len(NAMES) + 1))
        record = {name: chance.choice([None, float(chance.randrange(100))]) for name in names}
        records.append(chance.choice([None, record, record, record]))
    return records


def as_structs(records):
    return pa.array(records, pa.struct([(name, pa.float64()) for name in NAMES]))


def as_maps(records):
    return pa.array([None if r is None else list(r.items()) for r in records], pa.map_(pa.string(), pa.float64()))


def as_lists(records):
    """Each entry twice, the second with another value."""
    element = pa.struct([("key", pa.string()), ("value", pa.float64())])
    return pa.array(
        [None if r is None else [{"key": k, "value": v} for k, v in doubled(r)] for r in records], pa.list_(element)
    )


def doubled(record):
    return [(k, w) for k, v in record.items() for w in (v, None if v is None else v + 1)]


@pytest.mark.parametrize(
    ("make", "entries", "key"),
    [
        (as_structs, lambda r: [(k, v) for k, v in r.items() if v is not None], each("fields")),
        (as_structs, lambda r: [(k, v) for k, v in r.items() if v is not None], each("map_keys(fields)")),
        (as_maps, lambda r: list(r.items()), each("fields")),
        (as_maps, lambda r: list(r.items()), "each(map_keys(fields))"),
        (as_lists, doubled, each("fields")),
        (as_lists, doubled, "each(fields.key)"),
    ],
)
def test_each_of_a_record_equals_exploded_rows(make, entries, key):
    """The states are those of exploded rows, bit by bit, also in a stream of several batches."""
    records = random_records(3)
    hosts = ["x", "y", None] * 100
    times = [i * 40 for i in range(300)]
    rows = pa.table({"ts": times, "host": hosts, "fields": make(records)})
    by_hand = [(t, h, k, v) for t, h, r in zip(times, hosts, records, strict=True) for k, v in entries(r or {})]
    columns = dict(zip(["ts", "host", "class", "value"], map(list, zip(*by_hand, strict=True)), strict=True))
    exploded = pa.table(columns)

    frame, frame_by_hand = frame_of("fields[class]", key), frame_of("value", "class")
    states = rollup(rows, frame)

    assert states.drop_columns(["level"]).equals(rollup(exploded, frame_by_hand).drop_columns(["level"]))
    results = finish(states, frame)
    sums = {}
    for t, h, k, v in by_hand:
        sums.setdefault((t // 1000, h, k), []).append(v)
    expected = {at: (len(vs), sum(v for v in vs if v is not None)) for at, vs in sums.items()}
    results_by_group = {
        (int(r["window_start"].timestamp()), r["host"], r["class"]): (r["n"], r["total"] or 0)
        for r in results.to_pylist()
        if r["level"] == "1s"
    }
    assert results_by_group == expected

    windows = OpenWindows(frame)
    emitted = []
    for begin in range(0, 300, 70):
        windows.add_rows(rows.slice(begin, 70))
        emitted.append(windows.results(windows.advance(times[begin] * 1000)))
    emitted.append(windows.results(windows.close()))
    counts = sum(row["n"] for batch in emitted for row in batch.to_pylist() if row["level"] == "1s")
    assert counts == len(by_hand)


def test_records_of_measurements():
    """One group per measurement field, with the values of that field (Tremor's query of the Influx example)."""
    rows = pa.table(
        {
            "ts": [0, 1, 2],
            "fields": [{"usage_idle": 10, "usage_user": 0.5}, {"usage_idle": 20, "usage_user": 1.5}, None],
        },
        schema=pa.schema(
            [("ts", pa.int64()), ("fields", pa.struct([("usage_idle", pa.int64()), ("usage_user", pa.float64())]))]
        ),
    )
    frame = TiltFrame(["10s"], "ts", {"mean": aggr.avg("fields[class]")}, keys={"class": each("fields")})
    assert finish(rollup(rows, frame), frame).select(["class", "mean"]).to_pylist() == [
        {"class": "usage_idle", "mean": 15.0},
        {"class": "usage_user", "mean": 1.0},
    ]


def test_fields_of_numbers_and_text_are_text():
    rows = pa.table({"ts": [0, 1], "fields": [{"n": 1, "s": "x"}, {"n": 2, "s": "2.5"}]})
    number = "try_cast(fields[class] AS DOUBLE)"
    frame = TiltFrame(["1s"], "ts", {"total": aggr.sum(number)}, keys={"class": each("fields")})
    assert finish(rollup(rows, frame), frame).column("total").to_pylist() == [3.0, 2.5]


def test_two_each_read_the_entry_of_their_own_record():
    rows = pa.table({"ts": [0], "f": [{"a": 1, "b": 2}], "g": [{"c": 10, "d": 20}]})
    keys = {"k": each("f"), "j": each("g")}
    frame = TiltFrame(["1s"], "ts", {"total": aggr.sum("f[k] + g[j]")}, keys=keys)
    assert finish(rollup(rows, frame), frame).column("total").to_pylist() == [11, 21, 12, 22]


def test_a_list_of_text_has_no_values_by_key():
    rows = pa.table({"ts": [0], "tags": [["a"]]})
    frame = TiltFrame(["1s"], "ts", {"total": aggr.sum("tags[tag]")}, keys={"tag": each("tags")})
    with pytest.raises(ValueError, match=r"a value of type list<.*> has no keys; use a struct, a map or a list"):
        rollup(rows, frame)
