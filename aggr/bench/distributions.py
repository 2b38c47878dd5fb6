"""Random values of several distributions, and tables with such values in the columns that measures read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import nearest, shown
from aggr.function_inputs import EVENT_TIME
from aggr.measure import Measure

Floats = NDArray[np.float64]

_DRAW_FUNCTIONS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "pareto": lambda rng, n: rng.pareto(1.1, n) + 1.0,
    "exponential": lambda rng, n: rng.exponential(10.0, n),
    "lognormal": lambda rng, n: rng.lognormal(3.0, 1.0, n),
    "normal": lambda rng, n: rng.normal(100.0, 15.0, n),
    "uniform": lambda rng, n: rng.uniform(0.0, 100.0, n),
    "bimodal": lambda rng, n: np.where(rng.random(n) < 0.9, rng.normal(10.0, 1.0, n), rng.normal(1000.0, 50.0, n)),
    "constant": lambda rng, n: np.full(n, 42.0),
}
DISTRIBUTIONS = tuple(_DRAW_FUNCTIONS)
# 2024-01-01T00:00:00Z, in microseconds since 1970
_FIRST_TIME = 1_704_067_200_000_000
# the maximum of random weights; the minimum is 1
_MAX_WEIGHT = 5


def draw(distribution: str, count: int, seed: int = 1) -> Floats:
    """Draw random values.

    Parameters
    ----------
    distribution : str
        The name of a distribution in `DISTRIBUTIONS`.
    count : int
    seed : int

    Returns
    -------
    array of float64, shape (count,)

    Raises
    ------
    ValueError
        For an unknown distribution.

    Examples
    --------
    >>> draw("constant", 2).tolist()
    [42.0, 42.0]
    """
    if distribution not in _DRAW_FUNCTIONS:
        raise ValueError(f"unknown distribution {shown(distribution)}; {nearest(distribution, DISTRIBUTIONS)}")
    return _DRAW_FUNCTIONS[distribution](np.random.default_rng(seed), count)


def table_for(measures: Sequence[Measure], rows: int, distribution: str, seed: int = 1) -> pa.Table:
    """Make a table with the columns of measures and random values of types that the measures accept.

    Parameters
    ----------
    measures : sequence of Measure
    rows : int
        The number of rows.
    distribution : str
        The distribution of the values. Weights are whole numbers from 1 to 5, and event times are one second apart.
    seed : int

    Returns
    -------
    pa.Table
        The table. Its columns are float64 if the functions accept this, otherwise int64, boolean or text.

    Raises
    ------
    ValueError
        If a measure does not accept any of the candidate types, for example because it needs a list.
    """
    values = draw(distribution, rows, seed)
    rng = np.random.default_rng(seed)
    weight_columns = {measure.weight for measure in measures if measure.weight is not None}
    weight_columns |= {
        text for measure in measures for role, text in measure.named_inputs().items() if role == "weight" and text
    }
    by_columns = {
        text for measure in measures for role, text in measure.named_inputs().items() if role == "by" and text
    }
    names = dict.fromkeys(name for measure in measures for name in measure.columns())
    candidates = _candidates(values)
    columns: dict[str, pa.Array] = {}
    for name in names:
        if name in weight_columns:
            columns[name] = pa.array(rng.integers(1, _MAX_WEIGHT + 1, rows))
        elif name in by_columns and EVENT_TIME in _roles_of(name, measures):
            columns[name] = event_times(rows)
        else:
            columns[name] = candidates[0]
    for name in names:
        if name not in weight_columns and name not in by_columns:
            columns[name] = _first_accepted(name, candidates, columns, measures)
    return pa.table(columns) if columns else pa.table({"x": values})


def event_times(rows: int) -> pa.Array:
    """Return event times that are one second apart."""
    return pa.array(_FIRST_TIME + 1_000_000 * np.arange(rows), pa.timestamp("us", "UTC"))


def _roles_of(name: str, measures: Iterable[Measure]) -> set[str]:
    """Return the names of the inputs, such as ``weight``, for which the measures use the column ``name``."""
    roles: set[str] = set()
    for measure in measures:
        inputs = type(measure.function).inputs
        roles |= {role for role, text in zip(inputs, (measure.column, *measure.others), strict=False) if text == name}
    return roles


def _candidates(values: Floats) -> list[pa.Array]:
    """Return columns with the random values as float64, int64, boolean and text, in this order."""
    integers = np.rint(np.clip(values, -(2.0**62), 2.0**62)).astype(np.int64)
    middle = np.median(values) if len(values) else 0.0
    return [
        pa.array(values),
        pa.array(integers),
        pa.array(values > middle),
        pa.array(np.char.mod("v%d", integers % 1000)),
    ]


def _first_accepted(
    name: str, candidates: Sequence[pa.Array], columns: dict[str, pa.Array], measures: Sequence[Measure]
) -> pa.Array:
    """Return the first candidate whose type is accepted for the column ``name`` by all measures that read this column.

    ``columns`` contains all columns of the table by name; its entry for ``name`` is not used. Raise ``ValueError`` if
    all candidates are rejected.
    """
    refusal: Exception = ValueError("")
    for candidate in candidates:
        schema = pa.schema([(n, (candidate if n == name else column).type) for n, column in columns.items()])
        try:
            for measure in measures:
                if name in measure.columns():
                    measure.function.zero(0, measure.input_type(schema, pa.timestamp("us", "UTC")))
        except (TypeError, ValueError) as error:
            refusal = error
            continue
        return candidate
    raise ValueError(
        f"cannot make random values for the column {shown(name)}: {refusal}; pass your own data with this column"
    )
