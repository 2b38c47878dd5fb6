"""Input types: rules for the columns that a function takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow.normalize import is_number
from aggr.arrow.sort_keys import has_order, is_ordered_record
from aggr.exact.number_columns import kept_type


@dataclass(frozen=True)
class InputTypes:
    """A rule for the type of a column.

    Parameters
    ----------
    words : str
        The allowed types, for error messages: ``"integers and floats"``.
    sentence : str
        The allowed types, in the form of a sentence about a parameter.
    allows : function of a type
        A function that returns whether a normalized type is allowed.
    """

    words: str
    sentence: str
    allows: Callable[[pa.DataType], bool]

    def check(self, function: str, dtype: pa.DataType) -> None:
        """Raise ``TypeError`` for a type that the rule does not allow; the message names the allowed types."""
        if not self.allows(dtype):
            cast = "; cast it to an integer" if pa.types.is_boolean(dtype) else ""
            raise unsupported_input(function, dtype, self.words, cast)


def unsupported_input(function: str, dtype: pa.DataType, takes: str, hint: str = "") -> TypeError:
    """Return the error for an input that a function does not take.

    Parameters
    ----------
    function : str
        The name of the function.
    dtype : pa.DataType
        The type of the column.
    takes : str
        The allowed types: ``"integers and floats"``.
    hint : str
        How to correct the call; this text follows ``takes``.

    Returns
    -------
    TypeError
        The error, which is not raised here.
    """
    return TypeError(f"{function} cannot take a column of type {shown(dtype)}; it takes {takes}{hint}")


ANY = InputTypes("every type that marks its nulls", "Of any type.", lambda dtype: not pa.types.is_union(dtype))
ORDERED = InputTypes(
    "types that have an order: numbers, booleans, dates, times, timestamps, strings and bytes",
    "A column of a type that has an order: numbers, booleans, dates, times, timestamps, strings or bytes.",
    has_order,
)
ORDERED_OR_RECORDS = InputTypes(
    f"{ORDERED.words}, and records of them",
    f"{ORDERED.sentence[:-1]}, or records of them.",
    lambda dtype: has_order(dtype) or is_ordered_record(dtype),
)
NUMBERS = InputTypes("integers, floats and decimals", "A column of integers, floats or decimals.", is_number)
BOOLEANS = InputTypes("booleans", "Of booleans.", pa.types.is_boolean)
INTEGERS = InputTypes("integers", "Of integers.", pa.types.is_integer)
TIMES = InputTypes("timestamps", "Of timestamps.", pa.types.is_timestamp)
SUMMABLE = InputTypes(
    "integers, floats, decimals of up to 38 digits",
    "A column of integers, floats or decimals of up to 38 digits.",
    lambda dtype: kept_type(dtype) is not None and not pa.types.is_timestamp(dtype),
)
SUMMABLE_OR_TIMES = InputTypes(
    "integers, floats, decimals of up to 38 digits and timestamps",
    "A column of integers, floats, decimals of up to 38 digits, or timestamps.",
    lambda dtype: kept_type(dtype) is not None,
)
