"""Functions whose results have all nested shapes: maps, nested lists, and structs that contain them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from aggr.extend import COUNT, GREATEST, LEAST, Function, InputTypes, PlainState

DOUBLES = InputTypes("doubles", "Of doubles.", pa.types.is_float64)
RECORD = pa.struct([("value", pa.float64()), ("place", pa.int64())])
MAP = pa.map_(pa.string(), pa.float64())

# The type of each shape, and the function that creates its value from the least value, the greatest value and the count
# of a group.
SHAPES: dict[str, tuple[pa.DataType, Callable[[float, float, int], Any]]] = {
    "map": (MAP, lambda low, high, n: [("low", low), ("high", high)]),
    "empty_map": (MAP, lambda low, high, n: []),
    "map_of_integers": (pa.map_(pa.int64(), pa.int64()), lambda low, high, n: [(n, 2**60 + n), (-n, 0)]),
    "map_of_lists": (
        pa.map_(pa.string(), pa.list_(pa.float64())),
        lambda low, high, n: [("both", [low, high]), ("none", []), ("null", None)],
    ),
    "map_of_records": (
        pa.map_(pa.string(), RECORD),
        lambda low, high, n: [("low", {"value": low, "place": 0}), ("high", {"value": high, "place": n})],
    ),
    "nested_lists": (pa.list_(pa.list_(pa.float64())), lambda low, high, n: [[low], [], [low, high]]),
    "list_of_records": (pa.list_(RECORD), lambda low, high, n: [{"value": low, "place": n}]),
    "record_with_map": (
        pa.struct([("n", pa.int64()), ("by_name", MAP)]),
        lambda low, high, n: {"n": n, "by_name": [("low", low)]},
    ),
    "record_of_records": (
        pa.struct([("n", pa.int64()), ("first", RECORD), ("all", pa.list_(RECORD))]),
        lambda low, high, n: {
            "n": n,
            "first": {"value": low, "place": n},
            "all": [{"value": high, "place": None}],
        },
    ),
}


@dataclass(frozen=True)
class ShapedFunction(Function):
    """The least value, the greatest value and the count. A subclass defines the shape of the result."""

    keeps, returns, guarantee = "least, greatest, count", "a nested value", "exact"
    takes = DOUBLES
    own_state = PlainState("shaped", {"low": LEAST, "high": GREATEST, "count": COUNT})
    shape: ClassVar[str] = "map"

    def finish_states(self, states):
        dtype, create_value = SHAPES[self.shape]
        columns = (states.field(name).to_pylist() for name in ("low", "high", "count"))
        rows = [create_value(low, high, n) if n else None for low, high, n in zip(*columns, strict=True)]
        return pa.array(rows, dtype)


def _function_of_shape(shape: str) -> type[ShapedFunction]:
    """Return the function of a shape."""
    name = f"shaped_{shape}"
    function_class = type(
        name,
        (ShapedFunction,),
        {"name": name, "shape": shape, "__module__": __name__, "__doc__": ShapedFunction.__doc__},
    )
    return dataclass(frozen=True)(function_class)


FUNCTIONS = {shape: _function_of_shape(shape) for shape in SHAPES}
globals().update({function_class.__name__: function_class for function_class in FUNCTIONS.values()})


def expected(shape: str, values: list[float]) -> Any:
    """Return the result for the values of one group, as Arrow converts it to Python."""
    dtype, create_value = SHAPES[shape]
    return pa.scalar(create_value(min(values), max(values), len(values)), dtype).as_py()
