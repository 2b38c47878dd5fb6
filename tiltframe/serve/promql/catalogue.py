"""The catalogue: which series, labels and values there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from promql_parser import VectorSelector

from tiltframe.serve.promql.errors import BadData
from tiltframe.serve.promql.labels import Matcher, chosen, identity, label_texts, narrowing
from tiltframe.serve.promql.metrics import HISTOGRAM, NAME, QUANTILE, STORE, Metric
from tiltframe.serve.promql.parse import read_expression
from tiltframe.store import Query
from tiltframe.store.query.execution import read
from tiltframe.store.query.plan import plan_query
from tiltframe.store.ranges import as_text

Metrics = dict[str, list[Metric]]
Within = tuple[int | None, int | None]


def series_of(metrics: Metrics, matches: Iterable[str], within: Within) -> list[dict[str, str]]:
    """List the labels of the series that any of some selectors choose."""
    found: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for metric, matchers in _selected(metrics, matches):
        constant = {NAME: metric.name, STORE: metric.store_name}
        for labels in _keys(metric, matchers, tuple(metric.labels), within):
            found.setdefault(identity(constant | labels), constant | labels)
    return list(found.values())


def label_names(metrics: Metrics, matches: list[str], within: Within) -> list[str]:
    """List the names of labels: of what selectors choose, or all."""
    if matches:
        return sorted({label for labels in series_of(metrics, matches, within) for label in labels})
    found = {label for each in metrics.values() for metric in each for label in metric.labels}
    summaries = {QUANTILE for each in metrics.values() for metric in each if metric.kind == HISTOGRAM}
    return sorted({NAME, STORE, *found, *summaries})


def label_values(metrics: Metrics, label: str, matches: list[str], within: Within) -> list[str]:
    """List the values of a label: in what selectors choose, or in all."""
    chosen_metrics = list(_selected(metrics, matches)) if matches else [(m, ()) for ms in metrics.values() for m in ms]
    if label in (NAME, STORE):
        if matches:
            return sorted({labels[label] for labels in series_of(metrics, matches, within)})
        return sorted({metric.name if label == NAME else metric.store_name for metric, _ in chosen_metrics})
    if label == QUANTILE:
        histograms = [metric for metric, _ in chosen_metrics if metric.kind == HISTOGRAM]
        asked = {q for metric in histograms for q in metric.read_by.function.parameters()["quantiles"]}
        return [repr(q).removesuffix(".0") for q in sorted(asked)]
    found: set[str] = set()
    read_already = set()
    for metric, matchers in chosen_metrics:
        if label in metric.labels and (metric.store_name, matchers) not in read_already:
            read_already.add((metric.store_name, matchers))
            found |= {labels[label] for labels in _keys(metric, matchers, (label,), within) if label in labels}
    return sorted(found)


def _selected(metrics: Metrics, matches: Iterable[str]) -> Iterator[tuple[Metric, tuple[Matcher, ...]]]:
    """Find the metrics that selectors choose, each with the matchers on its keys."""
    for text in matches:
        node = read_expression(text)
        if not isinstance(node, VectorSelector):
            raise BadData(f"match[] must be a selector, such as requests_total{{host=~'a|b'}}; got {text[:80]!r}")
        matchers = tuple(Matcher.of(matcher) for matcher in node.matchers.matchers)
        if node.name is not None:
            matchers += (Matcher(NAME, node.name, False, False),)
        for each in metrics.values():
            for metric in each:
                own = {NAME: metric.name, STORE: metric.store_name}
                if all(m.takes(own[m.label]) for m in matchers if m.label in own):
                    yield metric, tuple(m for m in matchers if m.label not in own)


def _keys(
    metric: Metric, matchers: tuple[Matcher, ...], labels: tuple[str, ...], within: Within
) -> list[dict[str, str]]:
    """List what the keys of a store are together, of windows of the coarsest level that overlap a range."""
    store, level = metric.store, metric.store.frame.levels[-1]
    start, end = within
    if start is not None:
        start = int(level.starts(np.array([start]))[0])  # of the window that it lies in
    texts = ["" if at is None else as_text(at) for at in (start, None if end is None else end + 1)]
    read_labels = [label for label in metric.labels if label in labels or any(m.label == label for m in matchers)]
    query = Query(
        per=level,
        within=",".join(texts) if any(texts) else None,
        where=narrowing(matchers, metric),
        keys=[metric.labels[label] for label in read_labels],
    )
    plan = replace(plan_query(store.frame, query), measures={})
    rows = pa.concat_tables(read(store.backend, store.manifest, plan)[0])
    columns = {label: label_texts(rows.column(metric.labels[label])) for label in read_labels}
    mask = chosen(columns, matchers, rows.num_rows)
    if not labels:
        return [{}] if mask.any() else []
    kept = (
        pa.table({label: columns[label] for label in labels})
        .filter(pa.array(mask))
        .group_by(list(labels))
        .aggregate([])
    )
    series = kept.sort_by([(label, "ascending") for label in labels]).to_pylist()
    return [{label: text for label, text in each.items() if text is not None} for each in series]
