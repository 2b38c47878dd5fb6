"""The catalogue: which series, labels and values there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from promql_parser import VectorSelector

from aggr.arguments import shown
from aggr.asked_quantiles import label as quantile_label
from aggr.tables.flat_results import leaves
from tiltframe.serve.cost import Budget
from tiltframe.serve.errors import BadData
from tiltframe.serve.promql.metrics import (
    AVG,
    HISTOGRAM,
    MAX,
    MIN,
    NAME,
    QUANTILE,
    STORE,
    SUM,
    Matcher,
    Metric,
    chosen,
    metrics_of,
)
from tiltframe.serve.promql.parse import read_expression
from tiltframe.serve.promql.select import label_columns, narrowing
from tiltframe.store import FrameStore, Query
from tiltframe.store.backends.protocol import Snapshot
from tiltframe.store.query.execution import read
from tiltframe.store.query.plan import plan_query
from tiltframe.store.ranges import as_text

Metrics = dict[str, list[Metric]]
Within = tuple[int | None, int | None]
Selected = tuple[Metric, tuple[Matcher, ...]]

# kind of metric -> the function of a range, and the aggregation, that both merge its states
_MERGED_BY = {kind: (f"{kind}_over_time", kind) for kind in (MIN, MAX, AVG)}
_MERGED_BY |= dict.fromkeys((SUM, HISTOGRAM), ("increase", "sum"))


def series_of(metrics: Metrics, matches: Iterable[str], within: Within, budget: Budget) -> list[dict[str, str]]:
    """List the labels of the series that any of some selectors choose."""
    read_already: dict[tuple[str, tuple[Matcher, ...]], list[dict[str, str]]] = {}
    series = []
    for metric, matchers in _selected(metrics, matches):
        place = metric.store_name, matchers
        if place not in read_already:
            read_already[place] = _keys(metric, matchers, tuple(metric.labels), within, budget)
        own = {NAME: metric.name, STORE: metric.store_name}
        series += [own | labels for labels in read_already[place]]
    return [dict(labels) for labels in dict.fromkeys(tuple(each.items()) for each in series)]


def label_names(metrics: Metrics, matches: list[str], within: Within, budget: Budget) -> list[str]:
    """List the names of labels: of what selectors choose, or all."""
    if matches:
        return sorted({label for labels in series_of(metrics, matches, within, budget) for label in labels})
    every = [metric for each in metrics.values() for metric in each]
    summaries = {QUANTILE for metric in every if metric.kind == HISTOGRAM}
    return sorted({NAME, STORE, *summaries, *(label for metric in every for label in metric.labels)})


def label_values(metrics: Metrics, label: str, matches: list[str], within: Within, budget: Budget) -> list[str]:
    """List the values of a label: in what selectors choose, or in all."""
    every: list[Selected] = [(metric, ()) for each in metrics.values() for metric in each]
    selected = list(_selected(metrics, matches)) if matches else every
    if label in (NAME, STORE) and not matches:
        return sorted({metric.name if label == NAME else metric.store_name for metric, _ in selected})
    if label in (NAME, STORE):
        return sorted({labels[label] for labels in series_of(metrics, matches, within, budget)})
    if label == QUANTILE:
        histograms = [metric.reader.parameters()["quantiles"] for metric, _ in selected if metric.kind == HISTOGRAM]
        return [quantile_label(q) for q in sorted({q for quantiles in histograms for q in quantiles})]
    places = {(m.store_name, matchers): m for m, matchers in selected if label in m.labels}
    keys = [
        each for (_, matchers), metric in places.items() for each in _keys(metric, matchers, (label,), within, budget)
    ]
    return sorted({labels[label] for labels in keys if label in labels})


def columns_in_promql(name: str, store: FrameStore, snapshot: Snapshot, measure: str) -> dict[str, dict[str, Any]]:
    """Say of the plain columns of a measure how PromQL reads them: ``aggregation by (keys) (function(metric[range]))``.

    A column that is a quantile has it, and is ``histogram_quantile`` of that. One that is no merge of states in PromQL
    has nothing of it.
    """
    metrics = {
        each.path: each
        for named in metrics_of({name: (store, snapshot)}).values()
        for each in named
        if each.measure == measure
    }
    function = store.frame.measures[measure].function
    result = function.result_type(store.manifest.schema.field(store.frame.state_of(measure)).type)
    columns: dict[str, dict[str, Any]] = {}
    for path, column, _ in leaves(measure, result):
        is_quantile = path[:1] == ["quantiles"]
        columns[column] = {"quantile": float(path[1])} if is_quantile else {}
        metric = metrics.get(() if is_quantile else tuple(path))
        if metric is not None and metric.kind in _MERGED_BY:
            function_name, aggregation = _MERGED_BY[metric.kind]
            columns[column]["promql"] = {"metric": metric.name, "function": function_name, "aggregation": aggregation}
    return columns


def _selected(metrics: Metrics, matches: Iterable[str]) -> Iterator[Selected]:
    """Find the metrics that selectors choose, each with the matchers on its keys."""
    for text in matches:
        node = read_expression(text)
        if not isinstance(node, VectorSelector):
            raise BadData(f'match[] must be a selector, such as requests_total{{host=~"a|b"}}; got {shown(text)}')
        matchers = [Matcher.of(matcher) for matcher in node.matchers.matchers]
        if node.name is not None:
            matchers.append(Matcher(NAME, node.name, regex=False, negated=False))
        on_keys = tuple(matcher for matcher in matchers if matcher.label not in (NAME, STORE))
        yield from ((m, on_keys) for each in metrics.values() for m in each if m.is_chosen(matchers))


def _keys(
    metric: Metric, matchers: tuple[Matcher, ...], labels: tuple[str, ...], within: Within, budget: Budget
) -> list[dict[str, str]]:
    """List what the keys of a store are together, of windows of the coarsest level that overlap a range."""
    frame, (start, end) = metric.store.frame, within
    level = frame.levels[-1]
    if start is not None:
        start = int(level.starts(np.array([start]))[0])  # of the window that it lies in
    ends = ",".join("" if at is None else as_text(at) for at in (start, None if end is None else end + 1))
    wanted = {*labels, *(matcher.label for matcher in matchers)}
    keys = [key for label, key in metric.labels.items() if label in wanted]
    query = Query(level, ends if ends != "," else None, narrowing(matchers, metric), keys=keys)
    plan = replace(plan_query(frame, query), measures={})
    budget.spend(metric.store_name, [plan], metric.snapshot)
    rows = pa.concat_tables(read(metric.store.backend, metric.store.manifest, plan, metric.snapshot)[0])
    texts = label_columns(rows, metric)
    mask = chosen(texts, matchers, rows.num_rows)
    if not labels:
        return [{}] if mask.any() else []
    columns = pa.table({label: texts[label] for label in labels}).filter(pa.array(mask))
    each = columns.group_by(list(labels)).aggregate([]).sort_by([(label, "ascending") for label in labels])
    return [{label: text for label, text in row.items() if text is not None} for row in each.to_pylist()]
