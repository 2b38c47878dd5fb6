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
from spark_udaf.bench.peer import SparkPeer, aggregated
from spark_udaf.bench.rows import EVEN, SKEWED, TIME, copy_with_keys, parquet_rows, random_table, write_random
from spark_udaf.bench.traffic import Moved, run_and_measure
from spark_udaf.bench.ways import OF_FILES, RESULT, VIEW, Build, Grouping, Rows, ways_of
from spark_udaf.plan.schema import spark_schema
from spark_udaf.plan.session import check_session, interruptible
from spark_udaf.versions.arrow_tables import collect_arrow

AUTO = "auto"
PACKAGES = ("tiltframe", "pyspark", "numpy", "pyarrow", "numba")
# The ways to compute a measure that may be left out: SQL, and the functions of `spark_udaf.functions`, whose names
# begin with ``A.``. They are left out if they do not support a measure, and the report contains the reason. Other ways
# raise the error.
_OPTIONAL_WAYS = ("A.", "SQL")
_COMPARED_GROUPS = 10_000  # the maximum number of groups for which the bits of results are compared


@dataclass
class _Figures:
    """The figures that have been measured so far. An interrupted benchmark reports these figures."""

    notes: list[str]
    keeps_bits: dict[str, bool] = field(default_factory=dict)
    timings: list[Timing] = field(default_factory=list)
    traffic: list[Traffic] = field(default_factory=list)


@dataclass(frozen=True)
class _Data:
    """A data set of the benchmark: its rows, and how they are grouped.

    Parameters
    ----------
    load : callable that returns Rows
    grouping : Grouping
    groups : int or None
        The number of groups. None if the user named key columns of existing data. The groups are then counted after
        the rows are loaded.
    keys : str
        ``even``, ``skewed``, or the names of the columns.
    """

    load: Callable[[], Rows]
    grouping: Grouping
    groups: int | None
    keys: str


Ways = Mapping[str, Build]


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
        ``"spark:percentile_approx(x, array(0.5, 0.99))"``. ``"auto"`` selects the counterparts of built-in functions.
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
        Numbers of different random keys. All jobs run for each number. Ignored if ``keys`` is passed.
    skewed : bool
        Whether to measure skewed random keys as well: half of the rows have the same key.
    distribution : str
        A name in `aggr.bench.DISTRIBUTIONS`.
    rounds : int
        The number of timed runs of each job, at least 1. An additional first run is not timed. The medians are
        reported.
    seed : int
    folder : str or Path, optional
        A mounted folder, which the driver and all executors can access, for temporary files of rows. By default the
        folder for temporary files of this machine.
    progress : callable, optional
        A function that is called as ``progress(done, total, step)`` before each step.

    Returns
    -------
    Report
        Its ``timings`` and ``traffic`` have one entry per job. After Ctrl-C, it has the figures so far, and
        ``is_complete`` is False.

    Raises
    ------
    ValueError, TypeError
        Before any job starts: for invalid arguments, expressions that Spark cannot evaluate, and measures that do not
        fit the rows.

    Notes
    -----
    All jobs of a measure alternate within one session. Results are discarded by Spark's format ``noop``. If all rows
    are in one group, `A` and SQL collect all of them in one task.

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
    counts = list(dict.fromkeys(checked_whole(count, "a number of groups", low=1) for count in groups))
    draw(distribution, 0)
    with tempfile.TemporaryDirectory(dir=_checked_folder(folder)) as temporary:
        place = Path(temporary)
        if data is None:
            if keys or time is not None:
                raise ValueError("keys and time are columns of data; pass data as well, or leave them out")
            empty, cases = _random_cases(
                spark,
                measures,
                rows=rows,
                distribution=distribution,
                seed=seed,
                counts=counts,
                skewed=skewed,
                folder=place,
            )
        else:
            grouping = Grouping(tuple(keys), time, tuple(levels))
            empty, cases = _cases_of(spark, data, grouping, counts=counts, skewed=skewed, seed=seed, folder=place)
        ways = [_checked_ways(measure, against, empty, cases[0].grouping) for measure in measures]
        figures = _Figures([note for ways_of_measure in ways for note in ways_of_measure.left_out])
        is_complete = True
        steps = list(_steps(spark, measures, ways=ways, cases=cases, rounds=rounds))
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


def _random_cases(
    spark: SparkSession,
    measures: Sequence[Measure],
    *,
    rows: int,
    distribution: str,
    seed: int,
    counts: Sequence[int],
    skewed: bool,
    folder: Path,
) -> tuple[DataFrame, list[_Data]]:
    """Return two values: an empty DataFrame with the columns of the rows, for planning, and a list of data sets with
    random rows. There is one data set for each number of groups in ``counts``, and with ``skewed`` another one with
    skewed keys.
    """
    table = random_table(measures, rows, distribution, seed)
    counts = [count for count in counts if count <= len(table)]
    if not counts:
        raise ValueError(f"more groups than rows: there are {len(table):,} rows; pass more rows or fewer groups")
    schema = table.schema.append(pa.field(GROUP, pa.int64()))
    grouping = Grouping((GROUP,), TIME, is_one_window=True)

    def load(count: int, keys: str) -> Rows:
        return parquet_rows(spark, write_random(table, folder, count, keys=keys, seed=seed))

    cases = [
        _Data(partial(load, count, keys), grouping, groups=count, keys=keys) for count, keys in _cases(counts, skewed)
    ]
    return spark.createDataFrame([], spark_schema(schema)), cases


def _cases_of(
    spark: SparkSession,
    data: DataFrame | str | Path,
    grouping: Grouping,
    *,
    counts: Sequence[int],
    skewed: bool,
    seed: int,
    folder: Path,
) -> tuple[DataFrame, list[_Data]]:
    """Return two values: the DataFrame of the user's rows, for planning, and a list of data sets. If the user has not
    chosen keys, there is one data set for each number of groups in ``counts``, with random keys.
    """
    rows = Rows(data, None) if isinstance(data, DataFrame) else parquet_rows(spark, data)
    for name in [*grouping.keys, *([] if grouping.time is None else [grouping.time])]:
        if name not in rows.df.columns:
            raise ValueError(f"the data has no column {shown(name)}; {nearest(name, rows.df.columns)}")
    if grouping.keys:
        return rows.df, [_Data(lambda: rows, grouping, None, ", ".join(grouping.keys))]
    keyed = Grouping((GROUP,), grouping.time, grouping.levels)
    cases = [
        _Data(partial(copy_with_keys, rows.df, folder, count, keys=keys, seed=seed), keyed, groups=count, keys=keys)
        for count, keys in _cases(counts, skewed)
    ]
    return rows.df.withColumn(GROUP, F.lit(0).cast("bigint")), cases


def _cases(counts: Sequence[int], skewed: bool) -> list[tuple[int, str]]:
    """Return pairs of a number of groups and ``even`` or ``skewed``, the kind of keys. Skewed keys need more than one
    group.
    """
    return [(count, keys) for count in counts for keys in ((EVEN, SKEWED) if skewed and count > 1 else (EVEN,))]


@dataclass(frozen=True)
class _Ways:
    """The ways to compute a measure, Spark's functions to compare with, and the reasons why ways were left out."""

    own: Ways
    peers: Ways
    left_out: Sequence[str]


def _checked_ways(measure: Measure, against: str | Sequence[str], empty: DataFrame, grouping: Grouping) -> _Ways:
    """Return the ways to compute a measure, and plan each of them without starting a job. Raise an error if the measure
    or one of Spark's expressions is invalid.
    """
    own: dict[str, Build] = {}
    left_out: list[str] = []
    rows = Rows(empty, None)
    for name, build in ways_of(measure, grouping):
        # Ways that read files cannot be planned here, because the files do not exist yet. For each of them, there is a
        # way with the same plan that reads a DataFrame, and which is checked here.
        if name.endswith(OF_FILES):
            own[name] = build
            continue
        try:
            build(rows, grouping)
        except (TypeError, ValueError, AnalysisException) as error:
            if not name.startswith(_OPTIONAL_WAYS):
                raise
            left_out.append(f"{name}: {str(error).splitlines()[0]}")
            continue
        own[name] = build
    peers = {}
    for expression in checked_peers(against, measure):
        aggregated(empty, expression, grouping.columns())
        peers[f"{SparkPeer.name}:{expression}"] = _planned_by_spark(expression)
    return _Ways(own, peers, left_out)


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


def _planned_by_spark(expression: str) -> Build:
    return lambda rows, grouping: aggregated(rows.df, expression, grouping.columns())


def _steps(
    spark: SparkSession, measures: Sequence[Measure], *, ways: Sequence[_Ways], cases: Sequence[_Data], rounds: int
) -> Iterator[tuple[str, Callable[[_Figures], None]]]:
    """Yield pairs of a description of a step and the function that runs the step. For each data set in ``cases``, the
    first step loads the rows, and each further step runs one measure on these rows.
    """
    for case in cases:
        loaded = _Loaded(case)
        yield f"rows, {case.keys}", loaded.load
        for measure, ways_of_measure in zip(measures, ways, strict=True):
            run = _Run(spark, measure, ways=ways_of_measure, loaded=loaded, rounds=rounds)
            yield f"{measure}, {case.keys}", run.measure


class _Loaded:
    """The step that loads the rows of a data set."""

    def __init__(self, case: _Data) -> None:
        self.case = case
        self.grouping = case.grouping

    def load(self, figures: _Figures) -> None:
        """Load the rows, and count them and their groups."""
        self.rows = self.case.load()
        self.count = self.rows.df.count()
        groups = self.case.groups
        if groups is None or self.grouping.window is not None:
            groups = self.rows.df.groupBy(*self.grouping.columns()).count().count()
        self.groups = groups


@dataclass(frozen=True)
class _Run:
    """The step that runs one measure on the rows of one data set."""

    spark: SparkSession
    measured: Measure
    ways: _Ways
    loaded: _Loaded
    rounds: int

    def measure(self, figures: _Figures) -> None:
        """Run every way to compute the measure, and Spark's functions, once per round. Each round has a new random
        order. The first round is not timed.
        """
        jobs = {name: build for name, build in self.ways.own.items() if self._has_files or not name.endswith(OF_FILES)}
        jobs |= self.ways.peers
        self._compare(figures)
        runs: dict[str, list[Moved]] = {name: [] for name in jobs}
        order = list(jobs)
        draws = random.Random(1)
        for number in range(self.rounds + 1):
            draws.shuffle(order)
            for name in order:
                moved = run_and_measure(self.spark, partial(jobs[name], self.loaded.rows, self.loaded.grouping))
                if number:
                    runs[name].append(moved)
        for name, runs_of_job in runs.items():
            self._record(figures, name, runs_of_job)

    @property
    def _has_files(self) -> bool:
        return self.loaded.rows.scan is not None

    def _record(self, figures: _Figures, name: str, runs: Sequence[Moved]) -> None:
        seconds = median(run.seconds for run in runs)
        case: dict[str, Any] = {
            "measure": repr(self.measured),
            "by": name,
            "groups": self.loaded.groups,
            "rows": self.loaded.count,
        }
        keys = self.loaded.case.keys
        ns = seconds / max(1, self.loaded.count) * 1e9
        figures.timings.append(Timing(**case, stage="answers", unit="row", ns=ns, keys=keys))
        is_python = name in self.ways.own
        figures.traffic.append(
            Traffic(
                **case,
                keys=keys,
                shuffle_bytes=runs[-1].shuffle_bytes,
                spill_bytes=runs[-1].spill_bytes,
                worker_bytes=_largest(run.worker_bytes for run in runs) if is_python else None,
            )
        )

    def _compare(self, figures: _Figures) -> None:
        """Record in ``figures`` whether the results of all ways have the same bits. Results in SQL are not compared,
        because they have other types. With more than 10,000 groups, nothing is compared.
        """
        if self.loaded.groups > _COMPARED_GROUPS:
            return
        results = [
            self._results(name, build(self.loaded.rows, self.loaded.grouping))
            for name, build in self.ways.own.items()
            if name != "SQL" and (self._has_files or not name.endswith(OF_FILES))
        ]
        call = repr(self.measured)
        is_same = all(same_bits(results[0], other) for other in results[1:])
        figures.keeps_bits[call] = figures.keeps_bits.get(call, True) and is_same

    def _results(self, way: str, df: DataFrame) -> pa.Array:
        """Return the results of the measure in the windows of the finest level as an array, ordered by keys and then by
        window.
        """
        grouping = self.loaded.grouping
        names = list(grouping.keys)
        if grouping.window is not None:
            start = "window_start" if way.startswith("su.rollup") else "window.start"
            df = df.withColumn("bench_start", F.col(start))
            names.append("bench_start")
        if way.startswith("su.rollup"):
            df = df.where(F.col("level") == grouping.finest.name)
        table = collect_arrow(df.select(*names, RESULT))
        ordered = table.sort_by([(name, "ascending") for name in names]) if names else table
        return ordered.column(RESULT).combine_chunks()


def _largest(sizes: Iterator[int | None]) -> int | None:
    return max((size for size in sizes if size is not None), default=None)
