"""Metrics: what measures of stores are called in PromQL, and how each adds up.

count() as requests         requests_total                    a counter
sum, min, max, avg, …       bytes                             a gauge, by the measure's name
dds, hdr as latency         latency                           a histogram, and of its quantiles a summary
                            latency_count, latency_sum, …     its other parts
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from aggr.function import Function
from aggr.tables.flat_results import leaves
from tiltframe.serve.promql.labels import NAME, Matcher
from tiltframe.store import FrameStore
from tiltframe.store.backends.protocol import Snapshot
from tiltframe.store.recorded import snapshot_of

STORE, QUANTILE = "store", "quantile"
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
SUM, MIN, MAX, AVG, LAST, GAUGE, HISTOGRAM = "sum", "min", "max", "avg", "last", "gauge", "histogram"
_COUNT = "count"
_KINDS = {_COUNT: SUM, "sum": SUM, "sum_of_squares": SUM, "min": MIN, "max": MAX, "avg": AVG, "mean": AVG, "last": LAST}


@dataclass(frozen=True)
class Metric:
    """What can be selected by a name."""

    name: str  # a legal name of PromQL
    store_name: str  # the value of the label ``store``
    store: FrameStore
    snapshot: Snapshot  # as of which the store is read
    measure: str  # of the store's frame
    path: tuple[str, ...]  # of the fields that lead to its values in the measure's results
    kind: str  # which aggregation of values is a merge of states: sum, min, max, avg, last, or ``gauge``; ``histogram``
    labels: Mapping[str, str]  # label -> key of the store's frame

    @property
    def reader(self) -> Function:
        """The function that reads results of states."""
        return self.store.frame.measures[self.measure].function

    @property
    def state(self) -> tuple[str, Function]:
        """The column of states, and the function that merges it."""
        frame = self.store.frame
        name = frame.state_of(self.measure)
        return name, next(column.measure.function for column in frame.states if column.name == name)

    @property
    def is_counter(self) -> bool:
        """Whether it counts rows."""
        return _COUNT in (self.reader.name, *self.path)

    @property
    def described(self) -> dict[str, str]:
        """What ``/api/v1/metadata`` says of it."""
        kind = "counter" if self.is_counter else HISTOGRAM if self.kind == HISTOGRAM else GAUGE
        measure = self.store.frame.measures[self.measure]
        return {"type": kind, "help": f"{measure!r} of each window of {self.store_name}", "unit": ""}

    def is_chosen(self, matchers: Iterable[Matcher]) -> bool:
        """Say whether its name and its store match."""
        own = {NAME: self.name, STORE: self.store_name}
        return all(matcher.takes(own[matcher.label]) for matcher in matchers if matcher.label in own)


def metrics_of(stores: Mapping[str, tuple[FrameStore, Snapshot]]) -> dict[str, list[Metric]]:
    """Name the metrics of stores, each with those stores that have it.

    Raises ``ValueError`` if two measures, or two keys, of one store have the same legal name.
    """
    by_name: dict[str, list[Metric]] = {}
    for store_name, (store, snapshot) in stores.items():
        for metric in _of_store(store_name, store):
            by_name.setdefault(metric.name, []).append(replace(metric, snapshot=snapshot))
    return by_name


@lru_cache(maxsize=64)  # a store that evolves is opened anew
def _of_store(store_name: str, store: FrameStore) -> tuple[Metric, ...]:
    labels = _once([(key, label_of(key)) for key in store.frame.keys], store_name, "keys")
    metrics = tuple(_metrics(store_name, store, labels))
    _once([(".".join((metric.measure, *metric.path)), metric.name) for metric in metrics], store_name, "measures")
    return metrics


def legal(name: str) -> str:
    """Write a name with ``_`` in the place of what PromQL does not have in names.

    >>> legal("2xx rate")
    '_2xx_rate'
    """
    return re.sub(r"^(?=[0-9])|[^a-zA-Z0-9_]", "_", name)


def label_of(key: str) -> str:
    """Name the label of a key; one that the server has itself is ``exported_``, as Prometheus has it.

    >>> label_of("route.id"), label_of("store")
    ('route_id', 'exported_store')
    """
    label = legal(key)
    return f"exported_{label}" if label in (STORE, QUANTILE, NAME) else label


def _metrics(store_name: str, store: FrameStore, labels: Mapping[str, str]) -> Iterator[Metric]:
    snapshot = snapshot_of(store.backend)  # each request has its own in place of it
    for measure, function in ((name, each.function) for name, each in store.frame.measures.items()):
        result = function.result_type(store.manifest.schema.field(store.frame.state_of(measure)).type)
        is_histogram = "quantile" in function.accessors
        if is_histogram:
            yield Metric(legal(measure), store_name, store, snapshot, measure, (), HISTOGRAM, labels)
        for path, name, dtype in leaves(measure, result):
            if len(path) > 1 or not any(is_of(dtype) for is_of in _NUMBERS):
                continue  # a quantile, which is the summary's, or no number
            adds_up = path[0] if is_histogram else "" if path else function.name
            ending = "_total" if adds_up == _COUNT and not path and not measure.endswith("_total") else ""
            kind = _KINDS.get(adds_up, GAUGE)
            yield Metric(legal(name + ending), store_name, store, snapshot, measure, tuple(path), kind, labels)


def _once(names: Iterable[tuple[str, str]], store: str, what: str) -> dict[str, str]:
    """Find names by what they are called; raises ``ValueError`` if two are called the same."""
    by_written: dict[str, str] = {}
    for name, written in names:
        if written in by_written:
            raise ValueError(
                f"the {what} {by_written[written]!r} and {name!r} of the store {store!r} would both be called "
                f"{written} in PromQL; give one of them another name"
            )
        by_written[written] = name
    return by_written
