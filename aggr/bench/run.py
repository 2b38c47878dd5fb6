"""The benchmark of measures: speed, bytes, errors and memory, compared with peers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr.arguments import checked_whole, shown
from aggr.bench.costs import GROUP, MeasureCase, Operation
from aggr.bench.distributions import DISTRIBUTIONS, draw, table_for
from aggr.bench.exact import errors_of, exact_of, is_quantile_function, repeated_values_of, values_of
from aggr.bench.memory import peak_bytes
from aggr.bench.peers import Peer, counterparts, read_peer
from aggr.bench.report import OURS, Error, Memory, Report, Size, Timing
from aggr.bench.sizes import state_sizes
from aggr.bench.timing import Call, alternate, circumstances
from aggr.measure import Measure

# Errors are measured for this number of groups of each distribution.
ERROR_GROUPS = 5
# the number of rows in each group for which errors are measured
ERROR_ROWS = 20_000
# The minimum number of rows in each group for which errors are measured. A table with fewer than 5 times this number of
# rows is divided into fewer groups.
MIN_ERROR_ROWS = 100
AUTO = "auto"


@dataclass
class _Figures:
    """The figures that have been collected so far. An interrupted benchmark reports them."""

    keeps_bits: dict[str, bool] = field(default_factory=dict)
    timings: list[Timing] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)


@dataclass(frozen=True)
class _Plan:
    """A validated request for a benchmark."""

    measures: Sequence[Measure]
    peers: Sequence[Sequence[Peer]]  # the peers of each measure
    rows: pa.Table
    data: str
    groups: Sequence[int]
    distributions: Sequence[str]
    rounds: int
    seed: int
    measures_memory: bool
    are_checked: bool
    is_cpu_time: bool

    def steps(self) -> list[tuple[str, Callable[[_Figures], None]]]:
        """Return the steps of the benchmark. A step is a pair of a description, and a function that adds the figures of
        the step to a `_Figures` object.
        """
        steps: list[tuple[str, Callable[[_Figures], None]]] = []
        for measure, peers in zip(self.measures, self.peers, strict=True):
            times = [
                (f"{measure}: {count:,} groups", partial(self._measure_times, measure, peers, count))
                for count in self.groups
            ]
            names = (self.distributions or ("",)) if exact_of(measure.function) is not None else ()
            errors = [
                (f"{measure}: errors {name}", partial(self._measure_errors, measure, peers, name)) for name in names
            ]
            memory = [(f"{measure}: memory", partial(self._measure_memory, measure))] if self.measures_memory else []
            steps += [(f"{measure}: bytes", partial(self._measure_sizes, measure, peers)), *times, *memory, *errors]
        return steps

    def _measure_times(self, measure: Measure, peers: Sequence[Peer], count: int, figures: _Figures) -> None:
        """Time the operations of the measure and of its peers alternately, in one process, and add the timings to
        ``figures``.
        """
        rows = _with_groups(self.rows, count, self.seed)
        case = MeasureCase(measure, rows, count, self.are_checked)
        figures.keeps_bits[repr(measure)] = figures.keeps_bits.get(repr(measure), True) and case.merges_keep_bits()
        timings: list[tuple[Timing, Call, int]] = []

        def add(by: str, row_count: int, operations: Sequence[Operation]) -> None:
            for operation in operations:
                timing = Timing(
                    measure=repr(measure),
                    by=by,
                    stage=operation.stage,
                    groups=count,
                    rows=row_count,
                    unit=operation.unit,
                    ns=math.nan,
                )
                timings.append((timing, operation.call, operation.count))

        add(OURS, len(rows), case.operations())
        for peer in peers:
            peer_rows, peer_group_count = _limit_rows(rows, count, peer.row_limit)
            peer_answers = Operation(
                "answers", unit="row", count=len(peer_rows), call=peer.prepare(peer_rows, peer_group_count)
            )
            add(str(peer), len(peer_rows), [*peer.stages(peer_rows, peer_group_count), peer_answers])
        clock = time.process_time if self.is_cpu_time else time.perf_counter
        seconds = alternate([call for _, call, _ in timings], self.rounds, clock=clock)
        for (timing, _, unit_count), median in zip(timings, seconds, strict=True):
            figures.timings.append(replace(timing, ns=median / max(1, unit_count) * 1e9))

    def _measure_sizes(self, measure: Measure, peers: Sequence[Peer], figures: _Figures) -> None:
        for count, size in state_sizes(measure, self.rows):
            figures.sizes.append(Size(repr(measure), OURS, count, size))
            for peer in peers:
                if peer.row_limit is not None and count > peer.row_limit:
                    continue
                size_of_peer = peer.state_bytes(values_of(measure, self.rows.slice(0, count)))
                if size_of_peer is not None:
                    figures.sizes.append(Size(repr(measure), str(peer), count, size_of_peer))

    def _measure_memory(self, measure: Measure, figures: _Figures) -> None:
        count = max(self.groups)
        case = MeasureCase(measure, _with_groups(self.rows, count, self.seed), count)
        figures.memory.append(Memory(repr(measure), count, len(self.rows), peak_bytes(case)))

    def _measure_errors(self, measure: Measure, peers: Sequence[Peer], distribution: str, figures: _Figures) -> None:
        """Compare the results of several groups of values with the exact results, and add the errors to ``figures``. If
        ``distribution`` is empty, the values are those of the benchmark's rows.
        """
        exact = exact_of(measure.function)
        if exact is None:
            return
        if distribution:
            rows = table_for([measure], ERROR_GROUPS * ERROR_ROWS, distribution, self.seed)
        else:
            row_count = min(len(self.rows), ERROR_GROUPS * ERROR_ROWS)
            rows = self.rows.take(pa.array(np.arange(row_count) * len(self.rows) // max(row_count, 1)))
        count = max(1, min(ERROR_GROUPS, len(rows) // MIN_ERROR_ROWS))
        group_ids = np.arange(len(rows)) * count // len(rows)
        grouped = rows.append_column(GROUP, pa.array(group_ids)).combine_chunks()
        group_values = {
            group: values
            for group in range(count)
            if (values := repeated_values_of(measure, grouped.filter(pa.array(group_ids == group)))) is not None
            and len(values)  # a group without values has no exact result
        }
        if not group_values:
            return
        if len(group_values) < count:
            has_values = np.isin(group_ids, list(group_values))
            count = len(group_values)
            group_ids = np.searchsorted(list(group_values), group_ids[has_values])
            grouped = grouped.filter(pa.array(has_values)).drop_columns([GROUP])
            grouped = grouped.append_column(GROUP, pa.array(group_ids)).combine_chunks()
        try:
            ranges = [exact(part) for part in group_values.values()]
        except (ValueError, OverflowError):  # values such as NaN have no exact result
            return
        has_ranks = is_quantile_function(measure.function)
        sorted_values = [
            np.sort(part.to_numpy(zero_copy_only=False)) if has_ranks else None for part in group_values.values()
        ]
        try:
            own_results = MeasureCase(measure, grouped, count).compute_results().to_pylist()
        except (ValueError, OverflowError):  # a group has more values than the function's ``max``
            return
        # peers do not support weights; their results would be those of the rows without weights
        peers_of_same_rows = [] if measure.weight is not None else peers
        peer_results = [(str(peer), peer.results(peer.prepare(grouped, count)())) for peer in peers_of_same_rows]
        for by, results in [(OURS, own_results), *peer_results]:
            for part in errors_of(results, ranges, sorted_values):
                figures.errors.append(
                    Error(
                        measure=repr(measure),
                        by=by,
                        distribution=distribution or self.data,
                        part=part.part,
                        worst_relative=part.worst_relative,
                        mean_relative=part.mean_relative,
                        worst_rank=part.worst_rank,
                    )
                )


def bench(
    measures: Measure | Sequence[Measure],
    *,
    against: str | Sequence[str] = AUTO,
    data: pa.Table | None = None,
    rows: int = 1_000_000,
    groups: Sequence[int] = (1, 1000),
    distributions: Sequence[str] = ("lognormal",),
    rounds: int = 5,
    seed: int = 1,
    memory: bool = True,
    checked_states: bool = False,
    cpu_time: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> Report:
    """Measure speed, bytes, errors and memory of measures, and of other packages on the same rows.

    Parameters
    ----------
    measures : Measure or sequence of Measure
        Measures of built-in or user-defined functions, such as ``aggr.dds("x", [0.5, 0.99])``.
    against : str or sequence of str
        Peers as ``NAME:EXPRESSION``, such as ``"duckdb:quantile_cont(x, [0.5, 0.99])"`` or ``"datasketches:kll"``.
        ``"auto"`` selects the installed counterparts of built-in functions. An empty sequence means no peers.
    data : pa.Table, optional
        A table of rows. By default, random values of the first distribution are used.
    rows : int
        The number of random rows, at least 1. Ignored if ``data`` is passed.
    groups : sequence of int
        Numbers of groups. Rows are assigned to groups at random. Numbers above the number of rows are left out.
    distributions : sequence of str
        Names in `DISTRIBUTIONS`. Errors are measured for each distribution. Ignored if ``data`` is passed.
    rounds : int
        The number of timed runs of each operation, at least 1. The medians are reported.
    seed : int
        The seed of random values and groups.
    memory : bool
        Whether to measure peak memory, in a separate process.
    checked_states : bool
        Whether merge and finish receive states that are known to be undamaged, as if the same job had computed the
        states. By default, merge and finish check the states, as they check states from a file.
    cpu_time : bool
        Whether times are CPU times of this process instead of elapsed times. Other processes on the machine affect CPU
        times less.
    progress : callable, optional
        A function that is called as ``progress(done, total, step)`` before each step.

    Returns
    -------
    Report
        The figures. If the benchmark is interrupted by Ctrl-C, it returns the figures so far, with ``is_complete``
        False.

    Raises
    ------
    ValueError, TypeError
        If arguments are invalid, peers are unknown, packages are missing, or measures do not fit the rows. These errors
        are raised before the first measurement.

    Notes
    -----
    Timings vary, so all operations are run alternately within one process, and their medians are reported. DuckDB runs
    with one thread; `one_core` restricts the other engines. Errors are relative to the exact result. For quantiles, the
    exact result is the range between the values of the two neighbouring ranks, and the error is the distance to this
    range.

    Examples
    --------
    >>> import aggr
    >>> report = aggr.bench.bench(aggr.sum("x"), against=(), rows=1000, groups=(1,), rounds=1, memory=False)
    >>> [timing.stage for timing in report.timings], report.keeps_bits
    (['reduce', 'merge', 'finish', 'answers'], {"sum('x')": True})
    """
    plan = _checked_plan(
        [measures] if isinstance(measures, Measure) else list(measures),
        against=against,
        data=data,
        rows=rows,
        groups=groups,
        distributions=distributions,
        rounds=rounds,
        seed=seed,
        measures_memory=memory,
        are_checked=checked_states,
        is_cpu_time=cpu_time,
    )
    figures = _Figures()
    is_complete = True
    steps = plan.steps()
    try:
        for place, (description, step) in enumerate(steps):
            if progress is not None:
                progress(place, len(steps), description)
            step(figures)
        if progress is not None:
            progress(len(steps), len(steps), "")
    except KeyboardInterrupt:
        is_complete = False
    packages = sorted({peer.package for peers in plan.peers for peer in peers})
    about = {
        **circumstances(("tiltframe", "numpy", "pyarrow", "numba", *packages)),
        "seed": plan.seed,
        "rounds": plan.rounds,
        "data": plan.data,
        "checked_states": plan.are_checked,
        "clock": "CPU time" if plan.is_cpu_time else "elapsed time",
    }
    return Report(about=about, is_complete=is_complete, **vars(figures))


def _checked_plan(
    measures: Sequence[Measure],
    *,
    against: str | Sequence[str],
    data: pa.Table | None,
    rows: int,
    groups: Sequence[int],
    distributions: Sequence[str],
    rounds: int,
    seed: int,
    measures_memory: bool,
    are_checked: bool,
    is_cpu_time: bool,
) -> _Plan:
    """Validate all arguments, evaluate every measure and peer on a few rows, and return the plan of the benchmark."""
    if not measures:
        raise ValueError("there is no measure to benchmark; pass at least one, such as aggr.dds('x', [0.5, 0.99])")
    checked_whole(rounds, "rounds", low=1)
    checked_whole(rows, "rows", low=1)
    counts = [checked_whole(count, "a number of groups", low=1) for count in groups]
    for name in distributions:
        draw(name, 0)
    if data is None and not distributions:
        raise ValueError(
            f"distributions is empty, and there is no data; pass data, or one of the distributions "
            f"{', '.join(DISTRIBUTIONS)}"
        )
    table = table_for(measures, rows, distributions[0], seed) if data is None else data.combine_chunks()
    if not len(table):
        raise ValueError("the data has no rows; pass data with at least one row")
    counts = [count for count in counts if count <= len(table)]
    if not counts:
        raise ValueError(
            f"more groups than rows: {shown(list(groups))} groups and {len(table):,} rows; pass fewer groups or more "
            "rows"
        )
    peers: list[list[Peer]] = []
    for measure in measures:
        # This call raises an error if the measure cannot be computed from the rows.
        MeasureCase(measure, _with_groups(table.slice(0, 10), 1, seed), 1).compute_results()
        if against == AUTO:
            peers.append(counterparts(measure))
        else:
            texts = [against] if isinstance(against, str) else list(against)
            peers.append([read_peer(text, measure) for text in texts])
        for peer in peers[-1]:
            if is_cpu_time and not peer.is_in_process:
                raise ValueError(
                    f"{peer} runs in another process, whose CPU time is not measured; leave out CPU time or the peer"
                )
            peer.prepare(_with_groups(table.slice(0, 10), 1, seed), 1)
    return _Plan(
        measures=measures,
        peers=peers,
        rows=table,
        data=f"{len(table):,} rows, {'own data' if data is not None else distributions[0]}",
        groups=counts,
        distributions=() if data is not None else tuple(distributions),
        rounds=rounds,
        seed=seed,
        measures_memory=measures_memory,
        are_checked=are_checked,
        is_cpu_time=is_cpu_time,
    )


def _with_groups(rows: pa.Table, count: int, seed: int) -> pa.Table:
    """Return the rows with a column `GROUP`, which assigns each row to a random group from 0 to ``count - 1``. A group
    may be empty.
    """
    ids = np.random.default_rng(seed).integers(0, count, len(rows)) if count > 1 else np.zeros(len(rows), np.int64)
    return rows.append_column(GROUP, pa.array(ids)).combine_chunks()


def _limit_rows(rows: pa.Table, group_count: int, limit: int | None) -> tuple[pa.Table, int]:
    """Return about ``limit`` rows, or all rows if there are fewer, and the number of their groups.

    Only complete groups are removed, so that the number of rows per group remains about the same. If there is only one
    group, its first ``limit`` rows are returned.
    """
    if limit is None or len(rows) <= limit:
        return rows, group_count
    if group_count == 1:
        return rows.slice(0, limit), 1
    remaining_groups = max(1, group_count * limit // len(rows))
    return rows.filter(pc.less(rows.column(GROUP), remaining_groups)).combine_chunks(), remaining_groups
