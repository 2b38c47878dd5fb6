"""Maps, frequent values and ordered values on Spark have the local bits and results, in frames and by groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.arrow.bit_equality import same_bits
from aggr.groups.groups import group_by
from tiltframe import FrameStore, TiltFrame, finish, rollup

pytestmark = pytest.mark.spark
RNG = np.random.default_rng(11)
N = 6000
ROWS = pa.table(
    {
        "ts": pa.array(np.arange(N) * 1_000_000, pa.timestamp("us", "UTC")),
        "g": RNG.integers(0, 5, N),
        "host": pa.array([f"h{h}" for h in RNG.zipf(1.5, N) % 400], mask=RNG.random(N) < 0.05),
        "ms": RNG.lognormal(2, 1, N).round(3),
        "status": RNG.choice([200, 404, 500], N),
    }
)
FUNCTIONS = {
    "n": aggr.count(),
    "errors": aggr.count(where="status >= 500"),
    "p": aggr.dds("ms", [0.5]),
    "s": aggr.sum("ms * 2"),
}
MEASURES = {
    "whole": aggr.per("host", of=FUNCTIONS | {"early": aggr.first("status")}),
    "sample": aggr.per("host", of=FUNCTIONS, max=9, beyond="sample"),
    "often": aggr.frequent("host", share=0.05),
    "slowest": aggr.top_k("host", by="ms", k=3),
    "bars": aggr.histogram("ms", edges=[0, 5, 20]),
    "codes": aggr.value_counts("status"),
}
FRAME = TiltFrame(["10m", "1h"], "ts", MEASURES, ["g"])


@pytest.fixture(scope="module")
def df(spark):
    return spark.createDataFrame(ROWS).repartition(4)


@pytest.mark.long
def test_a_frame_has_the_local_states_also_in_a_store(spark, df, tmp_path):
    import spark_udaf as su

    order = [("level", "ascending"), ("window_start", "ascending"), ("g", "ascending")]
    local, on_spark = (rows.sort_by(order) for rows in (rollup(ROWS, FRAME), su.rollup(df, FRAME).toArrow()))
    for column in FRAME.states:
        assert same_bits(on_spark[column.name].combine_chunks(), local[column.name].combine_chunks()), column.name
    store = FrameStore(str(tmp_path / "store"), FRAME)
    su.rollup_into(df, store, writer="spark", commit=1)
    stored_results = store.query(per="1h").sort_by([("window_start", "ascending"), ("g", "ascending")])
    expected = finish(local, FRAME).filter(pa.compute.equal(local["level"], "1h"))
    for name in MEASURES:
        assert same_bits(stored_results[name].combine_chunks(), expected[name].combine_chunks()), name


def by_group(groups, results) -> dict:
    return dict(zip(groups.to_pylist(), results.to_pylist(), strict=True))


def test_groups_have_the_local_results(df):
    import spark_udaf as su

    groups, first_rows = group_by([ROWS["g"].combine_chunks()], N)
    states = MEASURES["sample"].reduce(ROWS, groups)
    local = by_group(ROWS["g"].take(pa.array(first_rows)), MEASURES["sample"].function.finish(states))
    grouped = su.group_by(df, "g").agg(m=MEASURES["sample"]).toArrow()
    assert by_group(grouped["g"], grouped["m"]) == local


def test_a_map_over_columns_names_the_way_to_read_others():
    from spark_udaf import functions as A

    with pytest.raises(ValueError, match="per was called with Columns, but its parameters contain names of columns"):
        A.per("host", of={"early": aggr.first("status")})


def test_one_group_is_the_merge_of_all():
    states = MEASURES["often"].reduce(ROWS, Groups.of(ROWS["g"].to_numpy(), 5), ROWS["ts"].combine_chunks())
    function = MEASURES["often"].function
    unsplit = MEASURES["often"].reduce(ROWS, Groups.single(N), ROWS["ts"].combine_chunks())
    assert same_bits(function.merge(states, Groups.single(5)), unsplit)
