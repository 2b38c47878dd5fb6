"""Sums beyond int64: rejected if one commit causes them, reported if several do, and always readable as decimals."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from tiltframe import FrameStore, TiltFrame, finish, rollup
from tiltframe.cli.app import main

pytestmark = pytest.mark.store

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])
HALF = 2**62


def rows(*values: tuple[int, str, int]) -> pa.Table:
    minutes, keys, x = zip(*values, strict=True)
    return pa.table({"ts": [60_000 * m for m in minutes], "k": list(keys), "x": pa.array(x, pa.int64())})


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (rows((0, "a", 1), (1, "b", HALF), (1, "b", HALF)), "level='1m', window_start=1970-01-01T00:01:00"),
        (rows((0, "a", 1), (1, "b", HALF), (2, "b", HALF)), "level='1h', window_start=1970-01-01T00:00:00"),
    ],
)
@pytest.mark.parametrize("finest_only", [False, True])
def test_a_commit_that_could_not_be_read_is_refused(data, where, finest_only, place):
    store = FrameStore(place, FRAME)
    states = rollup(data, FRAME)
    if finest_only:
        states = states.filter(pa.compute.equal(states["level"], "1m"))
    with pytest.raises(OverflowError) as caught:
        store.append(states, "w", 0)
    assert str(caught.value) == (
        f"s, sum('x') at {where}+00:00, k='b': the sum {2**63} does not fit into int64; compute it "
        "with dtype='decimal' or dtype='float64'"
    )
    assert store.last_commit("w") is None
    wide = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x", dtype="decimal")}, ["k"])
    assert FrameStore(place, wide).append(states, "w", 0)
    got = FrameStore(place).query("1h")
    assert got["s"].to_pylist() == [1, 2**63]
    assert got["s"].type == pa.decimal128(38, 0)


@pytest.mark.filterwarnings("ignore:the plain table of")  # which cannot hold this sum
def test_what_two_commits_add_up_to_leaves_all_else_readable(place, capsys):
    store = FrameStore(place, FRAME)
    for number in range(2):
        assert store.append(rollup(rows((0, "a", 7), (0, "b", -HALF - 1), (61, "b", 5)), FRAME), "w", number)
    for _ in range(2):
        for per, end in (("1m", "00:01"), ("1h", "01:00"), ("30m", "00:30")):
            with pytest.raises(OverflowError) as caught:
                store.query(per)
            assert str(caught.value) == (
                f"s, sum('x') at window_start=1970-01-01T00:00:00+00:00, window_end=1970-01-01T{end}:00+00:00, k='b': "
                f"the sum {-(2**63) - 2} does not fit into int64; compute it with dtype='decimal' or dtype='float64'"
            )
        assert store.query("1h", where="k = 'a'")["s"].to_pylist() == [14]
        assert store.query("1h", within=(3_600_000, 7_200_000))["s"].to_pylist() == [10]
        assert store.query("1h", measures=["n"])["n"].to_pylist() == [2, 2, 2]
        exact = store.query("1h", measures={"s": aggr.sum("x", dtype="decimal")})["s"]
        assert exact.to_pylist() == [14, -(2**63) - 2, 10]
        nearest = store.query("1h", measures={"s": aggr.sum("x", dtype="float64")})["s"]
        assert nearest.to_pylist() == [14.0, float(-(2**63) - 2), 10.0]
        store.compact()
    if "://" in place:
        return
    with pytest.raises(SystemExit) as left:
        main(["query", place, "--per", "1h"])
    assert left.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("tiltframe: s, sum('x') at window_start=1970-01-01T00:00:00+00:00, window_end=")
    assert "k='b'" in message
    main(["query", place, "--per", "1h", "--measure", "s=sum(x, dtype='decimal')", "--format", "csv"])
    assert str(-(2**63) - 2) in capsys.readouterr().out


def test_sums_are_read_as_is_asked():
    state = aggr.Sum().reduce(pa.array([2**63 - 1] * 3 + [None]), Groups.of([0, 0, 0, 1], 2))
    assert aggr.Sum("decimal").finish(state).to_pylist() == [3 * (2**63 - 1), None]
    assert aggr.Sum("float64").finish(state).to_pylist() == [float(3 * (2**63 - 1)), None]
    cents = [Decimal("0.10"), Decimal("0.20"), Decimal("-7.35")]
    money = aggr.Sum().reduce(pa.array(cents, pa.decimal128(30, 2)), Groups.single(3))
    assert aggr.Sum("decimal").finish(money).to_pylist() == [sum(cents)]
    assert aggr.Sum("decimal").finish(money).type == pa.decimal128(38, 2)
    assert aggr.Sum("float64").finish(money).to_pylist() == [float(sum(cents))]
    decimal_state = aggr.Sum().reduce(pa.array([Decimal("9" * 38)] * 2, pa.decimal128(38, 0)), Groups.single(2))
    with pytest.raises(OverflowError, match=r"does not fit into decimal.* compute it with dtype='float64'$"):
        aggr.Sum("decimal").finish(decimal_state)
    assert aggr.Sum("float64").finish(decimal_state).to_pylist() == [2e38]
    floats = aggr.Sum().reduce(pa.array([0.5, float("inf")]), Groups.each(2))
    assert aggr.Sum("float64").finish(floats).to_pylist() == [0.5, float("inf")]
    with pytest.raises(TypeError, match="dtype='decimal' works only for integers and decimals"):
        aggr.Sum("decimal").finish(floats)
    with pytest.raises(ValueError, match="dtype must be 'decimal' or 'float64', or left out; got 'int32'"):
        aggr.sum("x", dtype="int32")
    assert aggr.sum("x", dtype="decimal").of_states() == aggr.sum("x")


def test_results_name_the_row_that_has_none():
    states = rollup(rows((0, "a", 1), (5, "b", HALF), (5, "b", HALF)), FRAME)
    with pytest.raises(OverflowError, match=r"level='1m', window_start=1970-01-01T00:05:00\+00:00.*, k='b': the sum"):
        finish(states, FRAME)


class LimitedMean(aggr.Avg):
    """A mean that is an error above 1000."""

    name = "limited_mean"

    def finish_states(self, states):
        means = super().finish_states(states)
        if pa.compute.max(means).as_py() > 1000:
            raise OverflowError("the mean is above 1000")
        return means


def test_a_function_that_reads_results_in_its_own_way_is_asked_again():
    state_type = aggr.Avg().state_type(pa.float64())
    assert aggr.Avg().is_always_readable(state_type)
    assert not LimitedMean().is_always_readable(state_type)
    assert not aggr.Range().is_always_readable(aggr.Range().state_type(pa.int64()))
    assert not aggr.Sum().is_always_readable(aggr.Sum().state_type(pa.int64()))


def test_a_rollup_into_a_store_computes_no_result_that_is_always_readable(monkeypatch, tmp_path):
    computed = []
    finish_states = aggr.Avg.finish_states

    def record(function, states):
        computed.append(len(states))
        return finish_states(function, states)

    monkeypatch.setattr(aggr.Avg, "finish_states", record)
    frame = TiltFrame(["1m", "1h"], "ts", {"mean": aggr.avg("x"), "s": aggr.sum("x")}, ["k"])
    states = rollup(rows((0, "a", 1), (1, "b", 2)), frame)
    pending = FrameStore(tmp_path / "store", frame).begin("w", 0, states.schema)
    pending.write_rolled_up(states)
    overflown = rollup(rows((0, "a", HALF), (1, "a", HALF)), frame)
    with pytest.raises(OverflowError, match="does not fit into int64"):
        pending.write_rolled_up(overflown)
    assert not any(computed), "only the empty states of the schema"
    pending.write(states)
    assert any(computed), "states of unknown origin are read"


@pytest.mark.parametrize("max_bytes", [1, 1 << 26])
@pytest.mark.parametrize(
    ("measure", "last_value", "message"),
    [
        (
            aggr.sum("x"),
            HALF,
            r"bad, sum\('x'\) at window_start=1970-01-01T00:00:00\+00:00, k='b': the sum 9223372036854775808 ",
        ),
        (aggr.range("x"), -HALF - 1, "the range of a group is"),
        (aggr.dds("x", [0.5], weight="w"), 1, "a count exceeds int64"),
    ],
)
def test_rows_whose_results_could_not_be_read_leave_no_store(measure, last_value, message, max_bytes, tmp_path):
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "mean": aggr.avg("x"), "bad": measure}, ["k"])
    data = rows((0, "a", 1), (1, "b", HALF), (2, "b", last_value)).append_column("w", pa.array([1, HALF, HALF]))
    store = FrameStore(tmp_path / "store", frame)
    with pytest.raises(OverflowError, match=message):
        store.append_rows(data, "w", 0, max_bytes=max_bytes)
    assert not (tmp_path / "store").exists()
    assert store.append_rows(data.slice(0, 1), "w", 0, max_bytes=max_bytes)
    with pytest.raises(OverflowError, match=message):
        store.append_rows(data.slice(1), "w", 1, max_bytes=max_bytes)
    assert [row["n"] for row in store.query("1h").to_pylist()] == [1]
