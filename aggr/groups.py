"""Groups: which group each row belongs to, as dense ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.plain import plain


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Dense group ids: row ``i`` belongs to group ``ids[i]``, and there are ``n`` groups.

    Parameters
    ----------
    ids : array of intp, shape (rows,)
        Each in ``[0, n)``. A group may have no rows at all.
    n : int
        How many groups there are.

    Examples
    --------
    >>> Groups.of([0, 2, 0], 3).counts()
    array([2, 0, 1])
    """

    ids: NDArray[np.intp]
    n: int

    @classmethod
    def of(cls, ids: Sequence[int] | NDArray[np.integer], n: int) -> Groups:
        """Make groups from any integers, checked; raises ``ValueError`` for an id outside ``[0, n)``."""
        given = np.asarray(ids) if len(ids) else np.zeros(0, np.intp)
        if given.dtype.kind not in "iu" or given.ndim != 1 or n < 0:
            raise ValueError(
                f"group ids must be whole numbers in one dimension; got {given.dtype}, {given.ndim}-D, n={n}"
            )
        dense = np.ascontiguousarray(given, dtype=np.intp)
        if len(dense) and not (dense.min() >= 0 and dense.max() < n):
            raise ValueError(f"group ids must lie in [0, {n}); got {dense.min()} … {dense.max()}")
        return cls(dense, n)

    @classmethod
    def single(cls, rows: int) -> Groups:
        """Put all rows into one group."""
        return cls(np.zeros(rows, np.intp), 1)

    @classmethod
    def each(cls, rows: int) -> Groups:
        """Put every row into a group of its own."""
        return cls(np.arange(rows, dtype=np.intp), rows)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)

    def where(self, rows: NDArray[np.bool_]) -> Groups:
        """Keep the rows that are true; the groups stay, some perhaps without rows."""
        return Groups(self.ids[rows], self.n)

    def counts(self) -> NDArray[np.int64]:
        """Return how many rows each group has, shape (n,)."""
        return np.bincount(self.ids, minlength=self.n)


def group_by(columns: Sequence[pa.Array], rows: int) -> tuple[Groups, NDArray[np.intp]]:
    """Group the rows that agree in every column; null agrees with null.

    Parameters
    ----------
    columns : arrays of any hashable Arrow type, each of length ``rows``
        No columns at all means one group. Floats agree where their bits do.
    rows : int
        How many rows there are.

    Returns
    -------
    groups : Groups
        Every group has at least one row.
    first : array of intp, shape (groups.n,)
        The index of each group's first row, to take the keys from.

    Examples
    --------
    >>> groups, first = group_by([pa.array(["a", "b", "a", None])], 4)
    >>> groups.ids, first
    (array([0, 1, 0, 2]), array([0, 1, 3]))
    """
    codes, bound = np.zeros(rows, np.int64), 1
    for column in columns:
        code, size = _codes(plain(column))
        if bound * size >= 2**62:
            codes, bound = _dense(codes, bound)
        codes, bound = codes * size + code, bound * size
    ids, n = _dense(codes, bound)
    first = np.empty(n, np.intp)
    first[ids[::-1]] = np.arange(rows - 1, -1, -1)
    return Groups(ids, n), first


def _codes(column: pa.Array) -> tuple[NDArray[np.int64], int]:
    """Number a column's values from 0, equal values alike, and bound the numbers from above."""
    whole = pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type)
    if whole and not column.null_count and column.type != pa.uint64() and len(column):
        values = column.to_numpy(zero_copy_only=False).astype(np.int64)
        low, high = int(values.min()), int(values.max())
        if high - low < 4 * len(values):
            return values - low, high - low + 1
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), max(1, len(encoded.dictionary))


def _dense(codes: NDArray[np.int64], bound: int) -> tuple[NDArray[np.intp], int]:
    """Renumber codes in ``[0, bound)`` so that every number occurs."""
    if bound <= max(4 * len(codes), 1024):
        seen = np.zeros(bound, np.bool_)
        seen[codes] = True
        rank = np.cumsum(seen) - 1
        return rank[codes], int(seen.sum())
    unique, ids = np.unique(codes, return_inverse=True)
    return ids.astype(np.intp), len(unique)
