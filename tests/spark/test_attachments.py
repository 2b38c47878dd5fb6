"""Objects of PySpark still have the attributes that this library has attached: plans of DataFrames and calls of
columns.
"""

from __future__ import annotations

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

import aggr
import spark_udaf as su
from spark_udaf import functions as A
from spark_udaf.plan.two_phase import plan_of
from spark_udaf.udaf.call import call_of
from tests import engines

pytestmark = pytest.mark.spark


def test_a_dataframe_of_states_carries_its_plan_and_one_changed_since_does_not(spark):
    df = spark.createDataFrame(engines.rows(50))
    states = su.aggregate(df, ["host"], {"n": aggr.count()})
    assert plan_of(states) is not None
    assert plan_of(states.where("host IS NOT NULL")) is None
    assert plan_of(su.finish(states, {"n": aggr.count()})) is not None


@pytest.mark.long
def test_a_column_carries_its_call_under_every_name_and_over_windows_it_is_another_function(spark):
    column = A.count(where="x > 1")
    for named in (column, column.alias("n"), column.name("n"), column.alias("m").alias("n")):
        assert call_of(named)[0].function.name == "count"
    assert call_of(column.alias("n"))[1] == "n"
    assert call_of(F.count("x")) is None
    df = spark.createDataFrame([("a", 1), ("a", 2)], "k string, x int")
    rows = df.select(column.over(Window.partitionBy("k")).alias("n")).collect()
    assert [row.n for row in rows] == [1, 1]
