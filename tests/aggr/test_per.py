"""per obeys the laws with any functions, below and beyond its limit; results compared with DuckDB and naive Python."""

from __future__ import annotations

import itertools
import json
import os

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups, avg, count, dds, first, max, min, per, sum
from aggr.arrow.bit_equality import same_bits
from aggr.arrow.damaged_state import DamagedState
from aggr.tables.identify import function_of
from aggr.testing.edge_cases import edge_cases
from aggr.testing.laws import check
from tiltframe import TiltFrame, finish, rollup
from tiltframe.text.measures import measure_from

TRIALS = int(os.environ.get("TRIALS", 20))
RNG = np.random.default_rng(5)
N = 4000
ROWS = pa.table(
    {
        "ts": pa.array(np.arange(N) * 1_000_000, pa.timestamp("us")),
        "g": RNG.integers(0, 7, N),
        "host": pa.array([f"h{h}" for h in RNG.zipf(1.5, N) % 300], mask=RNG.random(N) < 0.05),
        "ms": pa.array(RNG.lognormal(2, 1, N).round(3), mask=RNG.random(N) < 0.1),
        "status": RNG.choice([200, 404, 500], N),
        "w": RNG.integers(0, 4, N),
    }
)
FUNCTIONS = {
    "n": count(),
    "errors": count(where="status >= 500"),
    "top": max("ms"),
    "mean": avg("ms"),
    "twice": sum("ms * 2", where="ms < 20"),
    "early": first("status"),
}
STRUCT = pa.struct(
    [("key", pa.string()), ("of.x", pa.float64()), ("time", pa.timestamp("us", "UTC")), ("of.x > 0", pa.bool_())]
)
INNER = {"a": avg("x"), "f": first("x"), "m": min("x", where="x > 0"), "n": count()}


def by_duckdb(select: str, group: str = "g, host", where: str = "host IS NOT NULL") -> list[tuple]:
    rows = ROWS  # noqa: F841 DuckDB finds it by its name
    return duckdb.sql(f"SELECT {group}, {select} FROM rows WHERE {where} GROUP BY {group} ORDER BY {group}").fetchall()


def results(measure: aggr.Measure, rows: pa.Table = ROWS, parts: int = 3) -> list:
    """Reduce random parts on their own, merge them, and read."""
    states = []
    for part in np.array_split(RNG.permutation(len(rows)), parts):
        chosen = rows.take(pa.array(part))
        states.append(measure.reduce(chosen, Groups.of(chosen["g"].to_numpy(), 7), chosen["ts"].combine_chunks()))
    merged = measure.function.merge(pa.concat_arrays(states), Groups.of([*range(7)] * parts, 7))
    return measure.function.finish(merged).to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize(("max_keys", "beyond"), [(100, "error"), (3, "sample"), (1, "sample")])
def test_laws_of_several_functions(max_keys, beyond):
    check(aggr.Per(INNER, max_keys, beyond), STRUCT, rounds=5, seed=max_keys)


@pytest.mark.slow
def test_a_map_of_maps_obeys_the_laws():
    inner = per("x", of={"n": count()}, max=2, beyond="sample")
    kind = pa.struct([("key", pa.string()), ("of.x", pa.float64())])
    check(aggr.Per({"hosts": inner}, 2, "sample"), kind, rounds=5)


def test_every_key_has_what_duckdb_groups():
    select = """count(*), count(*) FILTER (WHERE status >= 500), max(ms), avg(ms), sum(ms * 2) FILTER (WHERE ms < 20),
        arg_min(status, ts)"""
    expected = {group: [] for group in range(7)}
    for group, host, n, errors, top, mean, twice, early in by_duckdb(select):
        entry = {"key": host, "early": early, "errors": errors, "mean": mean, "n": n, "top": top, "twice": twice}
        expected[group].append(entry)
    for group, result in enumerate(results(per("host", of=FUNCTIONS))):
        assert result["share"] == 1.0
        assert [entry["key"] for entry in result["entries"]] == [entry["key"] for entry in expected[group]]
        for entry, expected_entry in zip(result["entries"], expected[group], strict=True):
            for name in "mean", "twice":
                expected_entry[name] = expected_entry[name] and pytest.approx(expected_entry[name], rel=1e-12)
            assert entry == expected_entry


def test_the_first_keys_by_a_result():
    functions = {"n": count(), "top": max("0 - ms")}
    for by, direction in ("n", "n DESC"), ("top", "top DESC NULLS LAST"):
        result = results(per("host", of=functions, top=5, by=by))
        rows_of_duckdb = by_duckdb("count(*) AS n, max(-ms) AS top")
        for group, rows in itertools.groupby(rows_of_duckdb, key=lambda row: row[0]):
            key = {"n": lambda row: -row[2], "top": lambda row: -np.inf if row[3] is None else -row[3]}[by]
            expected = sorted(rows, key=lambda row: (row[3] is None and by == "top", key(row), row[1]))[:5]
            assert [entry["key"] for entry in result[group]["entries"]] == [row[1] for row in expected], direction


def test_weights_go_to_every_function():
    measure = per("host", of={"n": count(), "s": sum("ms"), "d": dds("ms")}, weight="w")
    repeated = ROWS.take(pa.array(np.repeat(np.arange(N), ROWS["w"].to_numpy())))
    unsplit, rows = (
        m.reduce(t, Groups.of(t["g"].to_numpy(), 7))
        for m, t in ((measure, ROWS), (per("host", of={"n": count(), "s": sum("ms"), "d": dds("ms")}), repeated))
    )
    assert same_bits(unsplit, rows)
    with pytest.raises(ValueError, match="per does not accept a weight"):
        per("host", of={"m": max("ms")}, weight="w")


@pytest.mark.parametrize("max_keys", [1, 7, 50])
def test_a_sample_has_all_rows_of_its_keys(max_keys):
    all_entries = [
        {entry["key"]: entry for entry in result["entries"]} for result in results(per("host", of=FUNCTIONS))
    ]
    for result, everything in zip(
        results(per("host", of=FUNCTIONS, max=max_keys, beyond="sample")), all_entries, strict=True
    ):
        assert len(result["entries"]) == max_keys < len(everything)
        assert 0 < result["share"] < 1
        for entry in result["entries"]:
            assert entry == everything[entry["key"]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "whole", "float", "date"])
@pytest.mark.long
def test_sums_over_a_sample_are_unbiased(kind):
    """Of many sets of keys, each of its own, the mean of the estimates lies within 4 standard errors of the truth."""
    rng, max_keys, keys = np.random.default_rng(77), 16, 200
    sizes = rng.integers(1, 30, keys)
    measure = per("k", of={"n": count(), "s": sum("x")}, max=max_keys, beyond="sample")
    estimates = []
    for trial in range(300):
        number = np.arange(keys) + trial * keys
        names = {
            "text": pa.array([f"key {i}" for i in number]),
            "whole": pa.array(number),
            "float": pa.array(number * 0.25),
            "date": pa.array(number.astype(np.int32)).cast(pa.date32()),
        }[kind]
        rows = pa.table({"k": names, "x": sizes}).take(pa.array(np.repeat(np.arange(keys), sizes)))
        result = measure.function.finish(measure.reduce(rows, Groups.single(len(rows))))[0].as_py()
        assert len(result["entries"]) == max_keys
        totals = np.array([[1, entry["n"], entry["s"]] for entry in result["entries"]]).sum(axis=0)
        estimates.append(totals / result["share"])
    truth = np.array([keys, sizes.sum(), (sizes**2).sum()])
    error = np.std(estimates, axis=0) / np.sqrt(len(estimates))
    assert (np.abs(np.mean(estimates, axis=0) - truth) < 4 * error).all()
    promised = np.sqrt((keys / max_keys - 1) * np.array([keys, (sizes**2).sum(), (sizes.astype(float) ** 4).sum()]))
    assert (np.std(estimates, axis=0) < 1.3 * promised).all()


@pytest.mark.parametrize("trial", range(TRIALS))
def test_any_split_order_and_tree_gives_the_same_bits(trial):
    rng = np.random.default_rng(trial)
    function = aggr.Per(INNER, int(rng.integers(1, 6)), "sample")
    values, groups = edge_cases(STRUCT, 200, trial), Groups.of(rng.integers(0, 3, 200), 3)
    unsplit = function.reduce(values, groups)
    pieces = [
        function.reduce(values.take(pa.array(part)), Groups.of(groups.ids[part], 3))
        for part in np.array_split(rng.permutation(200), rng.integers(1, 9))
    ]
    while len(pieces) > 1:
        chosen = [pieces.pop(int(rng.integers(len(pieces)))) for _ in range(rng.integers(2, len(pieces) + 1))]
        pieces.append(function.merge(pa.concat_arrays(chosen), Groups.of([*range(3)] * len(chosen), 3)))
    assert same_bits(pieces[0], unsplit)


CALL = "per(host, of={'n': count(where=\"status >= 500\"), p: dds(ms, quantiles=[0.5])}, max=50, beyond=sample)"


def test_a_map_travels_as_text_as_a_description_and_in_its_states():
    measure = per(
        "host", of={"p": dds("ms", quantiles=[0.5]), "n": count(where="status >= 500")}, max=50, beyond="sample"
    )
    assert measure_from(CALL) == measure == measure_from(repr(measure))
    assert aggr.from_description(json.loads(json.dumps(measure.describe()))) == measure
    states = measure.reduce(ROWS, Groups.single(N))
    assert function_of(states) == measure.of_states().function
    frame = TiltFrame(["1m", "1h"], "ts", {"m": measure})
    assert TiltFrame.from_dict(json.loads(json.dumps(frame.describe()))) == frame


def test_levels_of_a_frame_use_its_own_time():
    frame = TiltFrame(["1m", "1h"], "ts", {"m": per("host", of={"early": first("status"), "n": count()})})
    result = [row for row in finish(rollup(ROWS, frame), frame).to_pylist() if row["level"] == "1h"]
    rows_of_duckdb = by_duckdb("arg_min(status, ts), count(*)", "date_trunc('hour', ts), host")
    expected = [{"key": host, "early": early, "n": n} for _, host, early, n in rows_of_duckdb]
    assert [entry for row in result for entry in row["m"]["entries"]] == expected


def test_states_of_other_functions_are_refused():
    function = aggr.Per({"n": count(), "s": sum("x")})
    values = pa.StructArray.from_arrays([pa.array(["a"]), pa.array([1])], names=["key", "of.x"])
    states = function.reduce(values, Groups.single(1))
    with pytest.raises(ValueError, match="use the same value of 'of' everywhere"):
        aggr.Per({"n": count()}).merge(states, Groups.single(1))


def spoilt(states: pa.StructArray, change) -> pa.StructArray:
    """Change the one map of a state of counts."""
    (state,) = states.to_pylist()
    change(state["map"])
    return pa.array([state], states.type)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda map: map["entries"].reverse(), "not in ascending order"),
        (lambda map: map["entries"].pop(), "does not consist of the keys with the smallest hashes"),
        (lambda map: map.update(theta=5), "does not consist of the keys with the smallest hashes"),
        (lambda map: map["entries"].append(map["entries"][-1]), "at most max=2 are allowed"),
        (
            lambda map: map["entries"][0]["n"].update(count=-1),
            "contains wrong states of the result 'n': a damaged state of count",
        ),
        (
            lambda map: map["entries"][0]["n"].update(function="collect"),
            "contains wrong states of the result 'n': these are states of collect",
        ),
    ],
)
def test_damaged_maps_are_refused_by_merge_and_finish(change, message):
    function = aggr.Per(max=2, beyond="sample")
    states = spoilt(function.reduce(pa.array(["a", "b", "c"]), Groups.single(3)), change)
    for use in (lambda: function.merge(states, Groups.single(1)), lambda: function.finish(states)):
        with pytest.raises(DamagedState, match=message):
            use()


def test_too_many_keys_are_an_error_that_names_the_sample():
    with pytest.raises(ValueError, match=r"at most max=2 values a group; one group has 3; .*beyond='sample'"):
        aggr.Per(max=2).reduce(pa.array(["a", "b", "c"]), Groups.single(3))


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string(), pa.decimal128(10, 2)], ids=str)
def test_counts_of_values_are_duckdbs(kind):
    values = edge_cases(kind, 400, 3)
    if pa.types.is_floating(kind):
        values = pa.compute.add(values, 0.0)
    assert values.null_count < 200
    rows = pa.table({"g": np.arange(400) % 5, "x": values})  # noqa: F841
    groups = Groups.of(np.arange(400) % 5, 6)
    rows_of_duckdb = duckdb.sql(
        "SELECT g, x, count(*) FROM rows WHERE x IS NOT NULL GROUP BY g, x ORDER BY g, 3 DESC, x"
    )
    counted = [[] for _ in range(6)]
    asked_in_order = duckdb.sql(
        "SELECT g, x, count(*) FROM rows WHERE x IS NOT NULL GROUP BY g, x ORDER BY g, x"
    ).fetchall()
    for group, value, n in rows_of_duckdb.fetchall():
        counted[group].append({"value": value, "count": n})
    function = aggr.ValueCounts()
    states = function.reduce(values, groups)
    assert repr(function.finish(states).to_pylist()) == repr(counted)
    assert repr(aggr.ValueCounts(top=2).finish(states).to_pylist()) == repr([entries[:2] for entries in counted])
    modes = [entries[0]["value"] if entries else None for entries in counted]
    assert repr(aggr.Mode().finish(states).to_pylist()) == repr(modes)
    entropies = [row[1] for row in duckdb.sql("SELECT g, entropy(x) FROM rows GROUP BY g ORDER BY g").fetchall()]
    assert aggr.Entropy().finish(states).to_pylist() == [*(pytest.approx(bits, rel=1e-12) for bits in entropies), None]
    sorted_values = [[] for _ in range(5)]
    for group, value, n in asked_in_order:
        sorted_values[group] += [value] * n
    exact = [{"0.25": v[(len(v) - 1) // 4], "0": v[0], "1": v[-1]} for v in sorted_values]
    result = aggr.ExactQuantiles(quantiles=[0.25, 0, 1]).finish(states).to_pylist()
    assert repr(result) == repr([*exact, {"0.25": None, "0": None, "1": None}])


def test_measures_of_one_column_share_its_counts():
    frame = TiltFrame(
        ["1h"], "ts", {"v": aggr.value_counts("status"), "m": aggr.mode("status"), "e": aggr.entropy("status")}
    )
    assert len(frame.states) == 1
