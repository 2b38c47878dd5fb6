"""The contract of an ordered window: rows in the order of key and time, to ranges of rows.

    rows of a key   0   1   2   3   4   5   6
    count(3)        [0      3)[3        6)          each range is one output: the rows [first, last)
    running()       [0  1)
                    [0      2)
                    [0          3)  …

The window of a row depends on the rows before it in its key, so that rows must come in order; those of equal times in
the order of their arrival. Positions count the rows of a key from its very first one. A `Carry` says where a key has
got to, so that batches follow each other: any split of the rows into batches gives the same ranges.

Times are microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggr.arguments import is_name, shown
from windows.ordered.ticks import Tick

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Condition:
    """A condition in SQL that a window reads of every row: an array of bool, false if it is null.

    Parameters
    ----------
    text : str
        SQL, as `docs/conditions.md` describes it: ``"status >= 500"``.

    Raises
    ------
    ValueError
        If it is no text, or blank. What it says is checked against the data.
    """

    text: str

    def __post_init__(self) -> None:
        if not is_name(self.text):
            raise ValueError(f'a condition is SQL as text, say "status >= 500"; got {shown(self.text)}')


@dataclass(frozen=True)
class Weight:
    """A column that says how much a row counts: an array of int64, none negative.

    Parameters
    ----------
    column : str
        Its name.

    Raises
    ------
    ValueError
        If it is no name.
    """

    column: str

    def __post_init__(self) -> None:
        if not is_name(self.column):
            raise ValueError(f"a weight is the name of a column; got {shown(self.column)}")


Input = Condition | Weight | Tick
EVERY_ROW = Condition("true")


class Rows(NamedTuple):
    """A batch of rows in the order of key and time.

    Parameters
    ----------
    heads, lengths : arrays of int64, shape (keys,)
        The rows of key ``k`` are ``[heads[k], heads[k] + lengths[k])``.
    times : array of int64, shape (rows,)
        Microseconds UTC; they never decrease within a key.
    inputs : dict of Input -> array, shape (rows,)
        One for each `OrderedWindow.reads`: bool of a `Condition` or a `Tick`, int64 of a `Weight`.
    """

    heads: Ints
    lengths: Ints
    times: Ints
    inputs: Mapping[Input, NDArray[Any]]

    @property
    def keys(self) -> Ints:
        """The key of each row."""
        return np.repeat(np.arange(len(self.heads)), self.lengths)


class Carry(NamedTuple):
    """What a window remembers of each key from one batch to the next.

    Parameters
    ----------
    position : array of int64, shape (keys,)
        The position of the key's next row: how many rows it has had.
    counts : array of int64, shape (keys,)
        How many open starts each key has.
    open_starts : array of int64, shape (counts.sum(),)
        By key, ascending: the positions at which a later range may begin.
    numbers : dict of name -> array of int64, shape (keys,)
        What else a window must remember, as `OrderedWindow.numbers` names it.
    """

    position: Ints
    counts: Ints
    open_starts: Ints
    numbers: Mapping[str, Ints]


class Ranges(NamedTuple):
    """The outputs of a batch, in the order of the rows that bring them about.

    Parameters
    ----------
    key : array of int64, shape (outputs,)
    first, last : arrays of int64, shape (outputs,)
        Output ``i`` covers the rows ``[first[i], last[i])`` of its key, by their positions. Neither decreases within a
        key.
    row : array of int64, shape (outputs,)
        The row of the batch that brings the output about; the time of the output is that row's.
    """

    key: Ints
    first: Ints
    last: Ints
    row: Ints


@dataclass(frozen=True)
class OrderedWindow(ABC):
    """A kind of window over rows in order.

    An implementation is a frozen dataclass with `ranges`, `reads` if it reads more than times, and `numbers` if it
    remembers any. `windows.ordered.testing.check` proves that it obeys the contract.
    """

    per_row: ClassVar[bool] = False  # whether every row brings about one output, so that ranges overlap
    numbers: ClassVar[Mapping[str, int]] = {}  # what a carry remembers of a key, and with which value it begins

    @property
    def reads(self) -> tuple[Input, ...]:
        """What the window reads of rows, next to their times."""
        return ()

    @property
    def least_rows(self) -> int:
        """How many rows a window must have for its results not to be null."""
        return 0

    @abstractmethod
    def ranges(self, rows: Rows, carry: Carry) -> tuple[Ranges, Carry]:
        """Find the ranges of the outputs that a batch of rows brings about.

        Parameters
        ----------
        rows : Rows
            Of as many keys as the carry has, some perhaps without rows.
        carry : Carry
            From `start`, or from the batch before.

        Returns
        -------
        ranges : Ranges
        carry : Carry
            For the next batch; the one that was given stays unchanged.

        Guarantee
        ---------
        Any split of the rows into batches gives the same ranges and the same last carry.
        """

    def start(self, keys: int) -> Carry:
        """Make the carry of keys without rows.

        Parameters
        ----------
        keys : int
            How many.

        Returns
        -------
        Carry
        """
        zeros = np.zeros(keys, np.int64)
        numbers = {name: np.full(keys, value, np.int64) for name, value in self.numbers.items()}
        return Carry(zeros, np.ones(keys, np.int64), zeros, numbers)
