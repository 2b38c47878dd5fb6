"""Benchmark measures on Spark: run each way to compute a measure, and Spark's own functions, in turn."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aggr.arguments import checked_whole, nearest, shown
from aggr.arrow.bit_equality import same_bits
from aggr.bench.costs import GROUP
from aggr.bench.distributions import draw
from aggr.bench.report import Report, Timing, Traffic
from aggr.bench.timing import circumstances
from aggr.measure import Measure
from spark_udaf.bench.builtins import counterparts
from spark_udaf.bench.peer import SparkPeer, aggregate_in_spark
from spark_udaf.bench.rows import EVEN, SKEWED, TIME, copy_with_keys, parquet_rows, random_table, write_random
from spark_udaf.bench.traffic import JobResources, run_and_measure
from spark_udaf.bench.ways import FILES_SUFFIX, RESULT, VIEW, BuildDataFrame, Grouping, Rows, ways_to_compute
from spark_udaf.plan.schema import spark_schema
from spark_udaf.plan.session import check_session, interruptible
from spark_udaf.versions.arrow_tables import collect_arrow

AUTO = "auto"
PACKAGES = ("tiltframe", "pyspark", "numpy", "pyarrow", "numba")
# The beginnings of the names of optional ways to compute a measure: SQL, and the functions of `spark_udaf.functions`,
# such as ``A.dds``. An optional way that does not support a measure is left out, and the report contains the reason.
# For any other way that does not support a measure, an error is raised.
_OPTIONAL_WAYS = ("A.", "SQL")
_COMPARED_GROUPS = 10_000  # the maximum number of groups for which the bits of results are compared


@dataclass
class _Figures:
    """The figures that a benchmark has measured so far. If the benchmark is interrupted, it reports these figures."""

    notes: list[str]
    keeps_bits: dict[str, bool] = field(default_factory=dict)
    timings: list[Timing] = field(default_factory=list)
    traffic: list[Traffic] = field(default_factory=list)


@dataclass(frozen=True)
class _DataSet:
    """A data set of the benchmark: its rows, and how they are grouped.

    Parameters
    ----------
    load : callable that returns Rows
    grouping : Grouping
    groups : int or None
        The number of groups. None if the user named key columns of existing data. The groups are then counted after
        the rows are loaded.
    keys_label : str
        The label of the keys in the report: ``even`` or ``skewed`` for random keys, or the names of the key columns.
    """

    load: Callable[[], Rows]
    grouping: Grouping
    groups: int | None
    keys_label: str


BuildsByName = Mapping[str, BuildDataFrame]


def bench(
    spark: SparkSession,
    measures: Measure | Sequence[Measure],
    *,
    against: str | Sequence[str] = AUTO,
    data: DataFrame | str | Path | None = None,
    keys: Sequence[str] = (),
    time: str | None = None,
    levels: Sequence[str] = ("1d",),
    rows: int = 1_000_000,
    groups: Sequence[int] = (1, 1000),
    skewed: bool = False,
    distribution: str = "lognormal",
    rounds: int = 3,
    seed: int = 1,
    folder: str | Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Report:
    """Compare measures on Spark with Spark's own functions: time, shuffled and spilled bytes, and memory.

    Parameters
    ----------
    spark : SparkSession
        A session of classic Spark. On Spark Connect, bytes are not measured.
    measures : Measure or sequence of Measure
    against : str or sequence of str
        Aggregate expressions in Spark's SQL as ``spark:EXPRESSION``, such as
        ``"spark:percentile_approx(x, array(0.5, 0.99))"``. ``"auto"`` selects Spark's functions for the same statistic.
    data : DataFrame, path of Parquet files, or None
        The rows. By default, random values of the distribution are written to files.
    keys : sequence of str
        Columns of ``data`` by which rows are grouped. By default, the rows are copied, and each row of the copy has a
        random key.
    time : str, optional
        The column of ``data`` with event times, for `su.rollup`. Without it, `su.aggregate` is measured instead.
    levels : sequence of str
        The levels of the tilt frame of `su.rollup`. They need ``time``. The other ways to compute a measure, which have
        no levels, group by the keys and the windows of the finest level.
    rows : int
        The number of random rows, at least 1. Ignored if ``data`` is passed.
    groups : sequence of int
        The numbers of groups, that is, of distinct random keys. All jobs run once for each number of groups. Ignored if
        ``keys`` is passed.
    skewed : bool
        Whether to measure skewed random keys as well: half of the rows have the same key.
    distribution : str
        A name in `aggr.bench.DISTRIBUTIONS`.
    rounds : int
        The number of timed runs of each job, at least 1. An additional first run is not timed. The report contains the
        median of the times, the shuffled and spilled bytes of the last run, and the largest memory of all timed runs.
    seed : int
        The seed of random values and keys. The random order of jobs does not depend on it.
    folder : str or Path, optional
        A mounted folder, which the driver and all executors can access, for temporary files of rows. By default the
        folder for temporary files of this machine.
    progress : callable, optional
        A function that is called as ``progress(done, total, step)`` before each step.

    Returns
    -------
    Report
        Its ``timings`` and ``traffic`` have one entry per job. After Ctrl-C, the report has the figures so far, and
        ``is_complete`` is False.

    Raises
    ------
    ValueError, TypeError
        Before any job starts: for invalid arguments, expressions that Spark cannot evaluate, and measures that do not
        fit the rows.

    Notes
    -----
    All jobs of a measure run in turn, in one session. Results are discarded by Spark's format ``noop``. If all rows are
    in one group, the functions of `spark_udaf.functions` and SQL collect all rows in one task.

    Examples
    --------
    The documentation has a tested example::

        report = spark_udaf.bench.bench(spark, aggr.dds("x", [0.99]), rows=10_000_000, groups=(1000, 1_000_000))
        print(aggr.bench.as_text(report))
    """
    check_session(spark)
    measures = [measures] if isinstance(measures, Measure) else list(measures)
    if not measures:
        raise ValueError("there is no measure to benchmark; pass at least one, such as aggr.dds('x', [0.5, 0.99])")
    checked_whole(rounds, "rounds", low=1)
    checked_whole(rows, "rows", low=1)
    group_counts = list(dict.fromkeys(checked_whole(count, "a number of groups", low=1) for count in groups))
    draw(distribution, 0)  # This call raises an error if the name of the distribution is unknown.
    with tempfile.TemporaryDirectory(dir=_checked_folder(folder)) as temporary:
        temporary_folder = Path(temporary)
        if data is None:
            if keys or time is not None:
                raise ValueError(
                    "the arguments keys and time name columns of data; pass data as well, or leave out keys and time"
                )
            rows_to_plan, data_sets = _random_data_sets(
                spark,
                measures,
                rows=rows,
                distribution=distribution,
                seed=seed,
                group_counts=group_counts,
                skewed=skewed,
                folder=temporary_folder,
            )
        else:
            grouping = Grouping(tuple(keys), time, tuple(levels))
            rows_to_plan, data_sets = _user_data_sets(
                spark, data, grouping, group_counts=group_counts, skewed=skewed, seed=seed, folder=temporary_folder
            )
        ways_of_measures = [
            _checked_ways(measure, against, rows_to_plan, data_sets[0].grouping) for measure in measures
        ]
        figures = _Figures([reason for ways in ways_of_measures for reason in ways.omission_reasons])
        is_complete = True
        steps = list(_steps(spark, measures, ways_of_measures=ways_of_measures, data_sets=data_sets, rounds=rounds))
        try:
            with interruptible(spark):
                for number, (description, step) in enumerate(steps):
                    if progress is not None:
                        progress(number, len(steps), description)
                    step(figures)
                if progress is not None:
                    progress(len(steps), len(steps), "")
        except KeyboardInterrupt:
            is_complete = False
        finally:
            spark.catalog.dropTempView(VIEW)
    about = {
        **circumstances(PACKAGES),
        "master": spark.conf.get("spark.master", None),
        "shuffle partitions": spark.conf.get("spark.sql.shuffle.partitions", None),
        "seed": seed,
        "rounds": rounds,
        "data": f"{rows:,} rows, {distribution}" if data is None else f"own data: {shown(str(data))}",
    }
    return Report(about=about, is_complete=is_complete, **vars(figures))


def _checked_folder(folder: str | Path | None) -> Path | None:
    """Return the folder for rows as a path, or None. Raise ``ValueError`` unless it exists on this machine."""
    if folder is None:
        return None
    if "://" in str(folder) or not Path(folder).is_dir():
        raise ValueError(
            "folder must be an existing folder on this machine, which may be mounted on other machines as well; "
            f"got {shown(str(folder))}"
        )
    return Path(folder)


def _random_data_sets(
    spark: SparkSession,
    measures: Sequence[Measure],
    *,
    rows: int,
    distribution: str,
    seed: int,
    group_counts: Sequence[int],
    skewed: bool,
    folder: Path,
) -> tuple[DataFrame, list[_DataSet]]:
    """Return two values: an empty DataFrame with the columns of the rows, which is used to check the plans, and a list
    of data sets with random rows.

    For each number of groups in ``group_counts``, there is one data set with even keys. With ``skewed``, there is
    another one with skewed keys.
    """
    table = random_table(measures, rows, distribution, seed)
    group_counts = [count for count in group_counts if count <= len(table)]
    if not group_counts:
        raise ValueError(
            f"there are more groups than rows: there are {len(table):,} rows; pass more rows or fewer groups"
        )
    schema = table.schema.append(pa.field(GROUP, pa.int64()))
    grouping = Grouping((GROUP,), TIME, has_single_window=True)

    def load(count: int, key_distribution: str) -> Rows:
        path = write_random(table, folder, count, key_distribution=key_distribution, seed=seed)
        return parquet_rows(spark, path)

    data_sets = [
        _DataSet(partial(load, count, key_distribution), grouping, groups=count, keys_label=key_distribution)
        for count, key_distribution in _groups_and_distributions(group_counts, skewed)
    ]
    return spark.createDataFrame([], spark_schema(schema)), data_sets


def _user_data_sets(
    spark: SparkSession,
    data: DataFrame | str | Path,
    grouping: Grouping,
    *,
    group_counts: Sequence[int],
    skewed: bool,
    seed: int,
    folder: Path,
) -> tuple[DataFrame, list[_DataSet]]:
    """Return two values: the DataFrame of the user's rows, which is used to check the plans, and a list of data sets.

    If ``grouping`` has keys, there is one data set. Otherwise, the keys are random, and there is a data set for each
    number of groups in ``group_counts``. With ``skewed``, there is another one with skewed keys.
    """
    rows = Rows(data, None) if isinstance(data, DataFrame) else parquet_rows(spark, data)
    for name in [*grouping.keys, *([] if grouping.time is None else [grouping.time])]:
        if name not in rows.df.columns:
            raise ValueError(f"the data has no column {shown(name)}; {nearest(name, rows.df.columns)}")
    if grouping.keys:
        return rows.df, [_DataSet(lambda: rows, grouping, None, ", ".join(grouping.keys))]
    grouping_with_key = Grouping((GROUP,), grouping.time, grouping.levels)
    data_sets = [
        _DataSet(
            partial(copy_with_keys, rows.df, folder, count, key_distribution=key_distribution, seed=seed),
            grouping_with_key,
            groups=count,
            keys_label=key_distribution,
        )
        for count, key_distribution in _groups_and_distributions(group_counts, skewed)
    ]
    return rows.df.withColumn(GROUP, F.lit(0).cast("bigint")), data_sets


def _groups_and_distributions(group_counts: Sequence[int], skewed: bool) -> list[tuple[int, str]]:
    """Return a pair for each data set: the number of groups, and the distribution of the keys, ``even`` or ``skewed``.
    Keys of a single group are never skewed.
    """
    pairs = []
    for count in group_counts:
        pairs.append((count, EVEN))
        if skewed and count > 1:
            pairs.append((count, SKEWED))
    return pairs


@dataclass(frozen=True)
class _WaysOfMeasure:
    """The ways to compute a measure, by name: those with this library, and those with Spark's own functions.
    ``omission_reasons`` contains the reasons why ways of this library were left out.
    """

    library_ways: BuildsByName
    spark_ways: BuildsByName
    omission_reasons: Sequence[str]


def _checked_ways(
    measure: Measure, against: str | Sequence[str], rows_to_plan: DataFrame, grouping: Grouping
) -> _WaysOfMeasure:
    """Return the ways to compute a measure, and plan each of them without starting a job. Raise an error if the measure
    or one of Spark's expressions is invalid.
    """
    library_ways: dict[str, BuildDataFrame] = {}
    omission_reasons: list[str] = []
    rows = Rows(rows_to_plan, None)
    for name, build in ways_to_compute(measure, grouping):
        # A way that reads files cannot be checked here, because the files do not exist yet. It has the same plan as
        # another way, which reads a DataFrame and is checked.
        if name.endswith(FILES_SUFFIX):
            library_ways[name] = build
            continue
        try:
            build(rows, grouping)
        except (TypeError, ValueError, AnalysisException) as error:
            if not name.startswith(_OPTIONAL_WAYS):
                raise
            omission_reasons.append(f"{name}: {str(error).splitlines()[0]}")
            continue
        library_ways[name] = build
    spark_ways = {}
    for expression in checked_peers(against, measure):
        aggregate_in_spark(rows_to_plan, expression, grouping.columns())
        spark_ways[f"{SparkPeer.name}:{expression}"] = _builder_of_expression(expression)
    return _WaysOfMeasure(library_ways, spark_ways, omission_reasons)


def checked_peers(against: str | Sequence[str], measure: Measure) -> list[str]:
    """Return the expressions of Spark with which a measure is compared.

    Raises
    ------
    ValueError
        If a text does not have the form ``spark:EXPRESSION``.
    """
    if against == AUTO:
        return counterparts(measure)
    texts = [against] if isinstance(against, str) else list(against)
    expressions = []
    for text in texts:
        name, _, expression = text.partition(":")
        if name != SparkPeer.name or not expression.strip():
            raise ValueError(
                "on Spark, a measure can be compared only with Spark's own functions, such as "
                f"spark:percentile_approx(x, 0.5); got {shown(text)}"
            )
        expressions.append(expression.strip())
    return expressions


def _builder_of_expression(expression: str) -> BuildDataFrame:
    return lambda rows, grouping: aggregate_in_spark(rows.df, expression, grouping.columns())


def _steps(
    spark: SparkSession,
    measures: Sequence[Measure],
    *,
    ways_of_measures: Sequence[_WaysOfMeasure],
    data_sets: Sequence[_DataSet],
    rounds: int,
) -> Iterator[tuple[str, Callable[[_Figures], None]]]:
    """Yield pairs of the description of a step and the function that runs the step. For each data set, the first step
    loads the rows, and each further step runs one measure on these rows. ``ways_of_measures`` has one element for each
    measure.
    """
    for data_set in data_sets:
        load_step = _LoadStep(data_set)
        yield f"rows, {data_set.keys_label}", load_step.load
        for measure, ways in zip(measures, ways_of_measures, strict=True):
            measure_step = _MeasureStep(spark, measure, ways=ways, load_step=load_step, rounds=rounds)
            yield f"{measure}, {data_set.keys_label}", measure_step.run


class _LoadStep:
    """The step that loads the rows of a data set."""

    def __init__(self, data_set: _DataSet) -> None:
        self.data_set = data_set
        self.grouping = data_set.grouping

    def load(self, figures: _Figures) -> None:
        """Load the rows, and count the rows and the groups."""
        self.rows = self.data_set.load()
        self.count = self.rows.df.count()
        groups = self.data_set.groups
        if groups is None or self.grouping.window is not None:
            groups = self.rows.df.groupBy(*self.grouping.columns()).count().count()
        self.groups = groups


@dataclass(frozen=True)
class _MeasureStep:
    """The step that runs one measure on the rows of one data set."""

    spark: SparkSession
    measure: Measure
    ways: _WaysOfMeasure
    load_step: _LoadStep
    rounds: int

    def run(self, figures: _Figures) -> None:
        """Run every way to compute the measure, and Spark's functions, once per round. Each round has a new random
        order. The first round is not timed.
        """
        jobs = {
            name: build
            for name, build in self.ways.library_ways.items()
            if self._has_files or not name.endswith(FILES_SUFFIX)
        }
        jobs |= self.ways.spark_ways
        self._compare(figures)
        runs: dict[str, list[JobResources]] = {name: [] for name in jobs}
        order = list(jobs)
        rng = random.Random(1)  # The seed is fixed, so that the random orders are the same in every benchmark.
        for number in range(self.rounds + 1):
            rng.shuffle(order)
            for name in order:
                resources = run_and_measure(
                    self.spark, partial(jobs[name], self.load_step.rows, self.load_step.grouping)
                )
                if number:
                    runs[name].append(resources)
        for name, runs_of_job in runs.items():
            self._record(figures, name, runs_of_job)

    @property
    def _has_files(self) -> bool:
        return self.load_step.rows.scan is not None

    def _record(self, figures: _Figures, name: str, runs: Sequence[JobResources]) -> None:
        seconds = median(run.seconds for run in runs)
        labels: dict[str, Any] = {
            "measure": repr(self.measure),
            "by": name,
            "groups": self.load_step.groups,
            "rows": self.load_step.count,
        }
        keys_label = self.load_step.data_set.keys_label
        ns = seconds / max(1, self.load_step.count) * 1e9
        figures.timings.append(Timing(**labels, stage="answers", unit="row", ns=ns, keys=keys_label))
        runs_python = name in self.ways.library_ways
        figures.traffic.append(
            Traffic(
                **labels,
                keys=keys_label,
                shuffle_bytes=runs[-1].shuffle_bytes,
                spill_bytes=runs[-1].spill_bytes,
                worker_bytes=_largest(run.worker_bytes for run in runs) if runs_python else None,
            )
        )

    def _compare(self, figures: _Figures) -> None:
        """Record in ``figures`` whether all ways of this library compute the same bits. Results of SQL are not
        compared, because they have other types. With more than 10,000 groups, nothing is compared.
        """
        if self.load_step.groups > _COMPARED_GROUPS:
            return
        results = [
            self._results(name, build(self.load_step.rows, self.load_step.grouping))
            for name, build in self.ways.library_ways.items()
            if name != "SQL" and (self._has_files or not name.endswith(FILES_SUFFIX))
        ]
        call = repr(self.measure)
        is_same = all(same_bits(results[0], array) for array in results[1:])
        figures.keeps_bits[call] = figures.keeps_bits.get(call, True) and is_same

    def _results(self, way: str, df: DataFrame) -> pa.Array:
        """Return the results of the measure as an array, ordered by keys and then by window. The windows are those of
        the finest level.
        """
        grouping = self.load_step.grouping
        names = list(grouping.keys)
        if grouping.window is not None:
            start = "window_start" if way.startswith("su.rollup") else "window.start"
            df = df.withColumn("bench_start", F.col(start))
            names.append("bench_start")
        if way.startswith("su.rollup"):
            df = df.where(F.col("level") == grouping.finest.name)
        table = collect_arrow(df.select(*names, RESULT))
        sorted_table = table.sort_by([(name, "ascending") for name in names]) if names else table
        return sorted_table.column(RESULT).combine_chunks()


def _largest(sizes: Iterator[int | None]) -> int | None:
    return max((size for size in sizes if size is not None), default=None)
