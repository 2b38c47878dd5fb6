"""Equal rows give equal bits in every output: random frames over special values, read in each way.

A trial is a random frame over CASES data sets, which differ in the key ``case``. The expected results are those of
`finish` for each data set alone. Other tests, such as `tests/aggr/test_laws.py`, check these results.
"""

from __future__ import annotations

import datetime as dt
import io
import os
import random
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import aggr
from aggr.tables.by_key import merge_by
from aggr.tables.flat_results import flattened
from tiltframe import FrameStore, TiltFrame, finish, rollup
from tiltframe.store.backends.postgres.session import session
from tiltframe.streaming import OpenWindows

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
TRIALS = int(os.environ.get("TRIALS", 3))
CASES = 25
OF_A_JOB = 250  # cases of a trial on Spark, where a job takes its time whatever its rows

LEVELS = [["1m", "1h"], ["15m", "1h", "1d"], ["1h", "1mo"], ["1d"], ["1d", "1w"], ["30m", "2h"], ["10s", "1q"]]
# No store has these levels.
UNSTORED = [["hopping(2h, 30m)"], ["session(20m)"], ["1h", "all"], ["15m", "hopping(1h, 15m)", "1d"]]
ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe"]
CHANGES = ["2024-03-10T07:00", "2024-11-03T06:00", "2024-10-27T01:00", "2024-04-06T15:00", "1969-12-31T23:59"]
PAYLOADS = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000123, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF]
NAN = [np.array([bits], np.uint64).view(np.float64)[0] for bits in PAYLOADS]
FLOATS = [0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-310, 1.7976931348623157e308, 0.1, 1e16, -1e16]
FLOATS += [2.0**53 - 1, 2.0**53, 2.0**53 + 2, 1.5, 1e9 + 0.25, *NAN, float("inf"), float("-inf")]
TAME = [v for v in FLOATS if np.isfinite(v)]
INTEGERS = [0, 1, -1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1, 10**18, 7]
MOMENTS = [dt.datetime.fromisoformat(at) for at in CHANGES]
TYPES: dict[str, tuple[pa.DataType, list]] = {
    "x": (pa.float64(), FLOATS),
    "tame": (pa.float64(), TAME),
    "f": (pa.float32(), [0.0, -0.0, 1e-45, -1e-45, 3.4028234663852886e38, 0.5, float("nan"), float("inf")]),
    "i": (pa.int64(), INTEGERS),
    "whole": (pa.int64(), [0, 1, -1, 2**53 + 1, -(2**53), 12345, 2**57]),
    "byte": (pa.int8(), [-128, 127, 0, 5]),
    "n": (pa.int32(), [0, 1, 2, 999, 2**31 - 1]),
    "u": (pa.uint64(), [0, 1, 2**53 + 1, 2**63, 2**64 - 1]),
    "price": (
        pa.decimal128(20, 4),
        [Decimal(t) for t in ("0.0000", "-0.0001", "9999999999999.9999", "0.1000", "5.5000")],
    ),
    "text": (pa.string(), ["", "a", "A", "ä", "😀", "z" * 70, "'\"\\", " "]),
    "raw": (pa.binary(), [b"", b"\x00", b"\xff\x00", b"ab"]),
    "ok": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 3, 10), dt.date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [at.replace(tzinfo=dt.UTC) for at in MOMENTS]),
    "naive": (pa.timestamp("us"), MOMENTS),
    "w": (pa.int64(), [0, 1, 2, 5]),
}
NOT_IN_SPARK = {"u"}
NUMBERS, EXACT = ["x", "tame", "f", "i", "byte", "n", "u", "price"], ["x", "tame", "f", "whole", "price"]
HASHABLE = ["x", "f", "i", "n", "u", "text", "raw"]
ORDERED = [name for name in TYPES if name != "w"]

TWO_COLUMNS = [aggr.corr, aggr.slope, aggr.intercept, aggr.r2]
DECAYED, AS_OF = [aggr.decayed_sum, aggr.decayed_avg, aggr.decayed_count], [None, "9999-12-31T23:59:59.999999Z"]
SERIES = [aggr.rate, aggr.increase, aggr.delta, aggr.resets, aggr.time_weighted_avg, aggr.integral, aggr.lttb]
TOP_ROWS = [aggr.top_k, aggr.bottom_k]
COUNTED, SAMPLE = [aggr.value_counts, aggr.mode, aggr.exact_quantiles], {"max": 3, "beyond": "sample"}
LATEST_TWO = {"max": 2, "keep": "latest"}


def measure(draws: random.Random, names: set[str], lists: bool) -> aggr.Measure:
    """Draw a call of a function over columns of these names; lists of structs, which PostgreSQL refuses, if asked."""

    def pick(candidates: list[str]) -> str:
        return draws.choice([name for name in candidates if name in names])

    extras: dict = {}
    if draws.random() < 0.3:
        extras["where"] = draws.choice(["x > 0", "ok", "text <> ''", "byte IS NOT NULL", "price < 1"])
    weighed = extras | ({"weight": "w"} if draws.random() < 0.3 else {})
    return draws.choice(
        [
            lambda: aggr.count(**weighed),
            lambda: aggr.count(pick(ORDERED), **weighed),
            lambda: draws.choice([aggr.min, aggr.max])(pick(ORDERED), **extras),
            lambda: aggr.sum(pick(EXACT), **(extras if draws.random() < 0.5 else weighed)),
            lambda: aggr.avg(pick([*NUMBERS, "at", "naive"]), **extras),
            lambda: aggr.avg(pick(NUMBERS), **weighed),
            lambda: draws.choice([aggr.var, aggr.stdev])(pick(NUMBERS), ddof=draws.choice([0, 1, 2]), **extras),
            lambda: draws.choice([aggr.skewness, aggr.kurtosis])(pick(NUMBERS), sample=draws.random() < 0.5, **extras),
            lambda: aggr.weighted_avg(pick(NUMBERS), weight=pick(["x", "tame", "n", "price"]), **extras),
            lambda: draws.choice(TWO_COLUMNS)(pick(NUMBERS), x=pick(NUMBERS), **extras),
            lambda: aggr.covar(pick(NUMBERS), x=pick(NUMBERS), ddof=draws.choice([0, 1]), **extras),
            lambda: aggr.dds(
                pick(NUMBERS), [0, 0.5, 0.99], draws.choice([0.01, 0.1]), max_bins=draws.choice([None, 9]), **weighed
            ),
            lambda: aggr.exponential(pick(NUMBERS), [0, 0.5], draws.choice([20, 3]), draws.choice([160, 7]), **weighed),
            lambda: aggr.hdr("n", [0.5, 1], digits=draws.choice([1, 3]), **weighed),
            lambda: draws.choice([aggr.sum_of_squares, aggr.rms])(pick(NUMBERS), **extras),
            lambda: aggr.range(pick(["x", "tame", "f", "whole", "byte", "n", "price"]), **extras),
            lambda: draws.choice([aggr.bool_and, aggr.bool_or])("ok", **extras),
            lambda: draws.choice([aggr.bit_and, aggr.bit_or, aggr.bit_xor])(pick(["i", "byte", "n", "u"]), **extras),
            lambda: draws.choice([aggr.first, aggr.last, aggr.any_value])(pick(ORDERED), **extras),
            lambda: draws.choice([aggr.first, aggr.last])(pick(ORDERED), by="at", **extras),
            lambda: aggr.m4(pick(ORDERED), by=draws.choice([None, "at"]), **extras),
            lambda: aggr.candlestick(pick(NUMBERS), volume=pick(["whole", "price", "x"]), **extras),
            lambda: draws.choice([aggr.arg_min, aggr.arg_max])(pick(ORDERED), by=pick(ORDERED), **extras),
            lambda: aggr.histogram(pick(NUMBERS), edges=[-1, 0, 0.5, 100], **weighed),
            lambda: aggr.hll(pick(HASHABLE), lg_k=draws.choice([8, 12]), **extras),
            lambda: aggr.approx_count_distinct(pick(HASHABLE), k=draws.choice([16, 4096]), **extras),
            lambda: aggr.collect_set(pick(ORDERED), **extras),
            lambda: aggr.count_distinct(pick(ORDERED), **extras),
            lambda: draws.choice([aggr.sum, aggr.avg])(pick(["tame", "byte", "price"]), distinct=True, **extras),
            *[lambda: draws.choice(COUNTED)(pick(ORDERED), **weighed)] * lists,
            *[lambda: aggr.frequent(pick(ORDERED), share=draws.choice([0.3, 1.0]), **weighed)] * lists,
            *[lambda: aggr.per(pick(ORDERED), of={"m": aggr.count(pick(ORDERED), **extras)}, **SAMPLE)] * lists,
            *[lambda: draws.choice(TOP_ROWS)(pick(ORDERED), by=pick(ORDERED), k=2, **extras)] * lists,
            *[
                lambda: draws.choice(DECAYED)(
                    pick(NUMBERS), draws.choice(["1m", "7d"]), as_of=draws.choice(AS_OF), **extras
                )
            ]
            * lists,
            *[lambda: draws.choice(SERIES)(pick(NUMBERS), **(extras | draws.choice([{}, LATEST_TWO])))] * lists,
            *[lambda: aggr.collect(pick(ORDERED), **(extras | draws.choice([{}, LATEST_TWO])))] * lists,
        ]
    )()  # fmt: skip


def frame_of(draws: random.Random, levels: list[list[str]], names: set[str], lists: bool) -> TiltFrame:
    keys = draws.sample(sorted(names - {"w"}), draws.choice([0, 0, 1, 2]))
    measures = {f"m{at}": measure(draws, names, lists) for at in range(draws.randint(3, 9))}
    return TiltFrame(draws.choice(levels), "ts", measures, ["case", *keys], draws.choice(ZONES))


def rows_of(draws: random.Random, names: set[str], cases: int) -> pa.Table:
    """Draw the rows of all cases, shuffled; each case has few values of each column, and so ties."""
    columns: dict[str, list] = {name: [] for name in ("case", "ts", *sorted(names))}
    for case in range(cases):
        size, about = draws.randint(1, 14), draws.choice(MOMENTS).replace(tzinfo=dt.UTC)
        spread = draws.choice([1, 3600, 86_400 * 3])
        columns["case"] += [case] * size
        columns["ts"] += [about + dt.timedelta(seconds=draws.randint(-spread, spread)) for _ in range(size)]
        for name in sorted(names):
            pool = [*draws.sample(TYPES[name][1], min(len(TYPES[name][1]), draws.randint(1, 4))), None]
            columns[name] += [draws.choice(pool) for _ in range(size)]
    types = {"case": pa.int64(), "ts": pa.timestamp("us", "UTC")} | {name: TYPES[name][0] for name in names}
    table = pa.table({name: floats(values, types[name]) for name, values in columns.items()})
    return table.take(pa.array(draws.sample(range(len(table)), len(table)), pa.int64()))


def floats(values: list, dtype: pa.DataType) -> pa.Array:
    """Make an array; of doubles by numpy, which keeps the payloads of NaN."""
    if dtype != pa.float64():
        return pa.array(values, dtype)
    mask = np.array([value is None for value in values])
    return pa.array(np.array([0.0 if value is None else value for value in values]), mask=mask, from_pandas=False)


def batches(draws: random.Random, rows: pa.Table) -> list[pa.Table]:
    cuts = sorted(draws.randint(0, len(rows)) for _ in range(draws.randint(0, 3)))
    return [rows.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def plain(value: object) -> object:
    """Give a value as what can be compared to the bit, whatever type a way gives it in."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, dt.datetime):
        return (value if value.tzinfo is None else value.astimezone(dt.UTC)).replace(tzinfo=None).isoformat()
    if isinstance(value, bool) or value is None:
        return repr(value)
    return Fraction(value) if isinstance(value, int | Decimal) else value


def numbers(value: object, dtype: pa.DataType | None) -> object:
    """Read decimals, which PostgreSQL's numeric comes as the text of."""
    if isinstance(value, list):
        return [numbers(element, dtype.value_type) for element in value]
    is_text = isinstance(value, str) and dtype is not None and not pa.types.is_string(dtype)
    return Decimal(value) if is_text else value


def answers(table: pa.Table, expected: pa.Schema, frame: TiltFrame, level: str = "") -> dict[tuple, dict[str, object]]:
    """Put results in a dict by window and keys; what SQL has as text or whole numbers by the type that is expected."""
    table = flattened(table)
    if level and "level" not in table.column_names:
        table = table.append_column("level", pa.array([level] * len(table)))
    by = ["level", "window_start", "window_end", *frame.keys]
    columns = {}
    for name in table.column_names:
        values = table.column(name).to_pylist()
        dtype = expected.field(name).type if name in expected.names else None
        columns[name] = [plain(numbers(value, dtype)) for value in values]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows_by_key = {tuple(row[name] for name in by): row for row in rows}
    assert len(rows_by_key) == len(rows), "a window twice"
    return rows_by_key


class Trial:
    """A frame, its rows, and what is expected of each way."""

    def __init__(
        self, number: object, levels: list[list[str]], names: set[str], lists: bool = True, cases: int = CASES
    ) -> None:
        self.name = f"seed {SEED}, trial {number}"
        self.draws = random.Random(f"{SEED} {number}")
        self.frame = frame_of(self.draws, levels, names, lists)
        self.rows = rows_of(self.draws, names, cases)
        alone = [self.rows.filter(pc.equal(self.rows["case"], case)) for case in range(cases)]
        results = pa.concat_tables([finish(rollup(rows, self.frame), self.frame, flat=True) for rows in alone])
        self.schema = results.schema
        self.columns = [
            n for n in results.column_names if n not in ("level", "window_start", "window_end", *self.frame.keys)
        ]
        self.expected = answers(results, self.schema, self.frame)

    def check(
        self, way: str, table: pa.Table, level: str = "", unknown: Callable[[str], bool] = lambda name: False
    ) -> None:
        """Compare what a way gives with what is expected, but for columns that it does not know."""
        actual = answers(table, self.schema, self.frame, level)
        expected = {key: row for key, row in self.expected.items() if not level or key[0] == level}
        assert actual.keys() == expected.keys(), (self.name, way, self.frame)
        for name in self.columns:
            if unknown(name):
                continue
            differ = [
                (key, actual[key][name], row[name])
                for key, row in expected.items()
                if actual[key][name] != row[name] and repr(actual[key][name]) != repr(row[name])  # NaN within lists
            ]
            assert not differ, (self.name, way, name, dict(self.frame.measures), differ[:2])

    def parts(self) -> list[pa.Table]:
        return batches(self.draws, self.rows)

    def append(self, store: FrameStore) -> FrameStore:
        """Bring the rows into a store, in batches, as states of all levels or of the finest, or as rows."""
        for number, part in enumerate(self.parts()):
            states, finest = rollup(part, self.frame), self.frame.levels[0].name
            how = self.draws.randrange(3)
            if how == 0:
                store.append(states, f"w{self.draws.randrange(2)}", number)
            elif how == 1:
                store.append(states.filter(pc.equal(states["level"], finest)), "w", number)
            else:
                store.append_rows(part, "w", number)
        if self.draws.random() < 0.3:
            store.compact()
        return store


@pytest.mark.slow
@pytest.mark.parametrize("number", range(TRIALS))
def test_saved_merged_and_streamed(number):
    print("seed", SEED)
    trial = Trial(number, LEVELS + UNSTORED, set(TYPES))
    frame, draws = trial.frame, trial.draws
    trial.check("all at once", finish(rollup(trial.rows, frame), frame))
    saved = []
    for part in trial.parts():
        states = rollup(part, frame)
        file = io.BytesIO()
        if draws.random() < 0.5:
            pq.write_table(states, file)
            saved.append(pq.read_table(io.BytesIO(file.getvalue())))
            continue
        with pa.ipc.new_file(file, states.schema) as writer:
            writer.write_table(states)
        saved.append(pa.ipc.open_file(file.getvalue()).read_all())
    if not frame.levels[0].is_merging:
        functions = {column.name: column.measure.function for column in frame.states}
        while len(saved) > 1:
            pair = pa.concat_tables([saved.pop(draws.randrange(len(saved))) for _ in range(2)])
            by = {
                name: pair.column(name).combine_chunks()
                for name in ("level", "window_start", "window_end", *frame.keys)
            }
            saved.append(merge_by(pair, by, functions).cast(pair.schema))
        trial.check("saved and merged", finish(saved[0], frame))
    rows = trial.rows.sort_by("ts") if draws.random() < 0.5 else trial.rows
    windows, emitted = OpenWindows(frame), []
    for part in batches(draws, rows):
        assert not len(windows.add_rows(part))
        if rows is not trial.rows and len(part):
            emitted.append(windows.advance(part["ts"][-1].value))
        if draws.random() < 0.3:
            windows = OpenWindows.from_ipc(windows.to_ipc())
    emitted.append(windows.close())
    results = windows.results(pa.concat_tables([table for table in emitted if "window_start" in table.column_names]))
    trial.check("stream", results.drop_columns(["reason", "revision", "partial"]))


@pytest.mark.store
@pytest.mark.parametrize("number", range(TRIALS))
def test_a_store_in_a_folder(tmp_path, number):
    trial = Trial(f"folder {number}", LEVELS, set(TYPES))
    store = trial.append(FrameStore(tmp_path / "store", trial.frame))
    for level in trial.frame.levels:
        trial.check("folder", store.query(level, flat=True), level.name)


@pytest.mark.long
@pytest.mark.store
def test_a_store_in_postgres_its_view_and_its_flat_tables(postgres):
    print("seed", SEED)
    for number in range(TRIALS):
        trial = Trial(f"postgres {number}", LEVELS, set(TYPES), lists=False)
        name = f"t{number}"
        store = trial.append(FrameStore(postgres, trial.frame, name=name))
        with session(postgres) as db:
            views = {level: db.ask(f"SELECT * FROM {name}_{level.name}_current") for level in trial.frame.levels}
            for level, view in views.items():
                trial.check("postgres", store.query(level, flat=True), level.name)
                (comment,) = db.rows(f"SELECT obj_description('{name}_{level.name}_current'::regclass) AS text")
                listed = comment["text"].partition("newer rows: ")[2].split(", ")
                trial.check("view", view, level.name, lambda n, k=listed, v=view: n in k or n not in v.column_names)
            store.export()
            for level in trial.frame.levels:
                for relation in ("current", "flat"):
                    table = db.ask(f"SELECT * FROM {name}_{level.name}_{relation}")
                    trial.check(relation, table, level.name, lambda n, t=table: n not in t.column_names)


@pytest.mark.store
def test_the_view_tells_both_zeros_apart(postgres):
    measures = {
        **{
            "low": aggr.min("x"),
            "high": aggr.max("x"),
            "sketch": aggr.dds("x"),
            "mean": aggr.weighted_avg("x", weight="w"),
        },
        **{"at_low": aggr.arg_min("i", by="x"), "at_high": aggr.arg_max("i", by="x"), "first": aggr.first("x")},
    }
    frame = TiltFrame(["1h"], "ts", measures, ["k"])
    rows = pa.table(
        {"ts": [0] * 5, "k": [0, 0, 1, 1, 2], "x": [0.0, -0.0, -0.0, 0.0, None], "i": [1, 2, 3, 4, 5], "w": [-1] * 5}
    )
    expected = finish(rollup(rows, frame), frame, flat=True)
    store = FrameStore(postgres, frame)
    for number in range(rows.num_rows):
        store.append(rollup(rows.slice(number, 1), frame), "w", number)
    with session(postgres) as db:
        view = db.ask("SELECT * FROM frame_1h_current")
    names = [*(set(measures) - {"sketch"}), "sketch_count", "sketch_min", "sketch_max"]
    hours = expected.filter(pc.equal(expected["level"], "1h"))
    both = [
        {key: {name: row[name] for name in names} for key, row in answers(table, expected.schema, frame, "1h").items()}
        for table in (hours, view)
    ]
    assert both[0] == both[1]
    assert sorted(map(str, (row["at_low"] for row in both[1].values()))) == ["2", "3", "None"]  # where x is -0.0


@pytest.mark.store
def test_the_view_rounds_halves_of_the_least_doubles_to_even(postgres):
    """Such a half has 1075 places, more than PostgreSQL computes of a quotient or a root."""
    smallest, normal = 5e-324, 2.2250738585072014e-308
    pairs = [
        (normal, -smallest),
        (normal, smallest),
        (3 * smallest, 0.0),
        (5 * smallest, 0.0),
        (normal + 2 * smallest, smallest),
    ]
    functions = {"mean": aggr.avg, "rms": aggr.rms}
    measures = {name: function("x") for name, function in functions.items()} | {
        "sd": aggr.stdev("x", ddof=0),
        "weighted": aggr.weighted_avg("x", weight="w"),
    }
    frame = TiltFrame(["1h"], "ts", measures, ["k"])
    rows = [{"ts": 0, "k": k, "x": x, "w": 0.25} for k, pair in enumerate(pairs) for x in pair]
    states = rollup(pa.Table.from_pylist(rows), frame)
    FrameStore(postgres, frame).append(states, "w", 1)
    with session(postgres) as db:
        view = db.ask("SELECT * FROM frame_1h_current ORDER BY k")
    expected = finish(states, frame).sort_by("k")
    for name in measures:
        assert [plain(x) for x in view[name].to_pylist()] == [plain(x) for x in expected[name].to_pylist()], name
    exactly = [(Fraction(x) + Fraction(y)) / 2 for x, y in pairs]
    assert [float(mean) for mean in exactly] == expected["mean"].to_pylist()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_spark(spark):
    import spark_udaf as su

    print("seed", SEED)
    for number in range(TRIALS):
        trial = Trial(f"spark {number}", LEVELS + UNSTORED, set(TYPES) - NOT_IN_SPARK, cases=OF_A_JOB)
        df = spark.createDataFrame(trial.rows).repartition(trial.draws.randint(1, 3))
        df = df.withColumn("naive", df.naive.cast("timestamp_ntz"))
        trial.check("spark", su.finish(su.rollup(df, trial.frame), trial.frame).toArrow())
