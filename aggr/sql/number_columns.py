"""Number columns: an additional column with the numbers of a text column, for functions that read numbers.

``zip = '007'`` compares text, ``zip > 100`` compares numbers. If a column is used in both ways, a table may contain it
twice: the original text, and a column of its numbers, `number_column`. Each expression uses the column that it needs.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

_NUMBERS_OF = "\ue000"  # from Unicode's private use area, so that it does not occur in a user's column names


class Use(Enum):
    """How the values of a column are used.

    ``TEXT`` needs text, ``KEEP`` copies the values unchanged, ``NUMBER`` computes with them, ``ORDER`` compares them,
    ``ANY`` only looks for nulls, and ``VALUE`` passes them to the surrounding expression.
    """

    TEXT = "text"
    KEEP = "keep"
    NUMBER = "number"
    ORDER = "order"
    ANY = "any"
    VALUE = "value"


def number_column(name: str) -> str:
    """Return the name of the column with the numbers of a text column.

    >>> number_column("price") == "price"
    False
    """
    return _NUMBERS_OF + name


def text_column(name: str) -> str:
    """Return the user's name of a column that may be a column of numbers.

    >>> text_column(number_column("price"))
    'price'
    """
    return name.removeprefix(_NUMBERS_OF)


def column_read(name: str, names: Collection[str], use: Use) -> str:
    """Return the column to read for a use of a column: the column itself, or its column of numbers if ``names``
    contains it.

    >>> column_read("price", ["price"], Use.NUMBER)
    'price'
    """
    numbers = number_column(name)
    return numbers if use in (Use.NUMBER, Use.ORDER) and numbers in names else name


def columns_of_use(name: str, names: Collection[str], use: Use) -> tuple[str, ...]:
    """Return the columns that a table needs for a use of a column: the column itself, and the column that is read
    instead.

    >>> columns_of_use("price", ["price"], Use.NUMBER)
    ('price',)
    """
    return tuple(dict.fromkeys([name, column_read(name, names, use)]))
