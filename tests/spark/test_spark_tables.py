"""Tables with this library's data source are rejected with one clear message. Views are allowed."""

from __future__ import annotations

import pytest

import aggr
import spark_udaf as su
from spark_udaf.plan.errors import unwrapped_task_errors
from tests import engines
from tiltframe import FrameStore, TiltFrame, rollup

pytestmark = pytest.mark.spark

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"])
ROWS = engines.rows(200)


@pytest.fixture(scope="module")
def store(spark, tmp_path_factory):
    new_store = FrameStore(tmp_path_factory.mktemp("tables") / "a b ü", FRAME)
    new_store.append(rollup(ROWS, FRAME), "w", 1)
    su.register(spark)
    return new_store


@pytest.mark.parametrize("columns", ["", "(n BIGINT)"])
@pytest.mark.parametrize("place", ["OPTIONS (path '{0}', per '1h')", "OPTIONS (per '1h') LOCATION '{0}'"])
def test_a_table_is_refused(columns, place, spark, store):
    place = place.format(store.uri)
    with pytest.raises(ValueError, match="use CREATE TEMPORARY VIEW"), unwrapped_task_errors():
        made_and_read(spark, f"CREATE TABLE refused {columns} USING tiltframe {place}")


def made_and_read(spark, statement: str) -> None:
    """Spark asks nobody about columns that are given, before they are read."""
    try:
        spark.sql(statement).collect()
        spark.sql("SELECT * FROM refused").collect()
    finally:
        spark.sql("DROP TABLE IF EXISTS refused")


@pytest.mark.long
def test_a_view_takes_the_same_options(spark, store):
    spark.sql(f"CREATE TEMPORARY VIEW hours USING tiltframe OPTIONS (path '{store.uri}', per '1h', keys '')")
    assert spark.sql("SELECT sum(n) FROM hours").first()[0] == len(ROWS)
    spark.catalog.dropTempView("hours")
