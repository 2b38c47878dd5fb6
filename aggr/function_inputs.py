"""The inputs of a function: their keywords in calls, and the arrays and weights that are passed for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.arrow.normalize import normalize
from aggr.exact.weights import accepted_weights, read_weights
from aggr.groups.groups import type_name
from aggr.input_types import unsupported_input
from aggr.values import Values

# the name of the input for event times; the column of this input is passed as ``by``
EVENT_TIME = "time"
# the keyword for the column of weights: the number of rows that each row represents
WEIGHT = "weight"


def keyword(role: str) -> str:
    """Return the keyword that passes the column of a further input.

    Parameters
    ----------
    role : str
        The name of the input, one of `Function.inputs`.

    Returns
    -------
    str
        ``by`` for event times, otherwise the name of the input.
    """
    return "by" if role == EVENT_TIME else role


def input_array(function: str, inputs: Sequence[str], values: pa.Array | Sequence[pa.Array]) -> pa.Array:
    """Return the input of a function as one array in a plain type.

    Parameters
    ----------
    function : str
        The name of the function, for messages.
    inputs : sequence of str
        The names of the inputs of the function.
    values : array, or arrays of several inputs
        For several inputs, either a struct with a field for each input, in any order, or one array for each input, in
        the order of ``inputs``.

    Returns
    -------
    array
        For several inputs, a struct whose fields have the names of the inputs.

    Raises
    ------
    TypeError, ValueError
        If ``values`` are not Arrow arrays, or do not contain exactly the inputs of the function.
    """
    if len(inputs) == 1:
        return normalize(_checked_array(function, values))
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        dtype = values.type
        names = [field.name for field in dtype] if pa.types.is_struct(dtype) else []
        if sorted(names) != sorted(inputs):
            raise unsupported_input(function, dtype, f"a struct of {' and '.join(inputs)}")
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        columns = [pc.struct_field(values, name) for name in inputs]
        is_null = values.is_null()
    else:
        columns = _checked_columns(function, inputs, values)
        is_null = None
    columns = [normalize(_checked_array(function, column)) for column in columns]
    return pa.StructArray.from_arrays(columns, names=list(inputs), mask=is_null)


def _checked_columns(function: str, inputs: Sequence[str], values: Any) -> list[Any]:
    """Return ``values`` as a list, if it is a sequence with one array for each input. Otherwise raise an error."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        expected = f"Arrow arrays of {' and '.join(inputs)}, or a struct of them"
        raise TypeError(f"{function}: values must be {expected}; got {type_name(values)}")
    if len(values) != len(inputs):
        raise ValueError(
            f"{function}: values must be one array for each input, {' and '.join(inputs)}; got {len(values)} arrays"
        )
    return list(values)


def _checked_array(function: str, values: Any) -> Any:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        raise TypeError(f"{function}: values must be an Arrow array; got {type_name(values)}; create one with pa.array")
    return values


def weighted_values(function: str, values: Values, weights: pa.Array, skips_refused: bool) -> Values:
    """Return values with their weights, without the rows of weight 0 or null. ``weights`` has a whole number for each
    row, and ``function`` is the name of the function in messages.

    A refused weight, such as a negative one, raises ``ValueError``. If ``skips_refused`` is true, rows with a refused
    weight are left out and counted.
    """
    groups = values.groups
    if len(weights) != len(groups):
        raise ValueError(
            f"{function}: each weight must have one group id; got {len(weights)} weights and {len(groups)} group ids"
        )
    column = normalize(_checked_array(function, weights))
    refused_counts = None
    if skips_refused:
        numbers, is_refused = accepted_weights(column)
        if is_refused.any():
            is_refused &= values.array.is_valid().to_numpy(zero_copy_only=False)
            refused_counts = groups.filter(is_refused).counts()
    else:
        numbers = read_weights(column)
    weighted = replace(values, weights=numbers, refused=refused_counts)
    if len(weighted) and numbers.min() == 0:
        weighted = weighted.filter(numbers > 0)
    return replace(weighted, weights=None) if np.all(weighted.weights == 1) else weighted


def present_in_all(values: Values, inputs: Sequence[str]) -> Values:
    """Return the rows of several inputs in which no input is null. The number of groups is unchanged."""
    columns = [values.array, *(values.array.field(name) for name in inputs)]
    if not any(column.null_count for column in columns):
        return values
    is_valid = reduce(pc.and_, (column.is_valid() for column in columns))
    return values.filter(is_valid.to_numpy(zero_copy_only=False))
