"""Responses: answers as the JSON of Prometheus, whole columns at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow import compute as pc
from tiltframe.serve.promql.cells import Floats, Vector
from windows.timezone import Instants

_SPECIAL = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


def success(data: str, warnings: Iterable[str] = ()) -> str:
    """Write an answer around data that is JSON already."""
    said = list(warnings)
    more = f',"warnings":{json.dumps(said, ensure_ascii=False)}' if said else ""
    return f'{{"status":"success","data":{data}{more}}}'


def failure(kind: str, sentence: str) -> str:
    """Write an error."""
    return json.dumps({"status": "error", "errorType": kind, "error": sentence}, ensure_ascii=False)


def instant(value: Floats | Vector | str, moments: Instants) -> str:
    """Write the answer at one moment: a vector, a scalar or a string."""
    if isinstance(value, Vector):
        points = _points(value.values[:, 0], time_texts(np.repeat(moments, len(value.series)))).to_pylist()
        rows = zip(value.series, points, value.present[:, 0], strict=True)
        result = ",".join(
            f'{{"metric":{_labels(labels)},"value":{point}}}' for labels, point, present in rows if present
        )
        return f'{{"resultType":"vector","result":[{result}]}}'
    time = time_texts(moments)
    if isinstance(value, str):
        point = f"[{time[0]},{json.dumps(value, ensure_ascii=False)}]"
        return f'{{"resultType":"string","result":{point}}}'
    return f'{{"resultType":"scalar","result":{_points(value, time)[0]}}}'


def matrix(value: Floats | Vector, moments: Instants) -> str:
    """Write the answer over moments."""
    if not isinstance(value, Vector):
        value = Vector([{}], value[None, :], np.ones((1, len(moments)), np.bool_))
    rows, columns = np.nonzero(value.present)
    points = _points(value.values[rows, columns], time_texts(moments).take(pa.array(columns)))
    offsets = np.concatenate([[0], np.cumsum(value.present.sum(axis=1))])
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), points)
    texts = pc.binary_join(lists, ",").to_pylist()
    result = ",".join(
        f'{{"metric":{_labels(labels)},"values":[{text}]}}'
        for labels, text in zip(value.series, texts, strict=True)
        if text
    )
    return f'{{"resultType":"matrix","result":[{result}]}}'


def number_texts(numbers: Floats) -> pa.Array:
    """Write numbers as Prometheus does: the fewest digits that read back, and no exponent.

    >>> number_texts(np.array([1.0, 0.1, 1e21, 1e-7, np.nan, -np.inf])).to_pylist()
    ['1', '0.1', '1000000000000000000000', '0.0000001', 'NaN', '-Inf']
    """
    texts = pc.cast(pa.array(numbers), pa.string())
    odd = np.flatnonzero(~np.isfinite(numbers) | pc.match_substring(texts, "e").to_numpy(zero_copy_only=False))
    if not len(odd):
        return texts
    written: NDArray[Any] = texts.to_numpy(zero_copy_only=False)
    for i in odd:
        text = written[i]
        written[i] = _SPECIAL.get(text) or np.format_float_positional(numbers[i], trim="-")
    return pa.array(written, pa.string())


def time_texts(moments: Instants) -> pa.Array:
    """Write moments as Unix seconds, to the millisecond."""
    return pa.array([f"{at // 1_000_000}" + _fraction(at) for at in moments.tolist()], pa.string())


def _fraction(at: int) -> str:
    millis = at // 1000 % 1000
    return f".{millis:03d}".rstrip("0") if millis else ""


def _points(numbers: Floats, times: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("[", times, ',"', number_texts(numbers), '"]', "")


def _labels(labels: Any) -> str:
    return json.dumps(labels, ensure_ascii=False)
