"""Labels and metrics: keys as label texts, matchers, the PromQL names of measures, and how each measure is aggregated.

count() as requests         requests_total                    a counter
sum, min, max, avg, …       bytes                             a gauge, by the measure's name
dds, hdr as latency         latency                           a histogram, or its quantiles as a summary
                            latency_bucket                    counters of the rows up to each bound
                            latency_count, latency_sum, …     the other parts of the histogram
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import compress

import numpy as np
import promql_parser
import pyarrow as pa
from numpy.typing import NDArray

from aggr import Hdr
from aggr.contrib import Histogram
from aggr.extend import Function
from aggr.extend.arguments import shown
from aggr.extend.columns import compute as pc
from aggr.extend.columns import normalize
from aggr.extend.histograms import SignedSketch
from aggr.extend.tables import leaves
from aggr.sql.regular_expressions import check_size, plain_texts
from aggr.state_checks import mark_as_checked
from tiltframe.extend import iso_times, json_value
from tiltframe.serve.errors import BadData
from tiltframe.serve.promql.classic_buckets import (
    DEFAULT_BOUNDS,
    LE,
    Bounds,
    BucketBounds,
    is_sketch,
    missing_part,
    more_bounds,
)
from tiltframe.store import Manifest, StoreView

Labels = Mapping[str, str]

NAME = "__name__"

_EQUAL, _UNEQUAL = promql_parser.MatchOp.Equal, promql_parser.MatchOp.NotEqual
_PLAIN = re.compile(r"[\w .:/@-]+", re.ASCII)  # characters that need no escape in SQL; only the point needs one in RE2
STORE, QUANTILE = "store", "quantile"
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
SUM, MIN, MAX, AVG, LAST, GAUGE = "sum", "min", "max", "avg", "last", "gauge"
HISTOGRAM, BUCKETS = "histogram", "buckets"
_COUNT = "count"
_KINDS = {_COUNT: SUM, "sum": SUM, "sum_of_squares": SUM, "min": MIN, "max": MAX, "avg": AVG, "mean": AVG, "last": LAST}


@dataclass(frozen=True)
class Matcher:
    """A condition on a label: ``=`` or ``!=`` with a text, ``=~`` or ``!~`` with an RE2 expression that must match the
    complete text.
    """

    label: str
    text: str
    regex: bool
    negated: bool

    @classmethod
    def of(cls, matcher: promql_parser.Matcher) -> Matcher:
        """Convert a matcher of the package promql_parser."""
        regex = matcher.op not in (_EQUAL, _UNEQUAL)
        negated = matcher.op in (_UNEQUAL, promql_parser.MatchOp.NotRe)
        return cls(matcher.name, matcher.value, regex, negated)

    def matches(self, texts: pa.Array) -> NDArray[np.bool_]:
        """Return a mask of the texts that match. Null, an absent label, counts as the empty text. Raise `BadData` for
        an invalid regular expression.
        """
        texts = pc.fill_null(texts, "")
        if not self.regex:
            matching = pc.equal(texts, self.text)
        elif (choices := plain_texts(self.text)) is not None:
            matching = pc.is_in(texts, pa.array(choices, pa.string()))
        else:
            try:
                check_size(self.text)
                matching = pc.match_substring_regex(texts, rf"\A(?:{self.text})\z")
            except pa.ArrowInvalid as error:  # the error is also a ValueError
                problem = str(error).removeprefix("Invalid regular expression: ").split(":")[0]
                raise BadData(f"the regular expression {shown(self.text)} is not valid in RE2: {problem}") from None
            except ValueError as error:
                raise BadData(str(error)) from None
        mask: NDArray[np.bool_] = matching.to_numpy(zero_copy_only=False) ^ self.negated
        return mask

    def takes(self, text: str) -> bool:
        """Return whether one text matches."""
        return bool(self.matches(pa.array([text]))[0])

    @property
    def choices(self) -> list[str]:
        """The text of ``=``, or the alternatives of ``a|b`` without escapes, which need not match."""
        return self.text.strip("()").replace("\\.", ".").split("|") if self.regex else [self.text]

    def condition(self, key: str) -> str | None:
        """Return the matcher as SQL on a text key, so that stores can skip files, or None if it has no simple SQL
        form.
        """
        grouped = self.regex and self.text.startswith("(") and self.text.endswith(")")
        choice = self.text[1:-1] if grouped else self.text
        texts = choice.split("|") if self.regex else [choice]
        if self.negated or not all(_PLAIN.fullmatch(text) for text in texts) or (self.regex and "." in choice):
            return None
        quoted = ", ".join(f"'{text}'" for text in texts)
        return f"`{key.replace('`', '``')}` IN ({quoted})"


@dataclass(frozen=True)
class Grouping:
    """The labels that an aggregation keeps: ``by`` (only these labels) or ``without`` (all labels but these)."""

    labels: tuple[str, ...] = ()
    without: bool = False

    def keeps(self, label: str) -> bool:
        """Return whether a label is kept."""
        return (label in self.labels) != self.without and not (self.without and label == NAME)

    def kept_labels(self, labels: Labels) -> dict[str, str]:
        """Return the labels that are kept."""
        return {label: text for label, text in labels.items() if self.keeps(label)}

    def groups(self, series: Sequence[Labels]) -> tuple[NDArray[np.intp], list[dict[str, str]]]:
        """Return the group number of each series and the labels of each group. Groups are numbered in the order of
        their first series.
        """
        numbers: dict[tuple[tuple[str, str], ...], int] = {}
        ids = [numbers.setdefault(identity(self.kept_labels(labels)), len(numbers)) for labels in series]
        return np.array(ids, np.intp), [dict(labels) for labels in numbers]


ALL = Grouping(without=True)  # every label except the name, which functions drop


def identity(labels: Labels) -> tuple[tuple[str, str], ...]:
    """Return labels as a hashable key for a dict."""
    return tuple(sorted(labels.items()))


def labels_text(labels: tuple[tuple[str, str], ...]) -> str:
    """Return labels as text, for a message.

    >>> labels_text((("host", "a"),))
    '{host="a"}'
    """
    return "{" + ", ".join(f'{name}="{text}"' for name, text in labels)[:100] + "}"


def label_texts(column: pa.ChunkedArray) -> pa.Array:
    """Return keys as label texts. Null and the empty text become absent labels.

    >>> label_texts(pa.chunked_array([[1, None]])).to_pylist(), label_texts(pa.chunked_array([["", "a"]])).to_pylist()
    (['1', None], [None, 'a'])
    """
    keys = normalize(column)
    if not pa.types.is_string(keys.type):
        encoded = pc.dictionary_encode(keys)
        texts = iso_times(encoded.dictionary) if pa.types.is_timestamp(keys.type) else encoded.dictionary
        written = pa.array([text if isinstance(text, str) else _text(text) for text in texts.to_pylist()], pa.string())
        keys = written.take(encoded.indices)
    return pc.if_else(pc.equal(keys, ""), pa.scalar(None, pa.string()), keys)


def _text(key: object) -> str:
    text = json_value(key)
    return str(text).lower() if isinstance(text, bool) else str(text)


def chosen(texts: Mapping[str, pa.Array], matchers: Iterable[Matcher], rows: int) -> NDArray[np.bool_]:
    """Return a mask of the rows that match all matchers. A label without a column is absent from every row."""
    mask = np.ones(rows, np.bool_)
    for matcher in matchers:
        if matcher.label not in texts:
            mask &= matcher.takes("")
            continue
        encoded = pc.dictionary_encode(pc.fill_null(texts[matcher.label], ""))
        mask &= matcher.matches(encoded.dictionary)[encoded.indices.to_numpy()]
    return mask


def valued(
    states: pa.StructArray, reader: Function, path: Sequence[str], kind: str
) -> tuple[NDArray[np.bool_], pa.Array | None]:
    """Return a mask of the states that have a value, and the reader's results if they were computed for the mask."""
    if kind in (HISTOGRAM, BUCKETS) and isinstance(reader, Hdr | SignedSketch):
        results = None  # The minimum is null exactly if the result is null, and needs no quantiles.
        valid = states.field("min").is_valid()
    else:
        results = reader.finish(mark_as_checked(states))
        valid = part_of_results(results, (_COUNT,) if kind == BUCKETS else path).is_valid()
    mask: NDArray[np.bool_] = valid.to_numpy(zero_copy_only=False)
    return mask, results


def part_of_results(results: pa.Array, path: Sequence[str]) -> pa.Array:
    """Return the fields of results at a path, or a part that is computed from other fields."""
    if not path:
        return results
    is_field = results.type.get_field_index(path[0]) >= 0
    return pc.struct_field(results, list(path)) if is_field else missing_part(results, path[0])


@dataclass(frozen=True)
class Metric:
    """A metric that a selector can name."""

    name: str  # a valid PromQL name
    store_name: str  # the value of the label ``store``
    view: StoreView  # the version of the store that is read
    measure: str  # a measure of the store's frame
    path: tuple[str, ...]  # the fields that lead to the values in the measure's results
    kind: str  # the aggregation that merges states (sum, min, max, avg, last), or ``gauge``, ``histogram`` or `BUCKETS`
    labels: Mapping[str, str]  # for each label, the key of the store's frame
    bounds: Bounds = field(default_factory=dict)  # of `BUCKETS`

    @property
    def reader(self) -> Function:
        """The function that returns results of states."""
        return self.view.frame.measures[self.measure].function

    @property
    def state(self) -> tuple[str, Function]:
        """The column of states that the metric is read from, and the function that merges these states."""
        frame = self.view.frame
        name = frame.state_of(self.measure)
        return name, next(column.measure.function for column in frame.states if column.name == name)

    @property
    def is_counter(self) -> bool:
        """Whether the metric counts rows."""
        return _COUNT in (self.reader.name, *self.path)

    @property
    def may_be_null(self) -> bool:
        """Whether a window that has rows may have no value."""
        return self.reader.name != _COUNT

    @property
    def is_at_events(self) -> bool:
        """Whether the states contain the time of the event that has the value."""
        return self.kind == LAST and self.view.frame.measures[self.measure].others in ((None,), (self.view.frame.time,))

    def matched(self, matchers: Iterable[Matcher]) -> tuple[Metric, tuple[Matcher, ...]]:
        """Return the metric with the buckets that matchers of ``le`` select, and the matchers on keys."""
        on_keys = [matcher for matcher in matchers if matcher.label not in (NAME, STORE)]
        if self.kind != BUCKETS:
            return self, tuple(on_keys)
        of_le = [matcher for matcher in on_keys if matcher.label == LE]
        requested = [text for matcher in of_le if not matcher.negated for text in matcher.choices]
        bounds = {**self.bounds, **more_bounds(requested, self.bounds, self.reader)}
        is_chosen = chosen({LE: pa.array(list(bounds), pa.string())}, of_le, len(bounds))
        bounds = dict(compress(bounds.items(), is_chosen))
        return replace(self, bounds=bounds), tuple(matcher for matcher in on_keys if matcher.label != LE)

    def has_value(self, states: pa.StructArray) -> NDArray[np.bool_]:
        """Return a mask of the states whose result is not null."""
        valid, _ = valued(states, self.reader, self.path, self.kind)
        return valid

    @property
    def described(self) -> dict[str, str]:
        """The type, help text and unit of the metric, as ``/api/v1/metadata`` returns them."""
        kind = HISTOGRAM if self.kind in (HISTOGRAM, BUCKETS) else "counter" if self.is_counter else GAUGE
        measure = self.view.frame.measures[self.measure]
        return {"type": kind, "help": f"{measure!r} of each window of {self.store_name}", "unit": ""}

    def is_chosen(self, matchers: Iterable[Matcher]) -> bool:
        """Return whether the metric's name and store match."""
        own = {NAME: self.name, STORE: self.store_name}
        return all(matcher.takes(own[matcher.label]) for matcher in matchers if matcher.label in own)


def metrics_of(views: Mapping[str, StoreView], bucket_bounds: BucketBounds = DEFAULT_BOUNDS) -> dict[str, list[Metric]]:
    """Return the metrics of stores by name, each name with one metric per store that has it.

    Raise ``ValueError`` if two measures, or two keys, of one store would have the same name in PromQL.
    """
    by_name: dict[str, list[Metric]] = {}
    for store_name, view in views.items():
        for make in _of_store(store_name, view.manifest):
            metric = make(view=view)
            if metric.kind == BUCKETS:
                metric = replace(metric, bounds=bucket_bounds.for_measure(metric.measure, metric.reader))
            by_name.setdefault(metric.name, []).append(metric)
    return by_name


@lru_cache(maxsize=64)  # the manifest is the same object until the store is opened again, so it can be a cache key
def _of_store(store_name: str, manifest: Manifest) -> tuple[partial[Metric], ...]:
    """Return functions that build the metrics of a store for a view of it."""
    labels = _once([(key, label_of(key)) for key in manifest.frame.keys], store_name, "keys")
    metrics = tuple(_metrics(store_name, manifest, labels))
    named = [(".".join((m.keywords["measure"], *m.keywords["path"])), m.keywords["name"]) for m in metrics]
    names = _once(named, store_name, "measures")
    of_histograms = _of_classic_histograms(store_name, manifest, labels)
    return metrics + tuple(metric for metric in of_histograms if metric.keywords["name"] not in names)


def legal(name: str) -> str:
    """Return a name with ``_`` in place of characters that PromQL does not allow.

    >>> legal("2xx rate")
    '_2xx_rate'
    """
    return re.sub(r"^(?=[0-9])|[^a-zA-Z0-9_]", "_", name)


def label_of(key: str) -> str:
    """Return the label of a key. If the server itself uses the label, it gets the prefix ``exported_``, as in
    Prometheus.

    >>> label_of("route.id"), label_of("store")
    ('route_id', 'exported_store')
    """
    label = legal(key)
    return f"exported_{label}" if label in (STORE, QUANTILE, LE, NAME) else label


def _metrics(store_name: str, manifest: Manifest, labels: Mapping[str, str]) -> Iterator[partial[Metric]]:
    metric = partial(Metric, store_name=store_name, labels=labels)
    for measure, function in ((name, plan.function) for name, plan in manifest.frame.measures.items()):
        result = function.result_type(manifest.schema.field(manifest.frame.state_of(measure)).type)
        is_histogram = is_sketch(function)
        if is_histogram:
            yield partial(metric, name=legal(measure), measure=measure, path=(), kind=HISTOGRAM)
        for path, name, dtype in leaves(measure, result):
            if len(path) > 1 or not any(is_of(dtype) for is_of in _NUMBERS):
                continue  # a quantile, which belongs to the summary, or a value that is not a number
            adds_up = path[0] if is_histogram else "" if path else function.name
            ending = "_total" if adds_up == _COUNT and not path and not measure.endswith("_total") else ""
            kind = _KINDS.get(adds_up, GAUGE)
            yield partial(metric, name=legal(name + ending), measure=measure, path=tuple(path), kind=kind)


def _of_classic_histograms(store_name: str, manifest: Manifest, labels: Mapping[str, str]) -> Iterator[partial[Metric]]:
    """Yield the series of classic histograms that results do not contain; a measure of the same name replaces them."""
    metric = partial(Metric, store_name=store_name, labels=labels)
    for measure, function in ((name, plan.function) for name, plan in manifest.frame.measures.items()):
        if not is_sketch(function) and not isinstance(function, Histogram):
            continue
        yield partial(metric, name=legal(f"{measure}_bucket"), measure=measure, path=(), kind=BUCKETS)
        part = _COUNT if isinstance(function, Histogram) else "sum"
        if isinstance(function, Hdr | Histogram):
            yield partial(metric, name=legal(f"{measure}_{part}"), measure=measure, path=(part,), kind=SUM)


def _once(names: Iterable[tuple[str, str]], store: str, what: str) -> dict[str, str]:
    """Return names by their PromQL name; raise ``ValueError`` if two names have the same one."""
    by_written: dict[str, str] = {}
    for name, written in names:
        if written in by_written:
            raise ValueError(
                f"the {what} {by_written[written]!r} and {name!r} of the store {store!r} would both be called "
                f"{written} in PromQL; rename one of them"
            )
        by_written[written] = name
    return by_written
