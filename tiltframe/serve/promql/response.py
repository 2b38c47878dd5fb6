"""Responses in the JSON format of Prometheus. Their texts are computed for whole columns of values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.extend.columns import compute as pc
from tiltframe.serve.promql.cells import Floats, States, Vector
from tiltframe.serve.promql.histogram_counts import histogram_buckets
from windows import Instants

_SPECIAL = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


def success(data: str, warnings: Iterable[str] = (), infos: Iterable[str] = ()) -> str:
    """Return the text of a successful response. ``data`` is JSON.

    ``warnings`` are messages about missing data. Grafana marks a panel whose response has warnings. ``infos`` are other
    messages.
    """
    more = "".join(
        f',"{name}":{_json(list(sentences))}'
        for name, sentences in (("warnings", warnings), ("infos", infos))
        if sentences
    )
    return f'{{"status":"success","data":{data}{more}}}'


def instant(value: Floats | States | Vector | str, moments: Instants) -> str:
    """Return the data of a response for a single moment, as JSON: a vector, a scalar or a string."""
    if isinstance(value, States | Vector):
        return _series("vector", value, moments)
    time = _time_texts(moments)
    if isinstance(value, str):
        return f'{{"resultType":"string","result":[{time[0]},{_json(value)}]}}'
    return f'{{"resultType":"scalar","result":{_point_texts(time, number_texts(value), quoted=True)[0]}}}'


def matrix(value: Floats | States | Vector, moments: Instants) -> str:
    """Return the data of a response for several moments, as JSON: a matrix."""
    if not isinstance(value, States | Vector):
        value = Vector([{}], value[None, :], np.ones((1, len(moments)), np.bool_))
    return _series("matrix", value, moments)


def number_texts(numbers: Floats, with_exponents: bool = False) -> pa.Array:
    """Return the texts of numbers as Prometheus writes them: with the fewest digits that identify the double.

    Prometheus writes scalars without an exponent. In vectors, matrices and histograms, it writes numbers below 1e-6 and
    from 1e21 with an exponent (``with_exponents``).

    >>> number_texts(np.array([1.0, 0.1, 1e21, 1e-7, np.nan, -np.inf])).to_pylist()
    ['1', '0.1', '1000000000000000000000', '0.0000001', 'NaN', '-Inf']
    >>> number_texts(np.array([1e20, 1e21, 1e-6, -1.5e-7]), with_exponents=True).to_pylist()
    ['100000000000000000000', '1e+21', '0.000001', '-1.5e-07']
    """
    texts = pc.cast(pa.array(numbers), pa.string())
    rewritten = np.flatnonzero(~np.isfinite(numbers) | pc.match_substring(texts, "e").to_numpy(zero_copy_only=False))
    if not len(rewritten):
        return texts
    text_list: NDArray[Any] = texts.to_numpy(zero_copy_only=False)
    for i in rewritten:
        text_list[i] = _SPECIAL.get(text_list[i]) or _number_text(numbers[i], with_exponents)
    return pa.array(text_list, pa.string())


def _number_text(number: float, with_exponents: bool) -> str:
    if with_exponents and not 1e-6 <= abs(number) < 1e21:
        return np.format_float_scientific(number, trim="-", exp_digits=2)
    return np.format_float_positional(number, trim="-")


def _series(kind: str, value: States | Vector, moments: Instants) -> str:
    """Return the data of a response as JSON: the labels of each series, with its points. ``kind`` is "vector" for one
    point per series, and "matrix" for a list of points per series.
    """
    if isinstance(value, States):
        cells = value.cells
        texts = _histogram_texts(value)
        word = "histogram"
    else:
        cells = np.flatnonzero(value.present)
        word = "value"
        texts = number_texts(value.values.flat[cells], with_exponents=True)
    times = _time_texts(moments).take(pa.array(cells % len(moments)))
    points = _point_texts(times, texts, quoted=word == "value")
    begin, end = (f'"{word}":', "") if kind == "vector" else (f'"{word}s":[', "]")
    texts_of_rows = _join_by_row(points, cells // len(moments), len(value.series))
    texts_by_series = zip(value.series, texts_of_rows.to_pylist(), strict=True)
    result = ",".join(f'{{"metric":{_json(labels)},{begin}{text}{end}}}' for labels, text in texts_by_series if text)
    return f'{{"resultType":"{kind}","result":[{result}]}}'


def _histogram_texts(states: States) -> pa.Array:
    """Return the JSON of each histogram: its count, sum and all buckets. A bucket excludes its bound that is nearer to
    0; the bucket around 0 includes both bounds.
    """
    count, total, buckets = histogram_buckets(states.states, states.result_function)
    low = buckets.low
    high = buckets.high
    rule = np.where((low == high) | ((low < 0) & (high > 0)), 3, np.where(high > 0, 0, 1))
    numbers = [number_texts(column, with_exponents=True) for column in (low, high, buckets.counts / states.divisor)]
    fields = ["[", pa.array(rule).cast(pa.string()), ',"', numbers[0], '","', numbers[1], '","', numbers[2], '"]']
    texts = _concatenate(*fields)
    texts_of_rows = _join_by_row(texts, buckets.rows, len(count))
    counts = number_texts(count / states.divisor, with_exponents=True)
    totals = number_texts(total / states.divisor, with_exponents=True)
    members = ['{"count":"', counts, '","sum":"', totals, '","buckets":[', texts_of_rows, "]}"]
    return _concatenate(*members)


def _join_by_row(texts: pa.Array, rows: NDArray[np.int64], count: int) -> pa.Array:
    """Join the texts of each row by commas, and return one text for each of ``count`` rows. ``rows`` has the index of
    the row to which each text belongs, ascending.
    """
    offsets = np.searchsorted(rows, np.arange(count + 1)).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ",")


def _time_texts(moments: Instants) -> pa.Array:
    texts = (f"{at // 1000}.{at % 1000:03d}".rstrip("0").rstrip(".") for at in (moments // 1000).tolist())
    return pa.array(texts, pa.string())


def _point_texts(times: pa.Array, texts: pa.Array, quoted: bool) -> pa.Array:
    quote = '"' * quoted
    pieces = ["[", times, f",{quote}", texts, f"{quote}]"]
    return _concatenate(*pieces)


def _concatenate(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
