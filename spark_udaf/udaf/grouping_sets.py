"""Grouping sets: the totals of rollup and cube, merged from the states of the finest groups.

host   shelf   states        host   shelf   set   states
a      1       s       ──▶   a      1       0     s
a      2       t             a      2       0     t
                             a      null    1     s, t
                             null   null    3     s, t

The column ``set`` contains the number of the grouping set: one bit for each key that the set omits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_udaf.batch.running import quoted_column


def rollup_sets(key_count: int) -> list[int]:
    """Return the numbers of the grouping sets of a rollup. A number equals Spark's ``grouping_id``: one bit for each
    omitted key, with the last key as the lowest bit.

    >>> rollup_sets(2)
    [0, 1, 3]
    """
    return [(1 << omitted_count) - 1 for omitted_count in range(key_count + 1)]


def cube_sets(key_count: int) -> list[int]:
    """Return the numbers of the grouping sets of a cube, as `rollup_sets` does.

    >>> cube_sets(2)
    [0, 1, 2, 3]
    """
    return list(range(1 << key_count))


def repeat_per_set(
    states: DataFrame, columns_of_keys: Sequence[Sequence[str]], sets: Sequence[int], set_column: str
) -> DataFrame:
    """Return each row of states once per grouping set. Keys that the set omits are null.

    Parameters
    ----------
    states : DataFrame
        One row per group of all keys.
    columns_of_keys : for each key, the names of its columns
    sets : numbers from `rollup_sets` or `cube_sets`
    set_column : the name of the column that receives the number of the set
    """
    key_indices = {column_name: index for index, names in enumerate(columns_of_keys) for column_name in names}
    repeated_states = states.withColumn(set_column, F.explode(F.array(*map(F.lit, sets))))
    number = quoted_column(set_column)
    columns: Mapping[str, Column] = {name: quoted_column(name) for name in states.columns}
    last = len(columns_of_keys) - 1
    key_values = {
        name: F.when(number.bitwiseAND(1 << (last - key_indices[name])) == 0, column) if name in key_indices else column
        for name, column in columns.items()
    }
    return repeated_states.select(*(column.alias(name) for name, column in key_values.items()), number)
