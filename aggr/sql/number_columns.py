"""Number columns: an additional column with the numbers of a text column, for functions that read numbers.

``zip = '007'`` compares text, ``zip > 100`` compares numbers. If a column is used in both ways, a table may contain it
twice: the original text, and a column of its numbers, `number_column`. Each expression uses the column that it needs.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

_NUMBERS_OF = "\ue000"  # a character of Unicode's private use area, which does not occur in the names of users' columns


class Use(Enum):
    """How an expression uses the values of a column.

    ``TEXT``: as text. ``NUMBER``: as numbers. ``ORDER``: for comparisons with other values. ``KEEP``: the values are
    copied unchanged. ``ANY``: the type does not matter, for example if only nulls are counted. ``VALUE``: the
    expression returns the values themselves, so their use depends on the caller that evaluates it.
    """

    TEXT = "text"
    KEEP = "keep"
    NUMBER = "number"
    ORDER = "order"
    ANY = "any"
    VALUE = "value"


def number_column(name: str) -> str:
    """Return the name of the number column of the text column ``name``.

    >>> number_column("price") == "price"
    False
    """
    return _NUMBERS_OF + name


def text_column(name: str) -> str:
    """Return the name of the text column of a number column. Other names are returned unchanged.

    >>> text_column(number_column("price"))
    'price'
    """
    return name.removeprefix(_NUMBERS_OF)


def column_to_read(name: str, names: Collection[str], use: Use) -> str:
    """Return the column that is read if an expression uses the column ``name`` in the way ``use``.

    For ``NUMBER`` and ``ORDER``, the result is the number column of ``name``, if the table has one. Otherwise, the
    result is ``name`` itself. ``names`` are the columns of the table.

    >>> column_to_read("price", ["price"], Use.NUMBER)
    'price'
    """
    numbers = number_column(name)
    return numbers if use in (Use.NUMBER, Use.ORDER) and numbers in names else name


def columns_needed(name: str, names: Collection[str], use: Use) -> tuple[str, ...]:
    """Return the columns that a table needs if an expression uses the column ``name`` in the way ``use``.

    They are the column itself, and the column that `column_to_read` returns.

    >>> columns_needed("price", ["price"], Use.NUMBER)
    ('price',)
    """
    return tuple(dict.fromkeys([name, column_to_read(name, names, use)]))
