"""PostgreSQL's own limits: data that it cannot store is rejected with our message before anything is written."""

from __future__ import annotations

import datetime
import decimal
import re

import adbc_driver_postgresql.dbapi as dbapi
import pyarrow as pa
import pytest
from click.testing import CliRunner

import aggr
from tiltframe import FrameStore, StoreError, TiltFrame, rollup
from tiltframe.cli.app import cli, main

pytestmark = pytest.mark.store

COUNTED = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["k"])


def tables_in(uri: str) -> list[str]:
    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
        )
        return [name for (name,) in cursor.fetchall()]


def stored_values(uri: str, values: list, kind: pa.DataType | None = None) -> list:
    data = pa.table({"ts": [0] * len(values), "k": pa.array(values, kind)})
    store = FrameStore(uri, COUNTED)
    for number in range(2):
        assert store.append(rollup(data, COUNTED), "w", number)
    store.compact()
    assert store.verify().ok
    results = FrameStore(uri).query("1h")
    assert results.column("n").to_pylist() == [2] * len(values)
    return results.column("k").to_pylist()


def refused(uri: str, work) -> str:
    with pytest.raises((StoreError, ValueError)) as caught:
        work()
    text = str(caught.value)
    assert "\n" not in text
    assert not re.search(r"ERROR|invalid byte sequence|CREATE TABLE|tiltframe_incoming|SQLSTATE|\[libpq\]", text), text
    assert tables_in(uri) == []
    return text


@pytest.mark.parametrize("length", [100, 2_700, 5_000, 1_000_000])
def test_long_keys_are_kept(postgres, length):
    import random

    chance = random.Random(length)  # text that does not compress
    first = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789ÄÖÜ", k=length))
    values = [first + "a", first + "b", "a"]
    assert sorted(stored_values(postgres, values)) == sorted(values)


def test_long_writers_and_many_keys(postgres):
    keys = [f"k{i}" for i in range(40)]  # more than an index has columns
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()}, keys)
    data = pa.table({"ts": [0, 0], **{key: ["a", f"b{key}"] for key in keys}})
    store = FrameStore(postgres, frame)
    import random

    writer = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=10_000))
    assert store.append(rollup(data, frame), writer, 0)
    assert not store.append(rollup(data, frame), writer, 0)
    assert store.append(rollup(data, frame), writer, 1)
    assert store.query("1m").column("n").to_pylist() == [2, 2]


def test_null_and_empty_keys_stay_apart(postgres):
    values = ["", None, "(,)", '"', "\\", ",", "a,b", "(", '""']
    assert sorted(map(str, stored_values(postgres, values))) == sorted(map(str, values))


def test_nul_in_text_is_refused_by_name(postgres):
    data = pa.table({"ts": [0, 1], "k": ["a", "b\0c"]})
    store = FrameStore(postgres, COUNTED)
    message = refused(postgres, lambda: store.append(rollup(data, COUNTED), "w", 0))
    assert "NUL" in message
    assert "'k'" in message


def test_nul_in_values_is_refused_by_name(postgres):
    frame = TiltFrame(["1m"], "ts", {"f": aggr.first("v")})
    data = pa.table({"ts": [0], "v": ["b\0c"]})
    assert "'f'" in refused(postgres, lambda: FrameStore(postgres, frame).append(rollup(data, frame), "w", 0))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (-(2**62), pa.timestamp("us")),
        (-(2**62), pa.timestamp("us", "UTC")),
        (-(2**61) // 10**3, pa.timestamp("ms")),
        (-(2**43), pa.timestamp("s")),
        (-3_000_000, pa.date32()),
        (2_147_000_000, pa.date32()),
    ],
)
def test_times_that_postgresql_does_not_have(postgres, value, kind):
    column = pa.array([value], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    data = pa.table({"ts": [0], "k": column})
    message = refused(postgres, lambda: FrameStore(postgres, COUNTED).append(rollup(data, COUNTED), "w", 0))
    assert "4714 BC" in message


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([datetime.date(1, 1, 1), datetime.date(9999, 12, 31)], pa.date32()),
        ([1.5, -0.5, float("inf"), float("-inf")], pa.float64()),
        ([True, False, None], pa.bool_()),
        ([b"\0", b"", b"\xff" * 5000], pa.binary()),
        ([2**64 - 1, 0], pa.uint64()),
        ([7, 0], pa.uint8()),
        ([datetime.time(1, 2, 3), datetime.time(23, 59, 59, 999_999)], pa.time64("us")),
        ([datetime.timedelta(days=-3), datetime.timedelta(0)], pa.duration("us")),
        ([decimal.Decimal("1.50"), decimal.Decimal("-2.25")], pa.decimal128(10, 2)),
        ([decimal.Decimal("1.50") * 10**50, decimal.Decimal(0)], pa.decimal256(70, 2)),
    ],
)
def test_keys_of_other_types(postgres, values, kind):
    assert set(stored_values(postgres, values, kind)) == set(values)


@pytest.mark.parametrize(
    "name", ["tiltframe 0", "a0", "k0", "a1", "m", "s", "p", "select", "user", "order by", "n_count", "part"]
)
def test_names_of_keys_that_the_views_might_use(postgres, name):
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count(), "x": aggr.dds("v", [0.5]), "y": aggr.avg("v")}, [name, "z"])
    data = pa.table({"ts": [0, 0], "v": [1.0, 3.0], name: ["a", "b"], "z": ["c", "c"]})
    FrameStore(postgres, frame).append(rollup(data, frame), "w", 0)
    with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
        quoted = name.replace('"', '""')
        cursor.execute(f'SELECT "{quoted}", n, x_count, y FROM frame_1m_current ORDER BY 1')
        assert cursor.fetchall() == [("a", 1, 1, 1.0), ("b", 1, 1, 3.0)]


@pytest.mark.parametrize("name", ["xmin", "ctid", "tableoid", "_part", "a\0b", "n.count"])
def test_names_that_a_table_cannot_have(postgres, name):
    def work():
        frame = TiltFrame(["1m"], "ts", {"n": aggr.count()}, [name])
        FrameStore(postgres, frame).append(rollup(pa.table({"ts": [0], name: ["a"]}), frame), "w", 0)

    refused(postgres, work)


def test_names_equal_in_their_first_63_bytes_stay_apart(postgres):
    keys = ["é" * 40 + end for end in "ab"] + ["x" * 80 + end for end in "ab"]
    frame = TiltFrame(["1m"], "ts", {"m" * 70 + "a": aggr.sum("v"), "m" * 70 + "b": aggr.min("v")}, keys)
    data = pa.table({"ts": [0], "v": [1.5], **{key: [key[-1] + str(i)] for i, key in enumerate(keys)}})
    FrameStore(postgres, frame).append(rollup(data, frame), "w", 0)
    row = FrameStore(postgres).query("1m").to_pylist()[0]
    assert [row[key] for key in keys] == ["a0", "b1", "a2", "b3"]


@pytest.mark.long
def test_more_columns_than_a_table_has(postgres):
    measures = {f"m{i}": aggr.sum(f"v{i}") for i in range(300)}
    frame = TiltFrame(["1m"], "ts", measures)
    data = pa.table({"ts": [0], **{f"v{i}": [1.0] for i in range(300)}})
    message = refused(postgres, lambda: FrameStore(postgres, frame).append(rollup(data, frame), "w", 0))
    assert "1,600" in message


@pytest.mark.long
def test_rows_that_are_too_wide_for_a_page(postgres):
    measures = {f"m{i}": aggr.min(f"v{i}") for i in range(520)}
    frame = TiltFrame(["1m"], "ts", measures)
    data = pa.table({"ts": [0], **{f"v{i}": pa.array([1.0]) for i in range(520)}})
    message = refused(postgres, lambda: FrameStore(postgres, frame).append(rollup(data, frame), "w", 0))
    assert "bytes" in message


def test_the_place_that_is_printed_can_be_used(postgres, tmp_path, capfd):
    (tmp_path / "rows.csv").write_text("ts,k\n2024-05-01T00:00:00Z,a\n")
    uri = postgres.replace("postgres:@", "postgres:s3cret@")
    arguments = ["rollup", str(tmp_path / "rows.csv"), "--time", "ts", "--key", "k", "--measure", "n=count()"]
    main_result = CliRunner().invoke(cli, [*arguments, "--levels", "1m,1h", "--store", uri])
    assert main_result.exit_code == 0, main_result.output
    printed = re.search(r"postgresql://[^ ]*?(?=: )", main_result.output).group(0)
    assert "s3cret" not in main_result.output
    assert FrameStore(printed).query("1h").column("n").to_pylist() == [1]
    main(["check", printed])
    assert "no problem found" in capfd.readouterr().out


def test_a_table_of_the_same_name_is_told_after_our_sentence(postgres):
    with dbapi.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE frame_states (x int)")
    data = pa.table({"ts": [0], "k": ["a"]})
    with pytest.raises(StoreError, match=r"^PostgreSQL at .* refused the statement: relation"):
        FrameStore(postgres, COUNTED).append(rollup(data, COUNTED), "w", 0)
