"""Groups beyond limits and refused values on Spark: jobs report their numbers, and commits record them."""

from __future__ import annotations

import datetime as dt

import pytest

import aggr
from tiltframe import FrameStore, TiltFrame
from tiltframe.store import BeyondLimit, RefusedValues

pytestmark = pytest.mark.spark

MEASURES = {
    "some": aggr.count_distinct("x", max=2, beyond="null"),
    "p": aggr.hdr("x", bad_values="skip"),
    "n": aggr.count(),
}
FRAME = TiltFrame(["1m", "1h"], "ts", MEASURES, ["k"])
AT = dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)
ROWS = [(AT + dt.timedelta(minutes=at), k, x) for at, k, x in [
    (0, "a", 1), (0, "a", -2), (0, "a", 3), (1, "a", -4), (0, "b", 5), (1, "b", 6), (2, "b", -7), (0, "c", 8),
]]  # fmt: skip
BY_LEVEL = {
    "some groups beyond the limit, 1m": 1,  # a
    "some groups beyond the limit, 1h": 2,  # a and b
    "p refused values, 1m": 3,
    "p refused values, 1h": 3,
}
ALL = BY_LEVEL | {f"some refused values, {level}": 0 for level in ("1m", "1h")}
ALL |= {f"p groups beyond the limit, {level}": 0 for level in ("1m", "1h")}


@pytest.mark.long
def test_jobs_count_and_commits_report(spark, tmp_path):
    from pyspark.sql import Observation

    import spark_udaf as su

    df = spark.createDataFrame(ROWS, "ts timestamp, k string, x bigint").repartition(5)
    of_states, of_results, of_groups, of_files = (Observation() for _ in range(4))
    states = su.rollup(df, FRAME, excluded=of_states)
    assert states.columns == ["level", "window_start", "window_end", "k", "some", "p", "n"]
    results = su.finish(su.rollup(df, FRAME), FRAME, excluded=of_results).where("level = '1h'")
    states.write.parquet(str(tmp_path / "states"))
    assert of_states.get == ALL
    assert sorted((row.k, row.some is None) for row in results.collect()) == [("a", True), ("b", True), ("c", False)]
    assert of_results.get == ALL
    assert su.finish(spark.read.parquet(str(tmp_path / "states")), FRAME, excluded=of_files).count() == 6 + 3
    assert of_files.get == ALL
    grouped = su.group_by(df, "k", excluded=of_groups).agg(**MEASURES)
    assert {row.k: row.n for row in grouped.collect()} == {"a": 4, "b": 3, "c": 1}
    counts = {"some groups beyond the limit": 2, "some refused values": 0}
    assert of_groups.get == counts | {"p groups beyond the limit": 0, "p refused values": 3}

    store = FrameStore(str(tmp_path / "store"), FRAME)
    beyond, refused = r"some.* are null: 1 at level 1m, 2 at level 1h$", r"p, .*: invalid values skipped: 3$"
    with pytest.warns(BeyondLimit, match=beyond) as caught, pytest.warns(RefusedValues, match=refused):
        su.rollup_into(df, store, "w", 1)
    assert caught[0].filename == __file__
    with pytest.warns(BeyondLimit, match=beyond), pytest.warns(RefusedValues, match=refused):
        su.append(spark.read.parquet(str(tmp_path / "states")), store, "w", 2)
    assert store.refused_values("w") == {1: {"p": 3}, 2: {"p": 3}}
    df.coalesce(1).write.json(str(tmp_path / "in"))
    rows = spark.readStream.schema("ts timestamp, k string, x bigint").json(str(tmp_path / "in"))
    options = {"name": "s", "checkpoint": tmp_path / "checkpoint", "trigger": "available_now"}
    with pytest.warns(BeyondLimit, match=beyond), pytest.warns(RefusedValues, match=refused):
        su.stream_into(rows, store, **options).awaitTermination()

    for call, says in {
        "su.rollup(df, FRAME, excluded=True)": "excluded must be an Observation of PySpark; got True",
        "su.group_by(df, excluded=Observation()).cube('k')": "the argument excluded cannot be used with cube",
        "su.group_by(df, excluded=Observation()).agg(aggr.count())": "no measure has beyond='null' or",
    }.items():
        with pytest.raises(ValueError, match=says):
            eval(call, {"su": su, "df": df, "FRAME": FRAME, "Observation": Observation, "aggr": aggr})
