"""Which function a column of states belongs to, told from the states themselves."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from aggr.function import Function
from aggr.plain import plain
from aggr.registry import get, names


def function_of(states: pa.Array | pa.ChunkedArray) -> Function:
    """Find the function that merges and reads these states.

    Parameters
    ----------
    states : column of states of any registered function

    Returns
    -------
    Function
        With the parameters that shape these states, and those that only read at their defaults. Where functions
        share a state (sum and avg; var and stdev), the first by name.

    Raises
    ------
    TypeError
        If no registered function has such states.
    ValueError
        If the states have unequal parameters.

    Examples
    --------
    >>> from aggr import Dds, Groups
    >>> function_of(Dds((0.9,), 0.02).reduce(pa.array([1.0]), Groups.single(1)))
    Dds(quantiles=(0.5, 0.9, 0.99), relative_accuracy=0.02, max_bins=None)
    """
    states = plain(states)
    kind = class_of(states.type)
    if kind is None:
        raise TypeError(f"no registered function has states of type {states.type}; there are {', '.join(names())}")
    rows = states.drop_null()
    parameters = {name: pc.unique(rows.field(name)).to_pylist() for name in kind.shape}
    for name, values in parameters.items():
        if len(values) > 1:
            raise ValueError(
                f"states of {kind.name} with {name}={values[0]} and {name}={values[1]} cannot be merged; "
                f"use the same {name} everywhere"
            )
    return kind(**{name: values[0] for name, values in parameters.items() if values})


def class_of(kind: pa.DataType) -> type[Function] | None:
    """Find the registered function whose states have this type; None if there is none."""
    if not pa.types.is_struct(kind):
        return None
    fields = frozenset(f.name for f in kind)
    return next((get(name) for name in names() if _fields_of(get(name)) == fields), None)


@lru_cache(maxsize=256)
def _fields_of(function: type[Function]) -> frozenset[str]:
    return frozenset({"version", *function.shape, *function().merges})
