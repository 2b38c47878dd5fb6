"""Tables of Spark's catalog that are stores: they are read as what they were made for, and leave their stores alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import aggr
from spark_udaf.jobs.task_errors import clear
from tests import engines
from tiltframe import FrameStore, TiltFrame, rollup

pytestmark = pytest.mark.spark

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "d": aggr.dds("x")}, ["host"])
ROWS = engines.rows(200)


@pytest.fixture(scope="module")
def store(spark, tmp_path_factory):
    import spark_udaf as su

    made = FrameStore(tmp_path_factory.mktemp("tables") / "a b ü", FRAME)
    made.append(rollup(ROWS, FRAME), "w", 1)
    su.register(spark)
    return made


@pytest.fixture
def drop(spark):
    """Make a table by a statement, and drop it afterwards."""
    made = []

    def make(name: str, rest: str) -> None:
        made.append(name)
        spark.sql(f"CREATE TABLE {name} {rest}").collect()

    yield make
    for name in made:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def files(store: FrameStore) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in Path(store.uri).rglob("*") if p.is_file()}


def refused(spark, statement: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"), clear():
        spark.sql(statement).collect()


def kept_type(spark, name: str) -> str:
    """What the catalog itself says; DESCRIBE asks the data source, which knows nothing of it."""
    identifier = spark._jvm.org.apache.spark.sql.catalyst.TableIdentifier(name)
    return spark._jsparkSession.sessionState().catalog().getTableMetadata(identifier).tableType().name()


def test_a_table_is_read_and_leaves_its_store_alone(spark, store, drop):
    before, wanted = files(store), store.query("1h", keys=[], measures=["n"])["n"].to_pylist()
    drop("kept", f"USING tiltframe OPTIONS (path '{store.uri}', per '1h', keys '', measures 'n') COMMENT 'hours'")
    drop("there", f"USING tiltframe OPTIONS (per '1h', keys '', measures 'n') LOCATION '{store.uri}'")
    made = {"path": store.uri, "per": "1h", "keys": "", "measures": "n"}
    spark.catalog.createTable("called", source="tiltframe", **made).collect()
    for name in ("kept", "there", "called"):
        assert kept_type(spark, name) == "EXTERNAL"
        assert [row.n for row in spark.sql(f"SELECT n FROM {name} ORDER BY window_start").collect()] == wanted
        assert spark.table(name).groupBy().sum("n").first()[0] == len(ROWS)  # one column of all
    first = store.query("1h")["window_start"][0].as_py()
    until = f"1970-01-01,{first.isoformat()}"
    assert spark.sql(f"SELECT * FROM kept WITH (within '{until}')").collect() == []
    assert spark.read.option("within", until).table("kept").collect() == []
    (noted,) = [f for f in spark.table("kept").schema if f.metadata]
    said = json.loads(noted.metadata["tiltframe.options"])
    assert (noted.name, said) == ("level", made | {"path": said["path"]})
    plain = spark.read.format("tiltframe").options(per="1h").load(store.uri).schema
    assert not any("tiltframe.options" in f.metadata for f in plain)
    for statement in ("INSERT INTO", "INSERT OVERWRITE"):
        refused(spark, f"{statement} kept SELECT * FROM there", "the format tiltframe is only read; rows get into")
    ctas = f"CREATE TABLE made USING tiltframe OPTIONS (path '{store.uri}', per '1h') AS SELECT 1 AS x"
    with pytest.raises(Exception, match=r"only read|not match|does not|no column"):
        spark.sql(ctas).collect()
    spark.sql("ALTER TABLE there RENAME TO elsewhere")
    assert spark.table("elsewhere").count() == len(wanted)
    for name in ("kept", "elsewhere", "called", "made"):
        spark.sql(f"DROP TABLE IF EXISTS {name} PURGE")
    assert files(store) == before


def test_a_table_that_could_not_be_read_is_refused(spark, store):
    warehouse = Path(re.sub("^file:/*", "/", spark.conf.get("spark.sql.warehouse.dir")))
    path = f"path '{store.uri}', per '1h'"
    for rest, sentence in {
        f"TBLPROPERTIES ({path})": r"say where the store is in OPTIONS \(path '…'\) or by LOCATION",
        f"OPTIONS ({path}, `storage.region` 'x')": r"a table of the catalog keeps no storage.region",
        f"OPTIONS ({path}, limit '3')": "there is no option 'limit'",
        f"OPTIONS ({path}) TBLPROPERTIES ('external.table.purge' 'true')": "there is no option 'external.table.purge'",
        f"OPTIONS (path '{store.uri}')": "say what results are per",
        "OPTIONS (path '/nowhere', per '1h')": "there is no store",
        "OPTIONS (per '1h')": "say where the store is",
    }.items():
        refused(spark, f"CREATE TABLE refused USING tiltframe {rest}", sentence)
    assert not spark.catalog.tableExists("refused")
    assert not (warehouse / "refused").exists()


def test_a_table_with_columns_of_its_own_says_how_to_make_it(spark, store, drop):
    """Spark asks nobody about columns that are given, and gives their reader no options."""
    drop("columns", f"(n BIGINT) USING tiltframe OPTIONS (path '{store.uri}', per '1h')")
    refused(spark, "SELECT n FROM columns", "say where the store is.*; a table is made without columns, by")


def test_a_table_of_a_store_in_a_database(spark, postgres, drop):
    store = FrameStore(postgres.replace("postgres:@", "postgres@"), FRAME)
    store.append(rollup(ROWS, FRAME), "w", 1)
    wanted = store.query("1h")["n"].to_pylist()
    secret = postgres.replace("postgres:@", "postgres:s3cret@")
    refused(
        spark,
        f"CREATE TABLE secret USING tiltframe OPTIONS (path '{secret}', per '1h')",
        "a table of the catalog keeps no password",
    )
    drop("base", f"USING tiltframe OPTIONS (path '{store.uri}', per '1h')")
    assert sorted(row.n for row in spark.sql("SELECT n FROM base").collect()) == sorted(wanted)
    spark.sql("DROP TABLE base PURGE")
    assert store.query("1h")["n"].to_pylist() == wanted
