"""About a hundred bad arguments on Spark: each raises one clear error, if possible before a job starts."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import aggr
from spark_udaf.plan.errors import unwrapped_task_errors
from tests import engines
from tiltframe import FrameStore, OrderedFrame, StoreError, TiltFrame, rollup

pytestmark = pytest.mark.spark

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "d": aggr.dds("x")}, ["host"])
INTERNALS = (
    "Traceback",
    "object is not",
    "has no attribute",
    "JVM",
    "py4j",
    ".scala",
    "object at 0x",
    "lambda",
)

NUMBER = "a commit number, which grows with every commit, must be a whole number of at least 0"
KEYS = (
    "keys, the numbering of buckets, must be 'upper', as in messages of Python and JavaScript, or 'lower', as in "
    "those of Go, Java and Rust; got "
)
CALLS = {  # what is called -> how the sentence begins
    "su.rollup(3, FRAME)": "expected a Spark DataFrame, or files from su.scan_parquet; got int",
    "su.rollup(None, FRAME)": "expected a Spark DataFrame",
    "su.rollup(rows, FRAME)": "expected a Spark DataFrame",
    "su.rollup(type(df), FRAME)": "expected a Spark DataFrame",
    "su.rollup(df, None)": "frame must be a tiltframe.TiltFrame; got None",
    "su.rollup(df, MEASURES)": "frame must be a tiltframe.TiltFrame",
    "su.rollup(stream, FRAME)": "this is a streaming DataFrame; use su.stream to emit",
    "su.rollup(df.drop('host'), FRAME)": "the data has no column 'host'",
    "su.rollup(df.withColumn('host', F.array('host')), FRAME)": "the key 'host' has type list",
    "su.rollup(df.withColumn('x', F.col('word')), FRAME)": "d: dds cannot take a column of type string",
    "su.aggregate(df, 'host', MEASURES)": "by must be a list of column names; got 'host': write ['host']",
    "su.aggregate(df, None, MEASURES)": "by must be a list of column names; got None",
    "su.aggregate(df, 3, MEASURES)": "by must be a list of column names",
    "su.aggregate(df, [3], MEASURES)": "by must be a list of column names",
    "su.aggregate(df, [''], MEASURES)": "by must be a list of column names",
    "su.aggregate(df, [F.col('host')], MEASURES)": "by must be a list of column names",
    "su.aggregate(df, b'ab', MEASURES)": "by must be a list of column names",
    "su.aggregate(df, ['hots'], MEASURES)": "the data has no column 'hots'; did you mean 'host'?",
    "su.aggregate(df, ['host', 'host'], MEASURES)": "the argument by contains a column twice",
    "su.aggregate(df, ['level'], MEASURES)": "the name 'level' is reserved",
    "su.aggregate(df, ['host'], {'host': aggr.count()})": "the name 'host' is used twice",
    "su.aggregate(df, ['host'], {'HOST': aggr.count()})": "the names 'host' and 'HOST' of keys and measures differ",
    "su.aggregate(df, ['host'], {'': aggr.count()})": "names of keys and measures must be text that is not blank",
    "su.aggregate(df, ['host'], {3: aggr.count()})": "names of keys and measures must be text that is not blank; got 3",
    "su.aggregate(df, ['host'], None)": "measures must name at least one",
    "su.aggregate(df, ['host'], {})": "measures must name at least one",
    "su.aggregate(df, ['host'], [aggr.count()])": "measures must name at least one",
    "su.aggregate(df, ['host'], {'n': 'count()'})": "the measure 'n' must be made by aggr",
    "su.aggregate(df, ['host'], {'n': aggr.Count()})": "the measure 'n' must be made by aggr",
    "su.aggregate(df, ['host'], FRAME)": "measures must name at least one",
    "su.merge(df, ['host'])": "the columns ts, host, shelf, x, i, price, word, unread contain no states to merge",
    "su.merge(3, ['host'])": "expected a Spark DataFrame",
    "su.merge(states, 'host')": "by must be a list of column names",
    "su.merge(states, None)": "by must be a list of column names",
    "su.merge(states, ['nope'])": "the data has no column 'nope'",
    "su.merge(states, ['d'])": "the key 'd.sum' is a struct with the field 'limbs' of type list",
    "su.finish(3, FRAME)": "expected a Spark DataFrame",
    "su.finish(states, None)": "measures must name at least one",
    "su.finish(states, {})": "measures must name at least one",
    "su.finish(states, {'n': 3})": "the measure 'n' must be made by aggr",
    "su.finish(states, {'q': aggr.dds('x')})": "these are not states of q: there is no column 'q' of states, only n, d",
    "su.finish(df, FRAME)": "these are not states of this frame",
    "su.states.quantile(3, 0.5)": "a column must be a Column or a name; got 3",
    "su.states.quantile('', 0.5)": "a column must be a Column or a name; got ''",
    "su.states.quantile(None, 0.5)": "a column must be a Column or a name; got None",
    "su.states.quantile('d', 'half')": "a quantile must be a number from 0 to 1; got 'half'",
    "su.states.quantile('d', None)": "a quantile must be a number from 0 to 1; got None",
    "su.states.quantile('d', [0.5])": "a quantile must be a number from 0 to 1",
    "su.states.quantile('d', float('nan'))": "a quantile must be a number from 0 to 1; got nan",
    "su.states.quantile('d', True)": "a quantile must be a number from 0 to 1; got True",
    "su.states.rank('d', 'x')": "rank needs a number; got 'x'",
    "su.states.rank('d', None)": "rank needs a number; got None",
    "su.states.mean(['d'])": "a column must be a Column or a name",
    "su.states.stdev('d', 'x')": "ddof must be a whole number",
    "su.states.stdev('d', 1.5)": "ddof must be a whole number",
    "su.states.count(b'd')": "a column must be a Column or a name",
    "df.agg(aggr.sum('i'))": "agg needs Columns, and sum('i') is a measure; use su.group_by(df, …).agg(…)",
    "df.groupBy('host').agg(A.sum('i'), aggr.count())": "agg needs Columns, and count() is a measure",
    "su.aggregate(df, ['host'], {'n': A.sum('i')})": "the measure 'n' must be made by aggr, such as aggr.sum",
    "su.to_dds_proto('d', keys='middle')": f"{KEYS}'middle'",
    "su.from_dds_proto('p', keys=3)": f"{KEYS}3",
    "su.from_dds_proto('p', relative_accuracy=2)": "relative_accuracy must be",
    "su.from_dds_proto('p', sums=3)": "a column must be a Column or a name; got 3",
    "su.from_hdr_v2('p', digits=9)": "digits must be a whole number from 1 to 5; got 9",
    "su.from_hdr_v2('p', digits='3')": "digits must be a whole number from 1 to 5; got '3'",
    "su.to_hdr_v2(5)": "a column must be a Column or a name; got 5",
    "A.nope('x')": "there is no function 'nope'",
    "A.sum(3)": "a column must be a Column or a name; got 3",
    "A.sum('')": "a column must be a Column or a name; got ''",
    "A.sum()": "sum needs a column",
    "A.sum('x', 1)": "dtype must be 'decimal' or 'float64', or left out; got 1",
    "A.sum('x', 'decimal', 1)": "sum: too many positional arguments; write sum(",
    "su.group_by(3, 'k')": "expected a Spark DataFrame; got int",
    "A.sum('x', ddof=1)": "sum: got an unexpected keyword argument 'ddof'; write sum(",
    "A.sum('x', by='ts')": "sum: got an unexpected keyword argument 'by'; write sum(",
    "A.sum('x', where=3)": "the argument where must be a Column or a condition in SQL; got 3",
    "A.sum('x', type='int, y int')": "cannot read 'int, y int' as a type",
    "A.sum('x', type=3)": "cannot read 3 as a type",
    "A.sum('x', type='')": "cannot read '' as a type",
    "A.sum('x', type='interval year')": "cannot read 'interval year' as a type",
    "A.sum('x', type='string')": "sum cannot take a column of type string",
    "A.first('x')": "first needs event times",
    "A.first('x', by=3)": "a column must be a Column or a name; got 3",
    "A.dds('x', 'half')": "quantiles must be a list of numbers from 0 to 1; got 'half'",
    "A.dds('x', None)": "a quantile must be a number from 0 to 1; got None",
    "A.dds('x', [])": "quantiles is empty; name at least one quantile",
    "A.dds('x', [0.5], max_bins=0)": "max_bins must be",
    "A.hdr('x', digits=2.5)": "digits must be a whole number",
    "A.of(df).hdr('x')": "hdr(x): hdr counts whole numbers, and its column is double; pass unit, such as unit=0.001",
    "A.of(df).hdr('price')": "hdr(price): hdr counts whole numbers, and its column is decimal(21,2); pass unit",
    "su.group_by(df, 'host').agg(A.hdr(F.col('x') + 1))": "hdr(+(x, 1)): hdr counts whole numbers, and its column is",
    "su.group_by(df).rollup('host').agg(p=aggr.hdr('x', where='x > 0'))": "p: hdr counts whole numbers, and its column",
    "su.aggregate(df, ['host'], {'p': aggr.hdr('i / 2.0')})": "p: hdr counts whole numbers, and its column is double",
    "su.rollup(df, TiltFrame(['1h'], 'ts', {'p': aggr.hdr('x')}))": "p: hdr counts whole numbers, and its column is",
    "su.rollup_into(df, OF_FRACTIONS, 'w', 7)": "p: hdr counts whole numbers, and its column is double",
    "su.ordered_rollup(df, OrderedFrame(['count(2)'], 'ts', {'p': aggr.hdr('x')}))": "p: hdr counts whole numbers, and",
    "su.running(df, {'p': aggr.hdr('price')}, time='ts')": "p: hdr counts whole numbers, and its column",
    "su.stream(ticks, TiltFrame(['1h'], 'timestamp', {'p': aggr.hdr('value / 2.0')}))": "p: hdr counts whole",
    "su.stream(ticks, OrderedFrame(['count(2)'], 'timestamp', {'p': aggr.hdr('half')}))": "p: hdr counts whole",
    "su.stream_into(fractions, OF_FRACTIONS, name='s', checkpoint='c')": "p: hdr counts whole numbers",
    "A.hdr('x', unit=-1)": "unit must be",
    "A.var('x', '1')": "ddof must be a whole number",
    "su.register(3)": "expected a SparkSession; got 3",
    "su.register(spark, 'bigint')": "there is no function 'bigint'",
    "su.register(spark, 3)": "expected names of functions, such as 'dds'; got 3",
    "su.register(spark, types='bigint')": "types must be a list of names of Spark's types; got 'bigint'",
    "su.register(spark, types=['nonsense'])": "cannot read 'nonsense' as a type",
    "su.scan_parquet(3, 'x')": "expected a SparkSession; got 3",
    "su.scan_parquet(spark, 3)": "paths must be a path or URI, or a list of them; got 3",
    "su.scan_parquet(spark, [3])": "paths must be a path or URI, or a list of them; got [3]",
    "su.scan_parquet(spark, '')": "a path to scan must not be empty",
    "su.scan_parquet(spark, [])": "the argument paths is empty; name at least one file or folder",
    "su.scan_parquet(spark, 'nope://x/y')": "cannot open nope://x/y:",
    "su.scan_parquet(spark, file, filters=3)": "cannot read the filters 3",
    "su.scan_parquet(spark, file, filters=[('x',)])": "cannot read the filters [('x',)]",
    "su.scan_parquet(spark, file, filters='x = 1')": "cannot read the filters 'x = 1'",
    "su.scan_parquet(spark, file, filters=[('x', 'like', 1)])": "cannot read the filters",
    "su.scan_parquet(spark, file, filters=[('nope', '=', 1)])": "cannot scan",
    "su.scan_parquet(spark, file, filesystem='s3')": "filesystem must be a filesystem of pyarrow.fs; got 's3'",
    "su.scan_parquet(spark, file, partitioning='dir')": "partitioning must be 'hive'",
    "su.scan_parquet(spark, file, partitioning=3)": "partitioning must be 'hive'",
    "su.scan_parquet(spark, file, rows_per_task='9')": "rows_per_task must be a whole number of at least 1; got '9'",
    "su.rollup_into(df, 'folder', 'w', 1)": "expected a store, such as tiltframe.FrameStore(",
    "su.rollup_into(df, store, '', 1)": "the name of a writer must be",
    "su.rollup_into(df, store, 'w', '1')": NUMBER + "; got '1'",
    "su.rollup_into(df, store, 'w', True)": NUMBER + "; got True",
    "su.rollup_into(3, store, 'w', 7)": "expected a Spark DataFrame",
    "su.rollup_into(stream, store, 'w', 7)": "this is a streaming DataFrame",
    "su.stream_into(df, store, name='s', checkpoint='c')": "this DataFrame is not a stream; su.rollup_into",
    "su.stream_into(3, store, name='s', checkpoint='c')": "expected a streaming DataFrame from spark.readStream",
    "su.stream_into(stream, store, name='s', checkpoint='c')": "the data has no column 'ts'",
    "su.stream_into(stream, 'folder', name='s', checkpoint='c')": "expected a store, such as tiltframe.FrameStore(",
    "su.stream_into(stream, store, name=' ', checkpoint='c')": "name, the name of the stream,",
    "su.stream_into(stream, store, name='tiltframe:x', checkpoint='c')": "the name of a writer must be text that",
    "su.stream_into(stream, store, name='s', checkpoint=None)": "checkpoint, the folder of Spark's checkpoint",
    "su.stream_into(stream, store, name='s', checkpoint='')": "checkpoint, the folder of Spark's checkpoint",
    "su.stream_into(stream, store, name='s', checkpoint='c', trigger='soon')": "cannot read",
    "su.stream_into(stream, store, name='s', checkpoint='c', trigger=5)": "cannot read",
    "su.stream_into(stream, store, name='s', checkpoint='c', trigger='1mo')": "the trigger '1mo' has no fixed length",
    "su.stream_into(stream, store, name='s', checkpoint='c', compact_every=0)": "compact_every, a number of batches,",
    "su.progress(3)": "progress needs a query that su.stream_into started in this process",
    "su.append(rows, store, 'w', 7)": "expected a Spark DataFrame",
    "su.append(df, store, 'w', 7)": "these are not states of this frame",
    "su.append(states, None, 'w', 7)": "expected a store",
    "su.read(3, store.uri, '1h')": "expected a SparkSession; got 3",
    "su.read(spark, 3, '1h')": "the store must be a path or URI; got 3",
    "su.read(spark, '', '1h')": "the folder",
    "su.read(spark, '/nowhere', '1h')": "there is no store /nowhere",
    "su.read(spark, store.uri, '1 fortnight')": "cannot read '1 fortnight' as a window",
    "su.read(spark, store.uri, 5)": "cannot read",
    "su.read(spark, store.uri, '1s')": "1s does not consist of whole windows of a level",
    "su.read(spark, store.uri, '1h', within='yesterday')": "cannot read",
    "su.read(spark, store.uri, '1h', within=(1, 2, 3))": "cannot read the range",
    "su.read(spark, store.uri, '1h', where=3)": "a condition must be text, such as \"host = 'a'\"; got 3",
    "su.read(spark, store.uri, '1h', where='nope = 1')": "a condition can use only the keys of the frame (host)",
    "su.read(spark, store.uri, '1h', measures=3)": "measures must be a list of names, or a dict",
    "su.read(spark, store.uri, '1h', measures=['q'])": "the frame has no measure 'q'",
    "su.read(spark, store.uri, '1h', measures=[3])": "measures must be a list of names, or a dict",
    "su.read(spark, store.uri, '1h', measures={'q': 3})": "cannot compute 'q' from 3",
    "su.read(spark, store.uri, '1h', measures={'partial': aggr.count()})": "the name 'partial' is reserved",
    "su.read(spark, store.uri, '1h', keys=3)": "keys must be a list of names; got 3",
    "su.read(spark, store.uri, '1h', keys=['q'])": "the frame has no key 'q'",
    "su.read(spark, store.uri, '1h', fill='maybe')": "fill must be True or False, or one of null, zero",
    "su.read(spark, store.uri, '1h', now='soon')": "cannot read",
    "su.read(spark, store.uri, '1h', name=3)": "name must be text; got 3",
    "su.read(spark, store.uri, '1h', rows_per_task=0)": "rows_per_task must be a whole number of at least 1",
    "su.read(spark, store.uri, '1h', storage_options='x')": "storage_options must be a dict of names to options",
}


@pytest.fixture(scope="module")
def names(spark, tmp_path_factory):
    """What the calls may use."""
    from pyspark.sql import functions as F

    import spark_udaf as su
    from spark_udaf import functions as A

    rows = engines.rows(20)
    folder = tmp_path_factory.mktemp("mistakes")
    df = spark.createDataFrame(rows)
    pa.parquet.write_table(rows, folder / "rows.parquet")
    store = FrameStore(folder / "s", FRAME)
    store.append(rollup(rows, FRAME), "first", 1)
    su.register(spark)
    df.createOrReplaceTempView("mistaken")
    namespace = {"spark": spark, "df": df, "rows": rows, "store": store, "states": su.rollup(df, FRAME).drop("level")}
    namespace |= {"file": str(folder / "rows.parquet"), "stream": spark.readStream.format("rate").load()}
    namespace["OF_FRACTIONS"] = FrameStore(folder / "f", TiltFrame(["1h"], "ts", {"p": aggr.hdr("x")}))
    namespace["ticks"] = (
        namespace["stream"].withColumn("half", F.expr("value / 2.0D")).withWatermark("timestamp", "1 second")
    )
    namespace["fractions"] = namespace["stream"].selectExpr("timestamp AS ts", "value / 2.0D AS x")
    namespace |= {"TiltFrame": TiltFrame, "OrderedFrame": OrderedFrame}
    return namespace | {"su": su, "A": A, "F": F, "aggr": aggr, "FRAME": FRAME, "MEASURES": {"n": aggr.count()}}


def check(error: BaseException, start: str) -> None:
    sentence = str(error)
    assert sentence.startswith(start), sentence
    assert not any(word in sentence for word in INTERNALS), sentence
    assert len(sentence.splitlines()) == 1, sentence


@pytest.mark.parametrize("call", CALLS)
def test_a_bad_argument_is_told_in_a_sentence_and_no_job_starts(call, spark, names):
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    numbers = names["store"].last_commit("w")
    with pytest.raises((ValueError, TypeError, StoreError, FileNotFoundError, AttributeError)) as caught:
        eval(call, dict(names))
    check(caught.value, CALLS[call])
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == jobs
    assert names["store"].last_commit("w") == numbers


SQL = {  # what is selected -> how the sentence begins that a task says
    "aggr_count()": "aggr_count: the call needs a column as its first argument; to count rows, use aggr_count(1)",
    "aggr_count(*)": "aggr_count: the call takes no parameters after its column; got 6 arguments after the column; if",
    "aggr_count(x, x => 1)": "aggr_count: the call takes no parameters after its column; got 'x'",
    "aggr_dds(x, array(0.5D), quantiles => 0.5D)": "aggr_dds: the call takes quantiles, relative_accuracy, max_bins",
    "aggr_dds(x, array(array(0.5D)))": "aggr_dds: a quantile must be a number from 0 to 1",
    "aggr_dds(x, x)": "aggr_dds: quantiles must be the same in all rows, and not null",
    "aggr_sum('a')": "aggr_sum: the column has the type string, but is read as double; pass type",
    "aggr_min_string(x)": "aggr_min_string: the column has the type double, but is read as string; pass type",
    "aggr_first(x)": "aggr_first: the call needs event times, after its first column",
    "aggr_dds_merge(x)": "aggr_dds_merge: no registered function has states of type double",
    "aggr_dds_merge(named_struct('a', 1))": "aggr_dds_merge: no registered function has states of type struct",
    "aggr_dds_merge(aggr_x, 1) FROM (SELECT aggr_dds_state(x) AS aggr_x FROM mistaken)": "aggr_dds_merge: the call ",
    "aggr_dds_quantile(s) FROM (SELECT aggr_dds_state(x) AS s FROM mistaken)": "quantile: the call needs q after",
    "aggr_dds_quantile(s, array(1)) FROM (SELECT aggr_dds_state(x) AS s FROM mistaken)": "quantile: q must be a single",
    "aggr_dds_quantile(s, 2) FROM (SELECT aggr_dds_state(x) AS s FROM mistaken)": "quantile: a quantile must be a",
    "aggr_dds_mean(s, 2) FROM (SELECT aggr_dds_state(x) AS s FROM mistaken)": "mean: the call takes no parameters",
    "aggr_dds_merge(s) FROM (SELECT aggr_hdr_state(shelf) AS s FROM mistaken)": "aggr_dds_merge: these are not states",
    "aggr_dds_finish(s, 'x') FROM (SELECT aggr_dds_state(x) AS s FROM mistaken)": "aggr_dds_finish: quantiles must be",
}


@pytest.mark.parametrize("query", SQL)
@pytest.mark.long
def test_a_task_says_what_is_wrong_in_a_sentence(query, spark, names):
    text = query if " FROM " in query else f"{query} FROM (SELECT ts, host, shelf, x, i, price, word FROM mistaken)"
    with pytest.raises((ValueError, TypeError)) as caught, unwrapped_task_errors():
        spark.sql(f"SELECT {text}").collect()
    check(caught.value, SQL[query])


def test_functions_of_states_refuse_other_columns_on_the_driver(spark, names):
    from pyspark.errors import AnalysisException

    su, df, states = names["su"], names["df"], names["states"]
    spread = df.selectExpr("named_struct('count', i, 'min', x) AS finished")
    mistakes = {
        "su.states.quantile: the column x does not contain states": lambda: df.select(su.states.quantile("x", 0.5)),
        "su.states.union: the column i does": lambda: df.select("x").where("x > 1").select(su.states.union(df.i, df.i)),
        "su.states.count: the column host does": lambda: states.where(su.states.count("host") > 1),
        "su.states: a struct with the fields `count`, `min` is": lambda: spread.select(su.states.mean("finished")),
    }
    for start, ask in mistakes.items():
        with pytest.raises(AnalysisException) as caught:
            ask()
        check_first_line(str(caught.value), start)
    counts = states.where(su.states.count("d") > 1).select(su.states.count("d"), su.states.quantile(states.d, 0.5))
    assert counts.columns == ["count(d)", "quantile(d)"]
    quoted = states.withColumnRenamed("d", "d.d").select(su.states.count("`d.d`"))
    assert quoted.columns == ["count(d.d)"]
    assert "su.states" not in counts._jdf.queryExecution().executedPlan().toString()
    with pytest.raises(Exception, match=r"^bounds: states of dds have no bounds"):
        states.select(su.states.bounds("d")).collect()


def test_the_error_of_a_task_begins_with_its_sentence(spark, names):
    jobs = {
        "agg": lambda: names["df"].agg(names["A"].sum("word")),
        "groups": lambda: names["df"].groupBy("host").agg(names["A"].sum("word", groups="large")),
        "SQL": lambda: spark.sql("SELECT aggr_sum(word) FROM mistaken"),
        "su.sql": lambda: names["su"].sql(spark, "SELECT aggr_sum(word), max(x) FROM mistaken"),
    }
    calls = {"agg": "sum(word)", "groups": "sum(word)", "SQL": "aggr_sum", "su.sql": "aggr_sum"}
    for way, job in jobs.items():
        behind = "pass type=" if way == "su.sql" else "Traceback"  # su.sql finds it on the driver
        with pytest.raises(Exception, match=behind) as caught:
            job().collect()
        check_first_line(
            str(caught.value),
            f"{calls[way]}: the column has the type string, but is read as double; pass type='string'",
        )


def check_first_line(message: str, start: str) -> None:
    assert message.startswith(start), message
    assert not any(word in message.splitlines()[0] for word in INTERNALS), message


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("aggr_sum(DISTINCT shelf)", "does not support DISTINCT"),
        ("aggr_sum(shelf) FILTER (WHERE x > 5)", "does not support FILTER CLAUSE"),
        ("aggr_sum(shelf) WITHIN GROUP (ORDER BY x)", "does not support WITHIN GROUP"),
        ("aggr_first(x, ts) IGNORE NULLS", "does not support IGNORE NULLS"),
    ],
)
def test_what_sql_could_ask_and_no_function_does_is_refused(call, what, spark, names):
    """Spark refuses it, before any job; were it let through, the answer would be of other rows."""
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=what):
        spark.sql(f"SELECT {call} FROM mistaken").collect()


def test_parameters_may_be_named_in_sql(spark, names):
    query = "SELECT aggr_dds(shelf, quantiles => array(1D)).quantiles['1'], aggr_count(1) FROM mistaken"
    rows = names["rows"]
    assert spark.sql(query).first()[:2] == (pytest.approx(max(rows["shelf"].to_pylist()), rel=0.01), len(rows))


OPTIONS = {
    '{"per": "1h", "limit": "3"}': "unknown option 'limit'; the options are path, per",
    '{"per": "1h", "owner": "me"}': "unknown option 'owner'",
    '{"per": "1h", "measures": "[3]"}': "measures must be names, separated by commas or as a list in JSON; got [3]",
    '{"per": "1h", "measures": "{\\"q\\": 3}"}': "cannot read 3 as the measure 'q'",
    '{"per": "1h", "measures": "{\\"q\\": {\\"function\\": \\"nope\\"}}"}': "cannot read {'function': 'nope'} as the",
    '{"per": "1h", "measures": "{\\"q\\": {\\"function\\": \\"sum\\", \\"columns\\": 1}}"}': "cannot read",
    '{"per": "1h", "measures": "{\\"level\\": {\\"function\\": \\"count\\"}}"}': "the name 'level' is reserved",
    '{"per": "1h", "keys": "[[]]"}': "keys must be names, separated by commas or as a list in JSON; got [[]]",
    '{"per": "1h", "keys": "{"}': "cannot read keys '{' as JSON",
    '{"per": "1h", "path": "nowhere"}': "there is no store nowhere in /",
    '{"per": "1h", "path": ""}': "the location of a store must be a folder",
}


@pytest.mark.parametrize("options", OPTIONS)
def test_bad_options_of_the_data_source_are_told(options, names):
    import json

    from spark_udaf.store.options import from_options

    with pytest.raises((ValueError, StoreError)) as caught:
        from_options({"path": names["store"].uri} | json.loads(options))
    check(caught.value, OPTIONS[options])


@pytest.mark.long
def test_the_format_neither_writes_nor_streams(spark, names, tmp_path):
    uri = names["store"].uri
    for mode in ("append", "overwrite"):
        with (
            pytest.raises(ValueError, match=r"^the format tiltframe is read-only; write rows with"),
            unwrapped_task_errors(),
        ):
            names["df"].write.format("tiltframe").mode(mode).save(uri)
    read = spark.readStream.format("tiltframe").option("per", "1h").load(uri)
    rate = spark.readStream.format("rate").load()
    for number, (frame, kind, sentence) in enumerate(
        [
            (read, "noop", "^a store cannot be read as a stream; read its current content with su.read or spark.read"),
            (rate, "tiltframe", "^the format tiltframe is read-only; write a stream with su.stream_into"),
        ]
    ):
        writer = frame.writeStream.format(kind).option("checkpointLocation", str(tmp_path / str(number)))
        with pytest.raises(ValueError, match=sentence), unwrapped_task_errors():
            writer.start(uri).processAllAvailable()
    with (
        pytest.raises(ValueError, match=r"^the results have no column n string; they have level string, window_start"),
        unwrapped_task_errors(),
    ):
        spark.read.format("tiltframe").schema("n string").option("per", "1h").load(uri).collect()


@pytest.mark.long
def test_moments_travel_as_they_are_given(spark, names):
    import spark_udaf as su

    store = names["store"]
    day = dt.datetime(2013, 11, 3, tzinfo=dt.UTC)
    for within in ((20131103, 1383500000000), (day, day + dt.timedelta(hours=9)), "2013-11-03 **:**:**"):
        query = {"per": "1h", "within": within, "keys": []}
        assert su.read(spark, store.uri, **query).toArrow()["n"].to_pylist() == store.query(**query)["n"].to_pylist()


@pytest.mark.spark
def test_a_source_that_spark_does_not_contain_is_refused_in_one_sentence(spark):
    from spark_udaf.stream_command import _open_source

    for source in ("kafka", "no_such_source"):
        with pytest.raises(ValueError, match=f"Spark cannot open the source {source}: .* needs its package") as refused:
            _open_source(spark, source, {"subscribe": "topic", "kafka.bootstrap.servers": "127.0.0.1:9"}, None)
        assert len(str(refused.value).splitlines()) == 1
