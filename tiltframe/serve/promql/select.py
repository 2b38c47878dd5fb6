"""Selection: read the states of a selector from a store, by series and moment. The store is read once.

windows of a level ──▶ filter by labels ──▶ merge by the labels to keep, sorted by series and time
    ──▶ for each moment t the newest window with a value, or the merge of all windows that end in (t - range, t]
    ──▶ drop states whose result is null
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import promql_parser
import pyarrow as pa
from numpy.typing import NDArray

from aggr.extend.arguments import listed, nearest, shown
from aggr.extend.columns import group_by
from aggr.extend.tables import mark_as_checked, merge_by, merge_runs
from tiltframe import TiltFrame
from tiltframe.extend import as_text
from tiltframe.serve.cost import Budget
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.errors import Unanswerable
from tiltframe.serve.promql.cells import States
from tiltframe.serve.promql.function_table import REMOTE_READ_ADVICE, USE_PROMETHEUS
from tiltframe.serve.promql.metrics import NAME, STORE, Grouping, Matcher, Metric, label_texts, matching_rows
from tiltframe.serve.promql.parse import SECOND, duration_text
from tiltframe.store import Query
from tiltframe.store.backends import END, instants_of
from windows import Instants, TimeWindow

LOOKBACK = 300 * SECOND
# the maximum number of cells of a value (its number of series times its number of moments); also the maximum number of
# rows of states that a selector reads
MOST_CELLS = 10_000_000
_MERGED_AT_ONCE = 50_000  # the number of ranges and rows that are merged between two checks of the deadline
_MONTHS = ("mo", "q", "y")
# Names of columns. They contain a blank, so that they differ from the names of all labels.
_STATE = "the state"
_WINDOW_END = "the end of the window"


@dataclass(frozen=True)
class Evaluation:
    """The arguments for the evaluation of a PromQL expression. Moments are in microseconds UTC, and durations in
    microseconds.
    """

    # name → the metrics with this name, at most one per store
    metrics: dict[str, list[Metric]]
    # the times at which the expression is evaluated, ascending
    moments: Instants
    # the time between moments; None for a single moment
    step: int | None
    # the limits of the cost of each query that reads a store
    budget: Budget
    # The maximum time from the end of the newest window to a moment. If this time is shorter than the window, the
    # length of the window is used instead. With 0, the window must end exactly at the moment.
    lookback: int = LOOKBACK
    deadline: Deadline = field(default_factory=Deadline)
    # messages about missing data, which are added during the evaluation
    warnings: dict[str, None] = field(default_factory=dict)
    # messages that are not about missing data, such as the name of the level that is read
    infos: dict[str, None] = field(default_factory=dict)
    # whether Prometheus evaluates the expression, and reads only the series from this server
    is_remote_read: bool = False

    def check_limits(self, cells: int = 0) -> None:
        """Raise `OutOfTime` after the deadline. Raise `Unanswerable` if ``cells`` exceeds `MOST_CELLS`. ``cells`` is
        the number of series of a value times its number of moments, or the number of rows to read.
        """
        self.deadline.check()
        if cells > MOST_CELLS:
            other_way = "a shorter range" if self.is_remote_read else USE_PROMETHEUS
            raise Unanswerable(
                f"the result would have {cells:,} points, and at most {MOST_CELLS:,} are allowed; use fewer series or "
                f"coarser steps, or {other_way}"
            )


@dataclass(frozen=True)
class Selector:
    """The series that a selector in an expression selects: those of one metric that match all matchers.
    ``range_length`` is the length of the range, or None if the newest window is read. ``range_length`` and ``offset``
    are in microseconds. ``text`` is the selector as text, for messages.
    """

    metric: Metric
    matchers: tuple[Matcher, ...]
    range_length: int | None
    offset: int
    text: str


def selector_of(
    node: promql_parser.VectorSelector, range_length: int | None, evaluation: Evaluation
) -> Selector | None:
    """Return the selector that a node of a syntax tree describes. ``range_length`` is the length of the selector's
    range in microseconds, or None for a selector without a range. Return None if the metric or the store does not
    exist.

    Raise `Unanswerable` unless the selector names one metric of one store.
    """
    text = str(node).replace("{}", "") + (f"[{duration_text(range_length)}]" if range_length else "")
    if node.at is not None:
        raise Unanswerable(
            f"{shown(text)} has the modifier @, which this server does not support; {REMOTE_READ_ADVICE}"
        )
    if node.matchers.or_matchers:
        raise Unanswerable(
            f"{shown(text)} combines matchers by OR, which this server does not support; {REMOTE_READ_ADVICE}"
        )
    matchers = tuple(Matcher.of(matcher) for matcher in node.matchers.matchers)
    metric_names = [m.text for m in matchers if m.label == NAME and not m.regex and not m.negated]
    name = node.name or (metric_names[0] if metric_names else None)
    if name is None:
        raise Unanswerable(f"{shown(text)} does not name a metric; name one metric, or {USE_PROMETHEUS}")
    if name not in evaluation.metrics:
        evaluation.infos[f"there is no metric {name}; {nearest(name, evaluation.metrics)}"] = None
    metrics = [m for m in evaluation.metrics.get(name, []) if m.matches_name_and_store(matchers)]
    if len(metrics) > 1:
        names = [metric.store_name for metric in metrics]
        raise Unanswerable(
            f'{name} is in the stores {listed(names)}; name one of them, as in {name}{{store="{names[0]}"}}'
        )
    if not metrics:
        return None
    metric, key_matchers = metrics[0].with_matchers(matchers)
    offset = 0 if node.offset is None else round(node.offset.total_seconds() * SECOND)
    return Selector(metric, key_matchers, range_length=range_length, offset=offset, text=text)


def select(selector: Selector, evaluation: Evaluation, grouping: Grouping | None = None) -> States:
    """Return the states of a selector by series and moment. ``grouping`` is the grouping of an aggregation of the
    selector, such as ``sum by (host)``: states are merged if they have equal values of all labels that the grouping
    keeps.
    """
    metric = selector.metric
    moments = evaluation.moments - selector.offset
    level = _level(selector, moments, evaluation)
    range_length = selector.range_length or (max(evaluation.lookback, int(level.length)) if evaluation.lookback else 1)
    labels = [label for label in metric.labels if grouping is None or grouping.keeps(label)]
    limits = int(moments[0]) - range_length, int(moments[-1])
    rows = _rows(selector, level, limits=limits, evaluation=evaluation, labels=labels)
    groups, first_rows = group_by([rows.column(label).combine_chunks() for label in labels], rows.num_rows)
    series = _series(rows.select(labels), first_rows, metric, grouping)
    evaluation.check_limits(cells=len(series) * len(moments) * max(len(metric.bounds), 1))
    first, last = _ranges(
        groups.ids,
        len(series),
        window_ends=instants_of(rows, _WINDOW_END),
        range_starts=moments - range_length,
        # Windows that have not ended yet are not shown, also for moments in the future.
        range_ends=np.minimum(moments, metric.view.now),
    )
    function = metric.state[1]
    states = rows.column(_STATE).combine_chunks()

    def states_of_runs(cells: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64]) -> States:
        pieces = [
            merge_runs(function, states.slice(begin, end - begin), first[low:high] - begin, last[low:high] - begin)
            for low, high, begin, end in evaluation.deadline.check_each(_pieces_of_runs(first, last))
        ]
        runs = pa.concat_arrays(pieces) if pieces else states.slice(0, 0)
        return States(
            series=series,
            moment_count=len(moments),
            cells=cells,
            states=runs,
            function=function,
            result_function=metric.result_function,
            path=metric.path,
            kind=metric.kind,
            bounds=metric.bounds,
        )

    if selector.range_length is None:
        return _newest_states(states, first, last, states_of_runs)
    unknown_before = np.append(0, np.cumsum(states.is_null().to_numpy(zero_copy_only=False)))
    cells = np.flatnonzero((first < last) & (unknown_before[first] == unknown_before[last]))
    return states_of_runs(cells, first[cells], last[cells]).with_values()


class _Piece(NamedTuple):
    """Ranges of rows that are merged in one call: the ranges with the indices ``low`` to ``high - 1``. The first row of
    these ranges has the index ``begin``, and the last row has the index ``end - 1``.
    """

    low: int
    high: int
    begin: int
    end: int


def _pieces_of_runs(first: NDArray[np.int64], last: NDArray[np.int64]) -> Iterator[_Piece]:
    """Yield groups of consecutive ranges of rows as pieces, so that the deadline can be checked between two pieces. The
    range with the index i has the rows ``first[i]`` to ``last[i] - 1``. The ranges of a series follow each other. The
    number of ranges and rows in a piece is about `_MERGED_AT_ONCE`.

    Ranges may overlap. A row that belongs to several pieces is merged once per piece. If the longest range has more
    than `_MERGED_AT_ONCE` rows, a piece has about as many rows as the longest range, so that a row belongs to few
    pieces.
    """
    if not len(first):
        return
    size = max(_MERGED_AT_ONCE, int((last - first).max()))
    work = np.maximum.accumulate(last) + np.arange(len(last))
    edges = np.flatnonzero(np.diff(work // size)) + 1
    for low, high in pairwise([0, *edges.tolist(), len(first)]):
        yield _Piece(low, high, int(first[low:high].min()), int(last[low:high].max()))


def _newest_states(
    states: pa.StructArray, first: NDArray[np.int64], last: NDArray[np.int64], states_of_runs: Callable[..., States]
) -> States:
    """For each range ``[first, last)`` of rows, return the state of the newest row whose result is not null.
    ``states_of_runs`` is a function that returns the `States` of ranges of rows.
    """
    cells = np.flatnonzero(first < last)
    newest = last[cells] - 1
    candidates = states_of_runs(cells, newest, newest + 1).with_values()
    if len(candidates.cells) == len(cells):
        return candidates
    rows = np.arange(len(states))
    row_with_value = np.full(len(states), -1)
    rows_with_value = states_of_runs(rows, rows, rows + 1).with_values().cells
    row_with_value[rows_with_value] = rows_with_value
    newest = np.maximum.accumulate(row_with_value)[newest]
    in_range = newest >= first[cells]
    return states_of_runs(cells[in_range], newest[in_range], newest[in_range] + 1).with_values()


def _level(selector: Selector, moments: Instants, evaluation: Evaluation) -> TimeWindow:
    """Return the level whose windows a selector reads. Add messages about this level to the infos of the evaluation."""
    frame = selector.metric.view.frame
    step = evaluation.step
    level = newest_level(frame, step) if selector.range_length is None else range_level(frame, moments, step, selector)
    sentences = [f"{selector.text} is read from windows of {level.name}"]
    if step is not None and step < int(frame.levels[0].length):
        finest = frame.levels[0].name
        sentences.append(f"steps of {duration_text(step)} are finer than the finest windows, {finest}: values repeat")
    evaluation.infos.update(dict.fromkeys(sentences))
    return level


def _rows(
    selector: Selector, level: TimeWindow, limits: tuple[int, int], evaluation: Evaluation, labels: list[str]
) -> pa.Table:
    """Return the merged states of the windows that end after ``limits[0]`` and at or before ``limits[1]``. Both limits
    are in microseconds UTC. The rows are sorted by the columns ``labels`` and by the end of the window.
    """
    metric = selector.metric
    start = int(level.starts(np.array([limits[0]]))[0])
    matched = {matcher.label for matcher in selector.matchers}
    keys = [key for label, key in metric.labels.items() if label in labels or label in matched]
    within = f"{as_text(start)},{as_text(limits[1])}"
    where = sql_condition(selector.matchers, metric)
    answer = metric.view.states(Query(per=level, within=within, where=where, measures=[metric.measure], keys=keys))
    evaluation.budget.spend(metric.store_name, answer.cost)
    evaluation.warnings.update(dict.fromkeys([*answer.expired, *answer.unknown]))
    rows = pa.concat_tables(_matching_slices(answer.slices, selector, evaluation))
    key_columns = {name: rows.column(name).combine_chunks() for name in (*labels, _WINDOW_END)}
    return merge_by(mark_as_checked(rows), key_columns, {_STATE: metric.state[1]}, unknown=True)


def _matching_slices(slices: Iterator[pa.Table], selector: Selector, evaluation: Evaluation) -> Iterator[pa.Table]:
    """Yield the rows of ``slices`` that match the selector, with the labels, the end of the window, and the state.
    Raise `Unanswerable` if there are too many rows.
    """
    metric = selector.metric
    rows_read = 0
    for states in slices:
        rows_read += states.num_rows
        evaluation.check_limits(cells=rows_read)
        texts = label_columns(states, metric)
        mask = matching_rows(texts, selector.matchers, states.num_rows)
        columns = {_WINDOW_END: states.column(END), _STATE: states.column(metric.state[0])}
        yield pa.table({**texts, **columns}).filter(pa.array(mask))


def label_columns(rows: pa.Table, metric: Metric) -> dict[str, pa.Array]:
    """Return the keys in a table as columns of labels, by label."""
    return {label: label_texts(rows.column(key)) for label, key in metric.labels.items() if key in rows.column_names}


def sql_condition(matchers: Iterable[Matcher], metric: Metric) -> str | None:
    """Return an SQL condition from the matchers on text keys, or None if no matcher can be written in SQL. The
    condition may be true for rows that do not match, so the matchers must still be applied to the rows.
    """
    types = metric.view.manifest.key_types
    # A key whose name begins with a backquote is an expression, which `Matcher.condition` cannot write in SQL.
    keys = {k: key for k, key in metric.labels.items() if pa.types.is_string(types[key]) and not key.startswith("`")}
    conditions = [matcher.condition(keys[matcher.label]) for matcher in matchers if matcher.label in keys]
    return " AND ".join(condition for condition in conditions if condition) or None


def _series(
    keys: pa.Table, first_rows: NDArray[np.intp], metric: Metric, grouping: Grouping | None
) -> list[dict[str, str]]:
    """Return the labels of each series. ``keys`` has the values of labels by row, and ``first_rows`` the index of the
    first row of each series. The labels for the store and the metric are included, unless ``grouping`` removes them.
    """
    own_labels = {NAME: metric.name, STORE: metric.store_name}
    constant = own_labels if grouping is None else grouping.kept_labels(own_labels)
    label_values = keys.take(pa.array(first_rows)).to_pylist() if keys.num_columns else [{}] * len(first_rows)
    return [constant | {label: text for label, text in texts.items() if text is not None} for texts in label_values]


def _ranges(
    ids: NDArray[np.intp], series_count: int, *, window_ends: Instants, range_starts: Instants, range_ends: Instants
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return two flat arrays, ``first`` and ``last``, with one entry for each series and range of time. The entry of
    series i and range j is at the index ``i · len(range_starts) + j``. The rows ``[first, last)`` are the rows of the
    series with windows that ended after ``range_starts[j]``, and at or before ``range_ends[j]``. For an empty range,
    ``first`` is at least ``last``.

    Rows must be sorted by series, and by the end of the window. ``ids`` has the index of each row's series, and
    ``series_count`` is the number of series.
    """
    edges = np.unique(window_ends)
    places = ids * (len(edges) + 1) + np.searchsorted(edges, window_ends)
    begin = (np.arange(series_count) * (len(edges) + 1))[:, None]
    low, high = (np.searchsorted(edges, at, "right")[None, :] for at in (range_starts, range_ends))
    first, last = (np.searchsorted(places, (begin + at).ravel()) for at in (low, high))
    return first, last


def newest_level(frame: TiltFrame, step: int | None) -> TimeWindow:
    """Return the level whose newest window gives the value at each moment: the coarsest level whose length divides the
    step.

    Return the finest level if no length divides the step, or if there is no step because there is a single moment.
    """
    return next((level for level in reversed(frame.levels) if step and _is_whole(step, level)), frame.levels[0])


def range_level(frame: TiltFrame, moments: Instants, step: int | None, selector: Selector) -> TimeWindow:
    """Return the level whose windows are merged into the ranges that end at the moments: the coarsest level whose
    length divides the length of the ranges, the time ``step`` between moments and the offset of the selector.

    For a single moment there is no step. A level is then used only if its window that contains the moment starts at the
    same time as the window of the finest level that contains the moment. The merged windows then include all complete
    windows of the finest level.

    Raise `Unanswerable` if the ranges do not consist of complete windows of any level.
    """
    finest = frame.levels[0]
    range_length = selector.range_length
    text = selector.text
    assert range_length is not None

    def fits(level: TimeWindow) -> bool:
        if step is None:
            return bool(level.starts(moments)[-1] == finest.starts(moments)[-1])
        return _is_whole(step, level) and _is_whole(selector.offset, level)

    for level in (*filter(fits, reversed(frame.levels)), finest):
        if _is_whole(range_length, level):
            first = level.starts(moments[:1] - range_length)[0]
            starts = level.starts_between(int(first), int(moments[-1]) + 1)
            if (np.diff(starts) == level.length).all():
                return level
    names = ", ".join(level.name for level in frame.levels)
    raise Unanswerable(
        f"{text} does not consist of equally long windows: {duration_text(range_length)} is not a multiple of a level "
        f"({names}), or the clock of {frame.timezone} changes in the range; use a multiple of a level, "
        f"or {REMOTE_READ_ADVICE}"
    )


def _is_whole(duration: int, level: TimeWindow) -> bool:
    return level.resolution not in _MONTHS and duration % int(level.length) == 0
