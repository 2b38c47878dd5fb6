"""Names of results: flat names and paths in conditions and orders, which are checked before a query or stream
starts.
"""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.tables.flat_results import flattened
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.testing import MemoryBackend
from tiltframe.streaming import OpenWindows

FRAME = TiltFrame(
    ["1m", "1h"],
    "ts",
    {"n": aggr.count(), "p": aggr.dds("x", quantiles=[0.5, 0.99]), "top": aggr.max("x")},
    keys=["host"],
)
QUANTILE = ["p_p99", "p.quantiles['0.99']", "p.quantiles[0.99]", "p['quantiles']['0.99']", "p.quantiles.`0.99`"]
MEAN = ["p_mean", "p.mean", "p['mean']"]
WRONG = ["p_p98 > 5", "p > 1", "p.men > 1", "p.quantiles['0.98'] > 1", "m > 1", "change = 1"]


def rows() -> pa.Table:
    draws = np.random.default_rng(7)
    return pa.table(
        {
            "ts": pa.array(draws.integers(0, 7_200_000, 4000)),
            "host": pa.array(draws.choice(["a", "b", "c"], 4000)),
            "x": draws.gamma(2, 50, 4000),
        }
    )


@pytest.fixture(scope="module")
def store() -> FrameStore:
    new_store = FrameStore(MemoryBackend(f"names {random.random()}"), FRAME)
    new_store.append(rollup(rows(), FRAME), "w", 1)
    return new_store


@pytest.mark.parametrize(("names", "plain"), [(QUANTILE, "p_p99"), (MEAN, "p_mean")])
def test_a_query_takes_every_way_to_name_a_result(store, names, plain):
    every = store.query("1m")
    values = flattened(every)[plain].to_pylist()
    limit = sorted(values)[len(values) // 2]
    expected = every.filter(pa.array([value > limit for value in values]))
    assert 0 < expected.num_rows < every.num_rows
    by = sorted(range(len(values)), key=lambda row: -values[row])
    for name in names:
        assert store.query("1m", having=f"{name} > {limit!r}").equals(expected), name
        ordered = flattened(store.query("1m", order_by=f"{name} desc"))[plain].to_pylist()
        assert ordered == [values[row] for row in by], name


@pytest.mark.parametrize("having", WRONG)
def test_a_query_refuses_other_names_and_says_which_there_are(store, having):
    with pytest.raises(ValueError, match=r"is not a result; (there are level, window_start|did you mean 'p_)") as error:
        store.query("1m", having=having)
    assert len(str(error.value)) <= 300


@pytest.mark.parametrize("order", ["p", "z", "p.men desc", "hour(z)", "hour("])
def test_an_order_by_what_is_no_result_is_refused_before_anything_is_read(order):
    class Unread(MemoryBackend):
        def read(self, *_: object, **__: object) -> pa.Table:
            raise AssertionError("read")

    backend = Unread(f"names {random.random()}")
    new_store = FrameStore(backend, FRAME)
    new_store.append(rollup(rows(), FRAME), "w", 1)
    with pytest.raises(ValueError, match="cannot order by"):
        new_store.query("1m", order_by=order)


@pytest.mark.parametrize("name", [*QUANTILE, *MEAN])
def test_an_emit_policy_takes_every_way_to_name_a_result(name):
    plain = OpenWindows(FRAME)
    plain.add_rows(rows())
    every = plain.results(plain.close())
    flat = flattened(every)["p_p99" if name in QUANTILE else "p_mean"].to_pylist()
    limit = sorted(flat)[len(flat) // 2]
    windows = OpenWindows(FRAME, "after_close(having='" + name.replace("'", "''") + f" > {limit!r}')")
    windows.add_rows(rows())
    assert windows.results(windows.close()).equals(every.filter(pa.array([value > limit for value in flat]))), name


@pytest.mark.parametrize("having", WRONG)
def test_an_emit_policy_of_another_name_is_refused_at_once(having):
    with pytest.raises(ValueError, match=r"is not a result; (there are level, window_start|did you mean 'p_)") as error:
        OpenWindows(FRAME, "after_close(having='" + having.replace("'", "''") + "')")
    assert len(str(error.value)) <= 300


def test_types_are_checked_with_the_first_rows():
    windows = OpenWindows(FRAME, "after_close(having='n > host')")
    with pytest.raises(ValueError, match="cannot compare"):
        windows.add_rows(rows())
    assert windows.progress.rows == 0
