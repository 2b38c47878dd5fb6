"""Selecting: from a selector to states over series and moments, by one read of a store.

windows of a level ──▶ those whose labels match ──▶ merged by the labels that are kept, in order of series and time
    ──▶ of each moment t the newest window, or the merge of those that ended in (t - range, t]
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import promql_parser
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import listed, nearest, shown
from aggr.groups.groups import group_by
from aggr.state_checks import made_here
from aggr.tables.by_key import merge_by
from aggr.tables.ranges import merge_runs
from tiltframe.frame import END, INSTANT
from tiltframe.level_chain import instants_of
from tiltframe.serve.promql.cells import States
from tiltframe.serve.promql.errors import OutOfTime, Unanswerable
from tiltframe.serve.promql.labels import Grouping, Matcher, chosen, label_texts, narrowing
from tiltframe.serve.promql.levels import newest_level, range_level
from tiltframe.serve.promql.metrics import NAME, STORE, Metric
from tiltframe.serve.promql.parse import SECOND, written
from tiltframe.store import Query
from tiltframe.store.query.execution import states_of
from tiltframe.store.query.plan import plan_query
from tiltframe.store.ranges import as_text
from windows import TimeWindow
from windows.timezone import Instants

LOOKBACK = 300 * SECOND
MOST_ROWS = 10_000_000  # of states that one selector reads
MOST_CELLS = 10_000_000  # of series and moments that one part of an expression has


@dataclass(frozen=True)
class Evaluation:
    """What an expression is evaluated at.

    Parameters
    ----------
    metrics : name -> metrics of this name, one a store
    moments : array of int64
        Ascending, microseconds UTC.
    step : int, optional
        Microseconds between moments; None for one moment alone.
    lookback : int
        How long ago the newest window may have ended, microseconds; a window's own length if that is longer. 0 takes
        only windows that end at a moment.
    deadline : float
        By `time.monotonic`.
    warnings : set of str
        What is said beside the answer; it is added to.
    """

    metrics: dict[str, list[Metric]]
    moments: Instants
    step: int | None
    lookback: int = LOOKBACK
    deadline: float = np.inf
    warnings: dict[str, None] = field(default_factory=dict)

    def check(self, cells: int = 0) -> None:
        """Raise `OutOfTime` after the deadline, and `Unanswerable` for too many cells."""
        if time.monotonic() > self.deadline:
            raise OutOfTime("the query took longer than it may; ask for a shorter range, fewer series or coarser steps")
        if cells > MOST_CELLS:
            raise Unanswerable(
                f"this would be {cells:,} points, and {MOST_CELLS:,} are allowed; ask for fewer series or coarser steps"
            )

    def earlier(self, offset: int) -> Evaluation:
        """Be evaluated so much earlier."""
        return replace(self, moments=self.moments - offset) if offset else self


@dataclass(frozen=True)
class Selector:
    """Which series of one metric, and how far they reach back.

    Parameters
    ----------
    metric : Metric
    matchers : tuple of Matcher
        On the labels of its keys.
    span : int, optional
        The range, microseconds; None for the newest window.
    offset : int
        Microseconds.
    text : str
        As it is written, for warnings and errors.
    """

    metric: Metric
    matchers: tuple[Matcher, ...]
    span: int | None
    offset: int
    text: str


def selector_of(
    node: promql_parser.VectorSelector, span: int | None, evaluation: Evaluation
) -> tuple[Selector | None, tuple[Matcher, ...]]:
    """Read a selector; None if there is no such metric or store. Return its matchers too.

    Raises `Unanswerable` for what selects in another way than by one metric of one store.
    """
    text = str(node).replace("{}", "") + (f"[{written(span)}]" if span else "")
    if node.at is not None:
        raise Unanswerable(f"{shown(text)} has the modifier @, which is not answered; ask at that time, or use offset")
    if node.matchers.or_matchers:
        raise Unanswerable(f"{shown(text)} has or between matchers, which is not answered; use a regular expression")
    matchers = tuple(Matcher.of(matcher) for matcher in node.matchers.matchers)
    named = [m.text for m in matchers if m.label == NAME and not m.regex and not m.negated]
    name = node.name or (named[0] if named else None)
    if name is None:
        raise Unanswerable(f"{shown(text)} selects by no name, and one metric is read at a time; name it")
    candidates = [
        metric
        for metric in evaluation.metrics.get(name, [])
        if all(m.takes(metric.store_name if m.label == STORE else name) for m in matchers if m.label in (STORE, NAME))
    ]
    if name not in evaluation.metrics:
        evaluation.warnings[f"there is no metric {name}; {nearest(name, evaluation.metrics)}"] = None
    if len(candidates) > 1:
        names = [metric.store_name for metric in candidates]
        raise Unanswerable(
            f'{name} is in the stores {listed(names)}, and one is read at a time; write {name}{{store="{names[0]}"}}'
        )
    others = tuple(m for m in matchers if m.label not in (STORE, NAME))
    offset = 0 if node.offset is None else round(node.offset.total_seconds() * SECOND)
    return (Selector(candidates[0], others, span, offset, text) if candidates else None), others


def select(selector: Selector, evaluation: Evaluation, grouping: Grouping | None = None) -> States:
    """Read states over series and moments; ``grouping`` merges those of a range over other labels as they are read."""
    metric, moments = selector.metric, evaluation.moments - selector.offset
    level = _level(selector, moments, evaluation)
    reach = selector.span or (max(evaluation.lookback, int(level.length)) if evaluation.lookback else 1)
    rows = _rows(selector, level, (int(moments[0]) - reach, int(moments[-1])), evaluation, grouping)
    kept = [name for name in rows.column_names if name not in (END, metric.state[0])]
    groups, one = group_by([rows.column(label).combine_chunks() for label in kept], rows.num_rows)
    series = _series(rows, kept, one, metric, grouping)
    evaluation.check(len(series) * len(moments))
    first, last = _ranges(groups.ids, len(series), instants_of(rows, END), moments, reach)
    if selector.span is None:
        first = np.maximum(first, last - 1)
    states = rows.column(metric.state[0]).combine_chunks()
    unknown = np.concatenate([[0], np.cumsum(states.is_null().to_numpy(zero_copy_only=False))])
    cells = np.flatnonzero((first < last) & (unknown[first] == unknown[last]))
    merged = merge_runs(metric.state[1], states, first[cells], last[cells])
    read_by = metric.read_by.function
    return States(series, len(moments), cells, merged, metric.state[1], read_by, metric.path, metric.kind)


def _level(selector: Selector, moments: Instants, evaluation: Evaluation) -> TimeWindow:
    """Choose the level, and say which."""
    frame, step = selector.metric.store.frame, evaluation.step
    if selector.span is None:
        level = newest_level(frame, step)
    else:
        level = range_level(frame, moments, step, selector.span, selector.text)
    evaluation.warnings[f"{selector.text} is read from windows of {level.name}"] = None
    finest = frame.levels[0]
    if step is not None and step < int(finest.length):
        evaluation.warnings[
            f"steps of {written(step)} are finer than the finest windows, {finest.name}: values repeat"
        ] = None
    return level


def _rows(
    selector: Selector, level: TimeWindow, ends: tuple[int, int], evaluation: Evaluation, grouping: Grouping | None
) -> pa.Table:
    """Read the states of windows that end in ``(low, high]``: labels, end, state, in order of labels and time."""
    metric = selector.metric
    (name, function), labels = metric.state, metric.labels
    kept = [label for label in labels if grouping is None or grouping.keeps(label)]
    matched = {m.label for m in selector.matchers} & labels.keys()
    start = int(level.starts(np.array([ends[0]]))[0])
    query = Query(
        per=level,
        within=f"{as_text(start)},{as_text(ends[1])}",
        where=narrowing(selector.matchers, metric),
        measures=[metric.measure],
        keys=[key for label, key in labels.items() if label in kept or label in matched],
    )
    answer = states_of(metric.store.backend, metric.store.manifest, plan_query(metric.store.frame, query))
    evaluation.warnings.update(dict.fromkeys(answer.expired))
    tables = list(_matching(answer.slices, selector, evaluation))
    rows = pa.concat_tables(tables)
    keys = {label: rows.column(label).combine_chunks() for label in kept}
    keys[END] = rows.column(END).combine_chunks().cast(INSTANT)
    return merge_by(made_here(rows.select([name])), keys, {name: function}, unknown=True)


def _matching(slices: Iterator[pa.Table], selector: Selector, evaluation: Evaluation) -> Iterator[pa.Table]:
    """Write keys as labels, and keep the rows that match."""
    metric, read = selector.metric, 0
    state = metric.state[0]
    for states in slices:
        evaluation.check()
        read += states.num_rows
        if read > MOST_ROWS:
            raise Unanswerable(
                f"{selector.text} reads more than {MOST_ROWS:,} windows of keys; ask for a shorter range, fewer series "
                "or coarser steps"
            )
        texts = {
            label: label_texts(states.column(key)) for label, key in metric.labels.items() if key in states.column_names
        }
        mask = chosen(texts, selector.matchers, states.num_rows)
        columns = {**texts, END: states.column(END), state: states.column(state)}
        yield pa.table(columns).filter(pa.array(mask))


def _series(
    rows: pa.Table, labels: list[str], one: NDArray[np.intp], metric: Metric, grouping: Grouping | None
) -> list[dict[str, str]]:
    """Name the labels of each series, those of the store and the metric among them."""
    own = {NAME: metric.name, STORE: metric.store_name}
    constant = {label: text for label, text in own.items() if grouping is None or grouping.keeps(label)}
    each = rows.select(labels).take(pa.array(one)).to_pylist() if labels else [{}] * len(one)
    return [constant | {label: text for label, text in keys.items() if text is not None} for keys in each]


def _ranges(
    ids: NDArray[np.intp], series: int, ends: Instants, moments: Instants, reach: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the rows of each series that ended in ``(t - reach, t]`` for each moment: ``[first, last)``, flat.

    Rows are in order of series and end.
    """
    edges = np.unique(ends)
    places = ids * (len(edges) + 1) + np.searchsorted(edges, ends)
    begin = (np.arange(series) * (len(edges) + 1))[:, None]
    low, high = (np.searchsorted(edges, at, "right")[None, :] for at in (moments - reach, moments))
    first, last = (np.searchsorted(places, (begin + at).ravel()) for at in (low, high))
    return first, last
