"""The definition of an ordered window: it maps rows in the order of key and time to ranges of rows.

    rows of a key   0   1   2   3   4   5   6
    count(3)        [0      3)[3        6)          each range is one output: the rows [first, last)
    running()       [0  1)
                    [0      2)
                    [0          3)  …

An `OrderedWindow` defines such windows, and each range that `OrderedWindow.ranges` returns is one window. The window of
a row depends on the previous rows of its key. Rows must therefore be sorted. Rows of equal times are in the order of
their arrival. Positions count the rows of a key from 0, across batches. A `Carry` contains the data of each key that
the next batch needs, so that any split of the rows into batches gives the same ranges.

Times are microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggr.arguments import is_name, shown
from aggr.call_text import write_call
from windows.ordered.ticks import Tick

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Condition:
    """A condition in SQL that a window needs for every row. Its value is an array of bool, in which null counts
    as false.

    Parameters
    ----------
    text : str
        SQL, as `docs/conditions.md` describes it: ``"status >= 500"``.

    Raises
    ------
    ValueError
        If ``text`` is not a string, or is blank. Columns are checked when the data is known.
    """

    text: str

    def __post_init__(self) -> None:
        if not is_name(self.text):
            raise ValueError(f'a condition must be text in SQL, such as "status >= 500"; got {shown(self.text)}')


@dataclass(frozen=True)
class Weight:
    """A column of weights that a window needs for every row. Its value is an array of int64 of at least 0; a null is 0.

    Parameters
    ----------
    column : str
        The name of the column.

    Raises
    ------
    ValueError
        If ``column`` is not a name.
    """

    column: str

    def __post_init__(self) -> None:
        if not is_name(self.column):
            raise ValueError(f"a weight must be the name of a column; got {shown(self.column)}")


Input = Condition | Weight | Tick
EVERY_ROW = Condition("true")


class Rows(NamedTuple):
    """A batch of rows, sorted by key and time. If `OrderedWindow.reads` contains a `Tick`, the caller has inserted a
    row at each time of the tick. Such a row is not an event.

    Parameters
    ----------
    heads, lengths : arrays of int64, shape (keys,)
        The rows of key ``k`` are ``[heads[k], heads[k] + lengths[k])``.
    times : array of int64, shape (rows,)
        Microseconds UTC. They never decrease within a key.
    inputs : dict of Input -> array, shape (rows,)
        One array for each input in `OrderedWindow.reads`: bool for a `Condition` or a `Tick`, int64 for a `Weight`.
    """

    heads: Ints
    lengths: Ints
    times: Ints
    inputs: Mapping[Input, NDArray[Any]]

    @property
    def keys(self) -> Ints:
        """The integer id of each row's key."""
        return np.repeat(np.arange(len(self.heads)), self.lengths)


class Carry(NamedTuple):
    """The data of each key that a window definition passes from one batch to the next. Positions are counted from the
    first row of the key, across batches.

    Parameters
    ----------
    position : array of int64, shape (keys,)
        The position of the key's next row, which is the number of its previous rows.
    counts : array of int64, shape (keys,)
        For each key, the number of positions in ``open_starts``.
    open_starts : array of int64, shape (counts.sum(),)
        The positions at which a range in a later batch may begin, sorted by key and then by position.
    numbers : dict of name -> array of int64, shape (keys,)
        Other values of each key that the next batch needs. Their names are those in `OrderedWindow.numbers`.
    """

    position: Ints
    counts: Ints
    open_starts: Ints
    numbers: Mapping[str, Ints]


class Ranges(NamedTuple):
    """The ranges of rows that a batch completes, one for each output, in the order of the rows that trigger them.

    Parameters
    ----------
    key : array of int64, shape (outputs,)
        The integer id of each output's key.
    first, last : arrays of int64, shape (outputs,)
        Output ``i`` covers the rows ``[first[i], last[i])`` of its key: ``last[i]`` is the row after the last row of
        the range. Rows are counted from the first row of the key. Neither array decreases within a key.
    row : array of int64, shape (outputs,)
        The row of the batch that triggers the output. The time of this row is the time of the output.
    """

    key: Ints
    first: Ints
    last: Ints
    row: Ints


@dataclass(frozen=True)
class OrderedWindow(ABC):
    """The base class of definitions of windows over ordered rows.

    A subclass is a frozen dataclass that defines `ranges`. It also defines `reads` if it uses more than the times of
    rows, and `numbers` if its `Carry` contains other values of each key. If it defines `kind` and is registered
    (`windows.register`), it can be read from text. `windows.ordered.testing.check` checks a subclass.
    """

    # the first word of a window's text, such as ``count`` in ``count(100)``
    kind: ClassVar[str] = ""
    # whether every row triggers exactly one output; ranges then overlap
    per_row: ClassVar[bool] = False
    # The names of the values in `Carry.numbers`, each with the value that every key has before its first row.
    numbers: ClassVar[Mapping[str, int]] = {}

    @property
    def reads(self) -> tuple[Input, ...]:
        """The conditions, weights and ticks that the window needs for every row."""
        return ()

    @property
    def least_rows(self) -> int:
        """The minimum number of rows of a window. Results of windows with fewer rows are null."""
        return 0

    @abstractmethod
    def ranges(self, rows: Rows, carry: Carry) -> tuple[Ranges, Carry]:
        """Return the ranges of rows that a batch completes, and the carry for the next batch.

        Parameters
        ----------
        rows : Rows
            A batch. Its keys have the same ids as in ``carry``; the length of a key without rows is 0.
        carry : Carry
            The result of `start` for the first batch, and the carry of the previous call for the others.

        Returns
        -------
        ranges : Ranges
            The range and the triggering row of each output, in the order of the triggering rows.
        carry : Carry
            The carry for the next batch, a new object.

        Guarantee
        ---------
        The ranges of all rows, and the last carry, must not depend on how the rows are split into batches.
        """

    def __str__(self) -> str:
        """Return the text of the window: a call of `kind`, with the fields that differ from their defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        differing = {field.name: values[field.name] for field in fields(self) if values[field.name] != field.default}
        word = self.kind or type(self).__name__
        return write_call(word, differing) if differing else f"{word}()"

    def start(self, keys: int) -> Carry:
        """Return the carry before the first batch of rows.

        Parameters
        ----------
        keys : int
            The number of keys.

        Returns
        -------
        Carry
        """
        zeros = np.zeros(keys, np.int64)
        numbers = {name: np.full(keys, value, np.int64) for name, value in self.numbers.items()}
        return Carry(zeros, np.ones(keys, np.int64), zeros, numbers)
