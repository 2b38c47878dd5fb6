"""The interface of an ordered window: it maps rows in the order of key and time to ranges of rows.

    rows of a key   0   1   2   3   4   5   6
    count(3)        [0      3)[3        6)          each range is one output: the rows [first, last)
    running()       [0  1)
                    [0      2)
                    [0          3)  …

The window of a row depends on the previous rows of its key. Rows must therefore be sorted. Rows of equal times are in
the order of their arrival. Positions count the rows of a key from 0, across batches. A `Carry` is the state of the keys
between two batches, so that any split of the rows into batches gives the same ranges.

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
    """A condition in SQL that a window evaluates for every row. The result is an array of bool, in which null becomes
    false.

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
    """A column with the weight of each row: an array of int64, without negative values.

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
    """A batch of rows in the order of key and time.

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
        """The key of each row."""
        return np.repeat(np.arange(len(self.heads)), self.lengths)


class Carry(NamedTuple):
    """The state of each key between two batches.

    Parameters
    ----------
    position : array of int64, shape (keys,)
        The position of the key's next row, which is the number of its previous rows.
    counts : array of int64, shape (keys,)
        For each key, the number of positions in ``open_starts``.
    open_starts : array of int64, shape (counts.sum(),)
        The positions at which a later range may begin, sorted by key, ascending.
    numbers : dict of name -> array of int64, shape (keys,)
        Other numbers of the window, as declared by `OrderedWindow.numbers`.
    """

    position: Ints
    counts: Ints
    open_starts: Ints
    numbers: Mapping[str, Ints]


class Ranges(NamedTuple):
    """The outputs of a batch, in the order of the rows that trigger them.

    Parameters
    ----------
    key : array of int64, shape (outputs,)
    first, last : arrays of int64, shape (outputs,)
        Output ``i`` covers the rows ``[first[i], last[i])`` of its key. Rows are counted from the first row of the key.
        Neither array decreases within a key.
    row : array of int64, shape (outputs,)
        The row of the batch that triggers the output. The time of this row is the time of the output.
    """

    key: Ints
    first: Ints
    last: Ints
    row: Ints


@dataclass(frozen=True)
class OrderedWindow(ABC):
    """A kind of window over ordered rows.

    An implementation is a frozen dataclass with `ranges`; with `reads` if it reads more than times; and with `numbers`
    if its carry contains numbers. `windows.ordered.testing.check` tests the contract.
    """

    per_row: ClassVar[bool] = False  # whether every row triggers one output, so that ranges overlap
    numbers: ClassVar[Mapping[str, int]] = {}  # the numbers of a carry, with their initial values

    @property
    def reads(self) -> tuple[Input, ...]:
        """The inputs that the window reads from rows, in addition to times."""
        return ()

    @property
    def least_rows(self) -> int:
        """The minimum number of rows of a window; results of smaller windows are null."""
        return 0

    @abstractmethod
    def ranges(self, rows: Rows, carry: Carry) -> tuple[Ranges, Carry]:
        """Return the outputs that a batch of rows triggers.

        Parameters
        ----------
        rows : Rows
            The rows of the same keys as the carry. Keys without rows have the length 0.
        carry : Carry
            The result of `start`, or the carry that the previous call returned.

        Returns
        -------
        ranges : Ranges
        carry : Carry
            The outputs, and the carry for the next batch. The argument is not changed.

        Guarantee
        ---------
        Any split of the rows into batches must give the same ranges and the same last carry.
        """

    def start(self, keys: int) -> Carry:
        """Return the initial carry.

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
