"""Metrics: what measures of stores are called in PromQL, and how each adds up.

count() as requests         requests_total                    a counter
sum, min, max, avg, …       bytes                             a gauge, by the measure's name
dds, hdr as latency         latency                           a histogram, and of its quantiles a summary
                            latency_count, latency_sum, …     its other parts
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from aggr import Measure
from aggr.function import Function
from aggr.tables.flat_results import leaves
from tiltframe.store import FrameStore

STORE, QUANTILE, NAME = "store", "quantile", "__name__"
SUM, MIN, MAX, AVG, LAST, GAUGE, HISTOGRAM = "sum", "min", "max", "avg", "last", "gauge", "histogram"
_KINDS = {  # by function, and by part of a histogram's result
    **{"count": SUM, "sum": SUM, "sum_of_squares": SUM, "min": MIN, "max": MAX, "avg": AVG, "mean": AVG, "last": LAST},
}


@dataclass(frozen=True)
class Metric:
    """What can be selected by a name.

    Parameters
    ----------
    name : str
        A legal name of PromQL.
    store_name : str
        The value of the label ``store``.
    store : FrameStore
    measure : str
        Of the store's frame.
    path : names
        Of the fields that lead to its values in the measure's results.
    kind : str
        Which aggregation of values is a merge of states: sum, min, max, avg, last; ``gauge`` if none is; ``histogram``.
    counter : bool
        Whether it counts.
    labels : label -> key
        Of the store's frame.
    """

    name: str
    store_name: str
    store: FrameStore
    measure: str
    path: tuple[str, ...]
    kind: str
    counter: bool
    labels: Mapping[str, str]

    @property
    def read_by(self) -> Measure:
        """The measure, whose function reads results."""
        return self.store.frame.measures[self.measure]

    @property
    def state(self) -> tuple[str, Function]:
        """The column of states, and the function that merges it."""
        frame = self.store.frame
        name = frame.state_of(self.measure)
        return name, next(column.measure.function for column in frame.states if column.name == name)

    @property
    def described(self) -> dict[str, str]:
        """What ``/api/v1/metadata`` says of it."""
        kind = "counter" if self.counter else "histogram" if self.kind == HISTOGRAM else "gauge"
        return {"type": kind, "help": f"{self.read_by!r} of each window of {self.store_name}", "unit": ""}


def metrics_of(stores: Mapping[str, FrameStore]) -> dict[str, list[Metric]]:
    """Name the metrics of stores, each with those stores that have it.

    Raises ``ValueError`` if two measures, or two keys, of one store have the same legal name.

    >>> legal("2xx rate"), label_of("route.id"), label_of("store")
    ('_2xx_rate', 'route_id', 'exported_store')
    """
    by_name: dict[str, list[Metric]] = {}
    for store_name, store in stores.items():
        labels = _once({key: label_of(key) for key in store.frame.keys}, store_name, "keys")
        found = list(_metrics(store_name, store, {label: key for key, label in labels.items()}))
        _once({f"{m.measure}.{'.'.join(m.path)}".rstrip("."): m.name for m in found}, store_name, "measures")
        for metric in found:
            by_name.setdefault(metric.name, []).append(metric)
    return by_name


def legal(name: str) -> str:
    """Write a name with ``_`` in the place of what PromQL has not in names."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    return f"_{name}" if name[:1].isdigit() else name


def label_of(key: str) -> str:
    """Name the label of a key; one that the server has itself is ``exported_``, as Prometheus has it."""
    label = legal(key)
    return f"exported_{label}" if label in (STORE, QUANTILE, NAME) else label


def _metrics(store_name: str, store: FrameStore, labels: Mapping[str, str]) -> Iterator[Metric]:
    for measure in store.frame.measures:
        function, state = store.frame.measures[measure].function, store.frame.state_of(measure)
        result = function.result_type(store.manifest.schema.field(state).type)

        def metric(
            name: str,
            path: Iterable[str],
            kind: str,
            measure: str = measure,
            counts: bool = function.name == "count",
        ) -> Metric:
            return Metric(legal(name), store_name, store, measure, tuple(path), kind, counts, labels)

        if "quantile" in function.accessors:
            yield metric(measure, (), HISTOGRAM)
            for path, name, _ in leaves(measure, result):
                if len(path) == 1:
                    yield metric(name, path, _KINDS.get(path[0], GAUGE), counts=path[0] == "count")
        elif _is_number(result):
            counts = function.name == "count"
            name = f"{measure}_total" if counts and not measure.endswith("_total") else measure
            yield metric(name, (), _KINDS.get(function.name, GAUGE))


def _is_number(dtype: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(test(dtype) for test in tests)


def _once(names: dict[str, str], store: str, what: str) -> dict[str, str]:
    """Refuse two names that become one."""
    taken: dict[str, str] = {}
    for name, written in names.items():
        if written in taken:
            raise ValueError(
                f"the {what} {taken[written]!r} and {name!r} of the store {store!r} would both be called {written} in "
                "PromQL; give one of them another name"
            )
        taken[written] = name
    return names
