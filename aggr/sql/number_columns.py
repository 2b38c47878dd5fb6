"""Number columns: a second column with the numbers of a column of text, for readers of numbers.

``zip = '007'`` compares text, ``zip > 100`` numbers. If a column is read both ways, a table may contain it twice: the
original text, and a column of its numbers, `number_column`. Each reader uses the column that it needs.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

_NUMBERS_OF = "\ue000"  # from the private use area, so that it does not occur in a user's column names


class Use(Enum):
    """How values of a column are read.

    ``TEXT`` needs text, ``KEEP`` keeps them unchanged, ``NUMBER`` is for arithmetic, ``ORDER`` compares them,
    ``ANY`` looks for nulls only, and ``VALUE`` passes them on to the reader of the expression.
    """

    TEXT = "text"
    KEEP = "keep"
    NUMBER = "number"
    ORDER = "order"
    ANY = "any"
    VALUE = "value"


def number_column(name: str) -> str:
    """Return the name of the column with the numbers of a column of text.

    >>> number_column("price") == "price"
    False
    """
    return _NUMBERS_OF + name


def text_column(name: str) -> str:
    """Return the user's name of a column, which may be a column of numbers.

    >>> text_column(number_column("price"))
    'price'
    """
    return name.removeprefix(_NUMBERS_OF)


def column_read(name: str, names: Collection[str], use: Use) -> str:
    """Return the column that is read for a use of a column: itself, or its column of numbers if ``names`` has it.

    >>> column_read("price", ["price"], Use.NUMBER)
    'price'
    """
    numbers = number_column(name)
    return numbers if use in (Use.NUMBER, Use.ORDER) and numbers in names else name


def columns_of_use(name: str, names: Collection[str], use: Use) -> tuple[str, ...]:
    """Return the columns that a table needs for a use of a column: the column itself, and the column that is read.

    >>> columns_of_use("price", ["price"], Use.NUMBER)
    ('price',)
    """
    return tuple(dict.fromkeys([name, column_read(name, names, use)]))
