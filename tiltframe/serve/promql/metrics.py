"""Labels and metrics: labels from keys, matchers of labels, and the metrics of PromQL from measures.

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
from aggr.extend.tables import leaves, mark_as_checked
from aggr.sql import check_regex_size, plain_texts
from tiltframe.extend import iso_times, json_value, python_values
from tiltframe.serve.errors import BadData
from tiltframe.serve.promql.classic_buckets import (
    DEFAULT_BOUNDS,
    LE,
    Bounds,
    BucketBounds,
    compute_missing_part,
    is_sketch,
    requested_bounds,
)
from tiltframe.serve.promql.kinds import BUCKETS, GAUGE, HISTOGRAM, KINDS_OF_RESULTS, LAST, SUM
from tiltframe.store import Manifest, StoreView

Labels = Mapping[str, str]

NAME = "__name__"

_EQUAL = promql_parser.MatchOp.Equal
_UNEQUAL = promql_parser.MatchOp.NotEqual
_UNQUOTED_TEXT = re.compile(r"[\w .:/@-]+", re.ASCII)  # texts in which no character needs an escape in SQL
_POINT = re.compile(r"(?<!\\)\.")
STORE = "store"
QUANTILE = "quantile"
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
_COUNT = "count"


@dataclass(frozen=True)
class Matcher:
    """A condition on the value of a label. ``=`` and ``!=`` compare the value with a text. ``=~`` and ``!~`` compare it
    with an RE2 expression, which must match the complete value.
    """

    label: str
    text: str
    regex: bool
    negated: bool

    @classmethod
    def of(cls, matcher: promql_parser.Matcher) -> Matcher:
        """Return the matcher that corresponds to a matcher of the package promql_parser."""
        regex = matcher.op not in (_EQUAL, _UNEQUAL)
        negated = matcher.op in (_UNEQUAL, promql_parser.MatchOp.NotRe)
        return cls(matcher.name, matcher.value, regex, negated)

    def matches(self, texts: pa.Array) -> NDArray[np.bool_]:
        """Return a mask of the texts that meet the condition. Null means that a row lacks the label, and counts as the
        empty text. Raise `BadData` if the regular expression is invalid.
        """
        texts = pc.fill_null(texts, "")
        choices = self.choices
        if choices is not None:
            matching = pc.is_in(texts, pa.array(choices, pa.string()))
        else:
            try:
                check_regex_size(self.text)
                matching = pc.match_substring_regex(texts, rf"\A(?:{self.text})\z")
            except pa.ArrowInvalid as error:
                # ``ArrowInvalid`` is a subclass of ``ValueError``, so it must be caught before ``ValueError``.
                problem = str(error).removeprefix("Invalid regular expression: ").split(":")[0]
                raise BadData(
                    f"the regular expression {shown(self.text)} is not valid in RE2: {problem}; correct it"
                ) from None
            except ValueError as error:
                raise BadData(str(error)) from None
        mask: NDArray[np.bool_] = matching.to_numpy(zero_copy_only=False) ^ self.negated
        return mask

    def matches_text(self, text: str) -> bool:
        """Return whether the value ``text`` of the label meets the condition."""
        return bool(self.matches(pa.array([text]))[0])

    @property
    def choices(self) -> list[str] | None:
        """The texts with which the matcher compares the value of a label: a single text or, for a regular expression
        such as ``a|b``, its alternatives. None for any other regular expression.
        """
        return plain_texts(self.text) if self.regex else [self.text]

    def condition(self, key: str) -> str | None:
        """Return the matcher as an SQL condition on a text key. Stores can skip files by this condition. Return None if
        the matcher is too complex for this.
        """
        choices = self.choices
        if self.negated or choices is None or not all(_UNQUOTED_TEXT.fullmatch(text) for text in choices):
            return None
        quoted = ", ".join(f"'{text}'" for text in choices)
        return f"`{key.replace('`', '``')}` IN ({quoted})"


@dataclass(frozen=True)
class Grouping:
    """The labels that an aggregation keeps: with ``by``, only ``labels``; with ``without``, all but ``labels`` and the
    name of the metric.
    """

    labels: tuple[str, ...] = ()
    without: bool = False

    def keeps(self, label: str) -> bool:
        """Return whether the aggregation keeps a label."""
        return (label in self.labels) != self.without and not (self.without and label == NAME)

    def kept_labels(self, labels: Labels) -> dict[str, str]:
        """Return the labels in ``labels`` that the aggregation keeps."""
        return {label: text for label, text in labels.items() if self.keeps(label)}

    def groups(self, series: Sequence[Labels]) -> tuple[NDArray[np.intp], list[dict[str, str]]]:
        """Return the group number of each series and the labels of each group. Groups are numbered in the order of
        their first series.
        """
        numbers: dict[tuple[tuple[str, str], ...], int] = {}
        ids = [numbers.setdefault(identity(self.kept_labels(labels)), len(numbers)) for labels in series]
        return np.array(ids, np.intp), [dict(labels) for labels in numbers]


# the grouping that keeps every label except the name of the metric, which functions remove
ALL = Grouping(without=True)


def identity(labels: Labels) -> tuple[tuple[str, str], ...]:
    """Return labels in a form that can be the key of a dict: equal labels have equal forms."""
    return tuple(sorted(labels.items()))


def labels_text(labels: tuple[tuple[str, str], ...]) -> str:
    """Return the text of labels for a message, at most 100 characters in braces.

    >>> labels_text((("host", "a"),))
    '{host="a"}'
    """
    return "{" + ", ".join(f'{name}="{text}"' for name, text in labels)[:100] + "}"


def label_texts(column: pa.ChunkedArray) -> pa.Array:
    """Return the values of a key as texts of a label. Null and the empty text become null, which means that the row
    lacks the label.

    >>> label_texts(pa.chunked_array([[1, None]])).to_pylist(), label_texts(pa.chunked_array([["", "a"]])).to_pylist()
    (['1', None], [None, 'a'])
    """
    keys = normalize(column)
    if not pa.types.is_string(keys.type):
        encoded = pc.dictionary_encode(keys)
        texts = iso_times(encoded.dictionary) if pa.types.is_timestamp(keys.type) else encoded.dictionary
        texts_of_keys = pa.array(
            [text if isinstance(text, str) else _label_text(text) for text in python_values(texts)], pa.string()
        )
        keys = texts_of_keys.take(encoded.indices)
    return pc.if_else(pc.equal(keys, ""), pa.scalar(None, pa.string()), keys)


def _label_text(key: object) -> str:
    text = json_value(key)
    return str(text).lower() if isinstance(text, bool) else str(text)


def matching_rows(texts: Mapping[str, pa.Array], matchers: Iterable[Matcher], rows: int) -> NDArray[np.bool_]:
    """Return a mask of the rows that match all matchers, of shape (rows,). ``texts`` maps labels to their texts in the
    rows. A row lacks each label that is not in ``texts``.
    """
    mask = np.ones(rows, np.bool_)
    for matcher in matchers:
        if matcher.label not in texts:
            mask &= matcher.matches_text("")
            continue
        encoded = pc.dictionary_encode(pc.fill_null(texts[matcher.label], ""))
        mask &= matcher.matches(encoded.dictionary)[encoded.indices.to_numpy()]
    return mask


def results_and_presence(
    states: pa.StructArray, result_function: Function, path: Sequence[str], kind: str
) -> tuple[NDArray[np.bool_], pa.Array | None]:
    """Return a mask of the states that have a value, and the results of ``result_function``. If the mask was computed
    without results, None is returned in their place. A state has a value if its result is not null or, if ``path`` is
    not empty, if the field at ``path`` of its result is not null.
    """
    if kind in (HISTOGRAM, BUCKETS) and isinstance(result_function, Hdr | SignedSketch):
        # The result of a sketch is null exactly if its minimum is null, so the results need not be computed.
        results = None
        valid = states.field("min").is_valid()
    else:
        results = result_function.finish(mark_as_checked(states))
        valid = part_of_results(results, (_COUNT,) if kind == BUCKETS else path).is_valid()
    mask: NDArray[np.bool_] = valid.to_numpy(zero_copy_only=False)
    return mask, results


def part_of_results(results: pa.Array, path: Sequence[str]) -> pa.Array:
    """Return the field of ``results`` at ``path``. If the results lack this field, `compute_missing_part` computes its
    values from other fields.
    """
    if not path:
        return results
    is_field = results.type.get_field_index(path[0]) >= 0
    return pc.struct_field(results, list(path)) if is_field else compute_missing_part(results, path[0])


@dataclass(frozen=True)
class Metric:
    """A metric that a selector can name. The metric belongs to one store."""

    # a valid PromQL name
    name: str
    # the value of the label ``store``
    store_name: str
    # the view of the store, from which the states are read
    view: StoreView
    # a measure of the store's frame
    measure: str
    # the path to the values in the measure's results: the names of nested fields, the outermost first
    path: tuple[str, ...]
    # the aggregation that merges the states: `SUM`, `MIN`, `MAX`, `AVG` or `LAST`; `GAUGE` if no aggregation merges
    # them; `HISTOGRAM` for the states of a sketch; `BUCKETS` for the buckets of a classic histogram
    kind: str
    # label → the key of the store's frame, or the field of a key, from which the values of the label are read
    labels: Mapping[str, str]
    bounds: Bounds = field(default_factory=dict)  # if the kind is `BUCKETS`, the bounds of the buckets; otherwise empty

    @property
    def result_function(self) -> Function:
        """The function that computes results from the states."""
        return self.view.frame.measures[self.measure].function

    @property
    def state(self) -> tuple[str, Function]:
        """The name of the column of states that the metric is read from, and the function that merges these states."""
        name = self.view.frame.state_of(self.measure)
        return name, self.view.frame.state_functions[name]

    @property
    def is_counter(self) -> bool:
        """Whether the metric counts rows."""
        return _COUNT in (self.result_function.name, *self.path)

    @property
    def may_be_null(self) -> bool:
        """Whether the result of a window may be null although the window has rows."""
        return self.result_function.name != _COUNT

    @property
    def has_event_times(self) -> bool:
        """Whether the states contain the time of the event from which the value of the metric was read."""
        return self.kind == LAST and self.view.frame.measures[self.measure].others in ((None,), (self.view.frame.time,))

    def with_matchers(self, matchers: Iterable[Matcher]) -> tuple[Metric, tuple[Matcher, ...]]:
        """Return the metric, and the matchers that apply to its keys. If the metric is a classic histogram, the
        returned metric has only the buckets that the matchers of the label ``le`` select.
        """
        key_matchers = [matcher for matcher in matchers if matcher.label not in (NAME, STORE)]
        if self.kind != BUCKETS:
            return self, tuple(key_matchers)
        le_matchers = [matcher for matcher in key_matchers if matcher.label == LE]
        # In a regular expression such as 0.5|1.0, the points are decimal points, not wildcards, so they are escaped.
        number_matchers = [
            replace(matcher, text=_POINT.sub(r"\\.", matcher.text)) for matcher in le_matchers if matcher.regex
        ]
        text_matchers = [matcher for matcher in le_matchers if not matcher.regex]
        requested = [text for m in (*text_matchers, *number_matchers) if not m.negated for text in m.choices or ()]
        bounds = {**self.bounds, **requested_bounds(requested, self.bounds, self.result_function)}
        is_selected = matching_rows({LE: pa.array(list(bounds), pa.string())}, le_matchers, len(bounds))
        bounds = dict(compress(bounds.items(), is_selected))
        return replace(self, bounds=bounds), tuple(matcher for matcher in key_matchers if matcher.label != LE)

    def has_value(self, states: pa.StructArray) -> NDArray[np.bool_]:
        """Return a mask of the states whose result is not null."""
        valid, _ = results_and_presence(states, self.result_function, self.path, self.kind)
        return valid

    @property
    def metadata(self) -> dict[str, str]:
        """The type, help text and unit of the metric, in the form of ``/api/v1/metadata``."""
        kind = "counter" if self.is_counter else GAUGE
        if self.kind in (HISTOGRAM, BUCKETS):
            kind = HISTOGRAM
        measure = self.view.frame.measures[self.measure]
        return {"type": kind, "help": f"{measure!r} of each window of {self.store_name}", "unit": ""}

    def matches_name_and_store(self, matchers: Iterable[Matcher]) -> bool:
        """Return whether the metric's name and store match. Matchers of other labels are ignored."""
        own_labels = {NAME: self.name, STORE: self.store_name}
        return all(
            matcher.matches_text(own_labels[matcher.label]) for matcher in matchers if matcher.label in own_labels
        )


def metrics_by_name(
    views: Mapping[str, StoreView], bucket_bounds: BucketBounds = DEFAULT_BOUNDS
) -> dict[str, list[Metric]]:
    """Return the metrics of stores by name. If several stores have a metric of the same name, the list of this name has
    one metric per store.

    Raise ``ValueError`` if two measures, or two keys, of one store would have the same name in PromQL.
    """
    by_name: dict[str, list[Metric]] = {}
    for store_name, view in views.items():
        for make in _metric_makers(store_name, view.manifest):
            metric = make(view=view)
            if metric.kind == BUCKETS:
                metric = replace(metric, bounds=bucket_bounds.for_measure(metric.measure, metric.result_function))
            by_name.setdefault(metric.name, []).append(metric)
    return by_name


# Look-ups in the cache are fast, because a store has the same manifest object until it is opened again.
@lru_cache(maxsize=64)
def _metric_makers(store_name: str, manifest: Manifest) -> tuple[partial[Metric], ...]:
    """Return, for each metric of a store, a function that returns the metric for a view of the store."""
    labels = _unique_names([(key, label_of(key)) for key in manifest.key_types], store_name, "keys")
    metrics = tuple(_measure_metric_makers(store_name, manifest, labels))
    names_with_promql_names = [
        (".".join((m.keywords["measure"], *m.keywords["path"])), m.keywords["name"]) for m in metrics
    ]
    names = _unique_names(names_with_promql_names, store_name, "measures")
    histogram_makers = _classic_histogram_makers(store_name, manifest, labels)
    return metrics + tuple(metric for metric in histogram_makers if metric.keywords["name"] not in names)


def promql_name(name: str) -> str:
    """Return the name of a metric, in which characters that PromQL does not allow are replaced by ``_``. If the name
    begins with a digit, ``_`` is put before it. Colons are kept, because names of recording rules contain them.

    >>> promql_name("2xx rate"), promql_name("job:requests:rate5m")
    ('_2xx_rate', 'job:requests:rate5m')
    """
    return re.sub(r"^(?=[0-9])|[^a-zA-Z0-9_:]", "_", name)


def label_of(key: str) -> str:
    """Return the name of the label of a key, or of a field such as ``tags.host``. If the server uses this name for a
    label of its own, the prefix ``exported_`` is added, as in Prometheus.

    >>> label_of("route:id"), label_of("store")
    ('route_id', 'exported_store')
    """
    label = promql_name(key.strip("`")).replace(":", "_")
    return f"exported_{label}" if label in (STORE, QUANTILE, LE, NAME) else label


def _measure_metric_makers(store_name: str, manifest: Manifest, labels: Mapping[str, str]) -> Iterator[partial[Metric]]:
    """Yield, for each metric of the measures of a store, a function that returns the metric for a view of the store. A
    measure has a metric for each numeric field of its results and, if its function is a sketch, also a histogram.
    """
    metric = partial(Metric, store_name=store_name, labels=labels)
    for measure, function in ((name, plan.function) for name, plan in manifest.frame.measures.items()):
        result = function.result_type(manifest.schema.field(manifest.frame.state_of(measure)).type)
        is_histogram = is_sketch(function)
        if is_histogram:
            yield partial(metric, name=promql_name(measure), measure=measure, path=(), kind=HISTOGRAM)
        for path, name, dtype in leaves(measure, result):
            if len(path) > 1 or not any(is_type(dtype) for is_type in _NUMBERS):
                continue  # Other fields have no metric. Quantiles are read from the metric of the histogram.
            part = "" if path else function.name
            if is_histogram:
                part = path[0]
            ending = "_total" if part == _COUNT and not path and not measure.endswith("_total") else ""
            kind = KINDS_OF_RESULTS.get(part, GAUGE)
            yield partial(metric, name=promql_name(name + ending), measure=measure, path=tuple(path), kind=kind)


def _classic_histogram_makers(
    store_name: str, manifest: Manifest, labels: Mapping[str, str]
) -> Iterator[partial[Metric]]:
    """Yield functions that return metrics of classic histograms for a view of the store: the metric of the buckets and,
    if the results have no field for the count or the sum, the metric of the count or the sum. The caller ignores a
    metric if a measure has the same name.
    """
    metric = partial(Metric, store_name=store_name, labels=labels)
    for measure, function in ((name, plan.function) for name, plan in manifest.frame.measures.items()):
        if not is_sketch(function) and not isinstance(function, Histogram):
            continue
        yield partial(metric, name=promql_name(f"{measure}_bucket"), measure=measure, path=(), kind=BUCKETS)
        part = _COUNT if isinstance(function, Histogram) else "sum"
        if isinstance(function, Hdr | Histogram):
            yield partial(metric, name=promql_name(f"{measure}_{part}"), measure=measure, path=(part,), kind=SUM)


def _unique_names(names: Iterable[tuple[str, str]], store: str, what: str) -> dict[str, str]:
    """Return a dict of PromQL name → name. ``names`` has pairs of a name and its PromQL name. Raise ``ValueError`` if
    two names have the same PromQL name. In the message, ``what`` is the word for the names, such as "keys".
    """
    names_by_promql_name: dict[str, str] = {}
    for name, promql_text in names:
        if promql_text in names_by_promql_name:
            raise ValueError(
                f"the {what} {names_by_promql_name[promql_text]!r} and {name!r} of the store {store!r} would both "
                f"be called {promql_text} in PromQL; rename one of them"
            )
        names_by_promql_name[promql_text] = name
    return names_by_promql_name
