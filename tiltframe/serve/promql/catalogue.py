"""The catalogue: lists of the series, the labels and the values of labels in the stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from promql_parser import VectorSelector

from aggr.extend.arguments import quantile_label, shown
from aggr.extend.columns import one_array
from aggr.extend.tables import leaves
from tiltframe import TiltFrame
from tiltframe.extend import as_text
from tiltframe.serve.cost import Budget
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.errors import BadData
from tiltframe.serve.promql.classic_buckets import LE
from tiltframe.serve.promql.kinds import BUCKETS, HISTOGRAM, merge_of
from tiltframe.serve.promql.metrics import (
    NAME,
    QUANTILE,
    STORE,
    Matcher,
    Metric,
    matching_rows,
    metrics_by_name,
)
from tiltframe.serve.promql.parse import read_expression
from tiltframe.serve.promql.select import label_columns, sql_condition
from tiltframe.store import Query, StoreView

MetricsByName = dict[str, list[Metric]]
SelectedMetric = tuple[Metric, tuple[Matcher, ...]]


@dataclass(frozen=True)
class Listing:
    """The time range in which series are listed, with the budget and the deadline of the request. The range includes
    its start and its end.
    """

    # ``start`` and ``end`` are in microseconds UTC; None means that the range has no limit on this side
    start: int | None
    end: int | None
    budget: Budget
    deadline: Deadline


def series_of(metrics: MetricsByName, matches: Iterable[str], listing: Listing) -> list[dict[str, str]]:
    """Return the labels of each series that matches at least one of the selectors ``matches``, and has a value in the
    range of ``listing``.
    """
    series = []
    for metrics_of_store, matchers in _by_store(_selected(metrics, matches)):
        labels = tuple(metrics_of_store[0].labels)
        for metric, labels_of_metric in _label_sets(metrics_of_store, matchers, labels, listing):
            own_labels = {NAME: metric.name, STORE: metric.store_name}
            bucket_labels = [{LE: text} for text in metric.bounds] if metric.kind == BUCKETS else [{}]
            series += [
                own_labels | key_labels | bucket_label
                for key_labels in labels_of_metric
                for bucket_label in bucket_labels
            ]
    return [dict(labels) for labels in dict.fromkeys(tuple(one_series.items()) for one_series in series)]


def label_names(metrics: MetricsByName, matches: list[str], listing: Listing) -> list[str]:
    """Return the sorted names of the labels of the series that match a selector in ``matches``, or of all series if
    ``matches`` is empty.
    """
    if matches:
        return sorted({label for labels in series_of(metrics, matches, listing) for label in labels})
    all_metrics = [metric for metrics_of_name in metrics.values() for metric in metrics_of_name]
    label_by_kind = {HISTOGRAM: QUANTILE, BUCKETS: LE}
    own_labels = {label_by_kind[metric.kind] for metric in all_metrics if metric.kind in label_by_kind}
    return sorted({NAME, STORE, *own_labels, *(label for metric in all_metrics for label in metric.labels)})


def label_values(metrics: MetricsByName, label: str, matches: list[str], listing: Listing) -> list[str]:
    """Return the sorted values of a label in the series that match a selector in ``matches``, or in all rows if
    ``matches`` is empty.
    """
    all_metrics: list[SelectedMetric] = [
        (metric, ()) for metrics_of_name in metrics.values() for metric in metrics_of_name
    ]
    selected = list(_selected(metrics, matches)) if matches else all_metrics
    if label in (NAME, STORE) and not matches:
        return sorted({metric.name if label == NAME else metric.store_name for metric, _ in selected})
    if label in (NAME, STORE):
        return sorted({labels[label] for labels in series_of(metrics, matches, listing)})
    if label == QUANTILE:
        histograms = [vars(metric.result_function)["quantiles"] for metric, _ in selected if metric.kind == HISTOGRAM]
        return [quantile_label(q) for q in sorted({q for quantiles in histograms for q in quantiles})]
    if label == LE:
        bounds = {text: bound for metric, _ in selected for text, bound in metric.bounds.items()}
        return sorted(bounds, key=lambda text: bounds[text])
    with_label = [(metric, matchers) for metric, matchers in selected if label in metric.labels]
    label_sets = [
        labels
        for metrics_of_store, matchers in _by_store(with_label)
        for _, labels_of_metric in _label_sets(
            metrics_of_store, matchers, (label,), listing, includes_null_values=not matches
        )
        for labels in labels_of_metric
    ]
    return sorted({labels[label] for labels in label_sets if label in labels})


def columns_in_promql(name: str, view: StoreView, measure: str) -> dict[str, dict[str, Any]]:
    """Return, for each column of the flattened results of a measure, the parts of a PromQL expression that computes
    this column: ``aggregation by (keys) (function(metric[range]))``.

    The result maps each column to a dict. The member ``promql`` of this dict has the names of the metric, the function
    and the aggregation. For a quantile, the dict also has the member ``quantile``, because ``histogram_quantile`` must
    be applied to the expression. ``promql`` is missing for a column that PromQL cannot compute by merging states. The
    result is empty if the measure is an expression over results.
    """
    if measure in view.frame.expressions:
        return {}
    metrics = {
        metric.path: metric
        for metrics_of_name in metrics_by_name({name: view}).values()
        for metric in metrics_of_name
        if metric.measure == measure and metric.kind != BUCKETS
    }
    function = view.frame.measures[measure].function
    result = function.result_type(view.manifest.schema.field(view.frame.state_of(measure)).type)
    columns: dict[str, dict[str, Any]] = {}
    for path, column, _ in leaves(measure, result):
        is_quantile = path[:1] == ["quantiles"]
        columns[column] = {"quantile": float(path[1])} if is_quantile else {}
        metric = metrics.get(() if is_quantile else tuple(path))
        merge = None if metric is None else merge_of(metric.kind)
        if metric is not None and merge is not None:
            function_name, aggregation = merge
            columns[column]["promql"] = {"metric": metric.name, "function": function_name, "aggregation": aggregation}
    return columns


def _selected(metrics: MetricsByName, matches: Iterable[str]) -> Iterator[SelectedMetric]:
    """Yield the metrics that match the selectors ``matches``, each with the matchers that apply to its keys."""
    for text in matches:
        node = read_expression(text)
        if not isinstance(node, VectorSelector):
            raise BadData(f'match[] must be a selector, such as requests_total{{host=~"a|b"}}; got {shown(text)}')
        matchers = [Matcher.of(matcher) for matcher in node.matchers.matchers]
        if node.name is not None:
            matchers.append(Matcher(NAME, node.name, regex=False, negated=False))
        yield from (
            m.with_matchers(matchers)
            for metrics_of_name in metrics.values()
            for m in metrics_of_name
            if m.matches_name_and_store(matchers)
        )


def _by_store(selected: Iterable[SelectedMetric]) -> list[tuple[list[Metric], tuple[Matcher, ...]]]:
    """Return the metrics in groups that are read together: metrics of the same store with the same matchers."""
    by_store: dict[tuple[str, tuple[Matcher, ...]], list[Metric]] = {}
    for metric, matchers in selected:
        by_store.setdefault((metric.store_name, matchers), []).append(metric)
    return [(metrics, matchers) for (_, matchers), metrics in by_store.items()]


def _label_sets(
    metrics: list[Metric],
    matchers: tuple[Matcher, ...],
    labels: tuple[str, ...],
    listing: Listing,
    *,
    includes_null_values: bool = False,
) -> Iterator[tuple[Metric, list[dict[str, str]]]]:
    """Yield each metric with a list of dicts, which map labels to their values. The list has the distinct combinations
    of the values of ``labels``. The values are read from the windows of the coarsest level that overlap the range of
    ``listing``. All ``metrics`` must belong to one store.

    Windows in which the metric has no value are ignored, unless ``includes_null_values`` is true.
    """
    view = metrics[0].view
    read_values = [] if includes_null_values else [metric for metric in metrics if metric.may_be_null]
    labels_read = {*labels, *(matcher.label for matcher in matchers)}
    keys = [key for label, key in metrics[0].labels.items() if label in labels_read]
    query = Query(
        per=view.frame.levels[-1],
        within=_range_text(view.frame, listing),
        where=sql_condition(matchers, metrics[0]),
        measures=list(dict.fromkeys(metric.measure for metric in read_values)) or None,
        keys=keys,
    )
    answer = view.states(query) if read_values else view.windows(query)
    listing.budget.spend(metrics[0].store_name, answer.cost)
    keys_of_metric: dict[str, list[pa.Table]] = {metric.name: [] for metric in metrics}
    for states in listing.deadline.check_each(answer.slices):
        texts = label_columns(states, metrics[0])
        matching = matching_rows(texts, matchers, states.num_rows)
        columns = pa.table({label: texts[label] for label in labels}) if labels else states.select([])
        for metric in metrics:
            mask = matching
            if metric in read_values:
                mask = matching & metric.has_value(one_array(states.column(metric.state[0])))
            keys_of_metric[metric.name].append(_distinct(columns, mask, labels))
    for metric in metrics:
        tables = pa.concat_tables(keys_of_metric[metric.name])
        rows = _distinct(tables, np.ones(tables.num_rows, np.bool_), labels).to_pylist() if labels else []
        yield metric, [{label: text for label, text in row.items() if text is not None} for row in rows]


def _range_text(frame: TiltFrame, listing: Listing) -> str | None:
    """Return the time range of ``listing`` as text for `Query`. The start of the range is replaced by the start of the
    window of the coarsest level in which the range begins. Return None if the range has no limits.
    """
    start = listing.start
    if start is not None:
        start = int(frame.levels[-1].starts(np.array([start]))[0])
    end = None if listing.end is None else listing.end + 1
    text = ",".join("" if at is None else as_text(at) for at in (start, end))
    return text if text != "," else None


def _distinct(columns: pa.Table, mask: NDArray[np.bool_], labels: tuple[str, ...]) -> pa.Table:
    """Return the distinct rows of ``columns`` for which ``mask`` is true, sorted by the labels."""
    if not labels:
        return columns
    rows = columns.filter(pa.array(mask)).group_by(list(labels)).aggregate([])
    return rows.sort_by([(label, "ascending") for label in labels])
