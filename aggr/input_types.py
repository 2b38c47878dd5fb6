"""Rules for the columns that a function takes: the allowed types, their description, and the use of the values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow.normalize import is_number
from aggr.arrow.sort_keys import has_order, is_ordered_record
from aggr.exact.number_columns import kept_type
from aggr.sql.number_columns import Use


@dataclass(frozen=True)
class InputTypes:
    """A rule for an input of a function: the types of the column, and how the function uses its values.

    Parameters
    ----------
    words : str
        The allowed types, for error messages: ``"integers and floats"``.
    sentence : str
        The allowed types, in the form of a sentence about a parameter.
    allows : function of a type
        A function that returns whether a normalized type is allowed.
    text_use : Use
        How the function uses a column of texts. By default, it copies the texts unchanged, `Use.KEEP`. Rules that do
        not allow texts ignore this parameter.
    takes_records : bool
        Whether a call may pass a list of columns, which stands for one record.
    """

    words: str
    sentence: str
    allows: Callable[[pa.DataType], bool]
    text_use: Use = Use.KEEP
    takes_records: bool = False

    @property
    def use(self) -> Use:
        """How the function uses the values of the column: as numbers if the rule does not allow texts, otherwise
        ``text_use``.
        """
        return self.text_use if self.allows(pa.string()) else Use.NUMBER

    def compared(self) -> InputTypes:
        """Return this rule for a column whose values are compared with each other, such as the column of ``min``. If
        the table contains a column both as text and as numbers, the numbers are compared.

        >>> ORDERED.compared().use
        <Use.ORDER: 'order'>
        """
        return replace(self, text_use=Use.ORDER)

    def described(self, sentence: str) -> InputTypes:
        """Return this rule with another sentence, for a column that needs more explanation than its types.

        >>> NUMBERS.described("A column of counts.").sentence
        'A column of counts.'
        """
        return replace(self, sentence=sentence)

    def check(self, function: str, dtype: pa.DataType) -> None:
        """Raise ``TypeError`` for a type that the rule does not allow; the message names the allowed types."""
        if not self.allows(dtype):
            hint = "; cast it to an integer" if pa.types.is_boolean(dtype) else ""
            raise unsupported_input(function, dtype, self.words, hint)


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


ANY = InputTypes(
    "every type that marks its nulls", "Of any type.", lambda dtype: not pa.types.is_union(dtype), text_use=Use.ANY
)
ORDERED = InputTypes(
    "types that have an order: numbers, booleans, dates, times, timestamps, strings and bytes",
    "A column of a type that has an order: numbers, booleans, dates, times, timestamps, strings or bytes.",
    has_order,
)
ORDERED_OR_RECORDS = InputTypes(
    f"{ORDERED.words}, and records of them",
    f"{ORDERED.sentence[:-1]}, or records of them.",
    lambda dtype: has_order(dtype) or is_ordered_record(dtype),
    takes_records=True,
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
