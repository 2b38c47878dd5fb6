"""The limit of the number of different keys in open windows. Rows with a new key beyond the limit either raise an error
or are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import checked_whole, shown
from aggr.groups.groups import Groups, group_by
from aggr.tables.keys import key_column
from tiltframe.parameter_names import argument_text, by_caller, parameter_text

BEYOND = ("error", "drop")


@dataclass(frozen=True)
class KeyLimit:
    """The maximum number of different keys in open windows (None: no limit), and the action for rows with further keys,
    ``error`` or ``drop``.
    """

    keys: tuple[str, ...]  # the names of the key columns
    max_keys: int | None
    beyond: str

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if an argument is invalid."""
        if self.max_keys is not None:
            checked_whole(self.max_keys, parameter_text("max_keys"), 1)
        if not isinstance(self.beyond, str) or self.beyond not in BEYOND:
            raise ValueError(f"the argument beyond must be one of {', '.join(BEYOND)}; got {shown(self.beyond)}")

    def mask_beyond_limit(self, indices: Sequence[pa.Table], panes: pa.Table) -> NDArray[np.bool_]:
        """Return a mask of the panes to drop because their key is beyond the limit. If ``beyond`` is ``error``, raise
        ``ValueError`` if there are such panes.

        Parameters
        ----------
        indices : sequence of table
            One table per level, with the keys of the windows in memory. These keys are always accepted.
        panes : table
            New panes. A pane is the shortest window to which rows are reduced when they arrive. New keys are accepted
            in the order of the panes until there are ``max_keys`` keys.
        """
        none = np.zeros(panes.num_rows, np.bool_)
        if self.max_keys is None:
            return none
        groups = self._keys_of([*indices, panes])
        is_known = np.zeros(groups.n, np.bool_)
        is_known[groups.ids[: len(groups) - panes.num_rows]] = True
        is_beyond = ~is_known & (np.cumsum(~is_known) > self.max_keys - int(is_known.sum()))
        if not is_beyond.any():
            return none
        if self.beyond == "error":
            raise ValueError(
                f"there would be {groups.n:,} keys in open windows, and the limit is "
                f"{argument_text('max_keys', self.max_keys)}; use fewer keys, or a greater limit"
                + by_caller("", ", or beyond='drop', which counts and drops the rows of further keys")
            )
        return is_beyond[groups.ids[len(groups) - panes.num_rows :]]

    def number_keys(self, indices: Sequence[pa.Table]) -> tuple[int, list[NDArray[np.intp]]]:
        """Return the number of different keys in the tables ``indices`` and, for each table, an array with the integer
        id of each row's key. Equal keys have the same id in all tables.
        """
        if not indices:
            return 0, []
        groups = self._keys_of(indices)
        return groups.n, np.split(groups.ids, np.cumsum([index.num_rows for index in indices])[:-1])

    def _keys_of(self, tables: Sequence[pa.Table]) -> Groups:
        """Group the rows of all tables by their keys. The rows are numbered in the order of the tables."""
        keys = pa.concat_tables([table.select(list(self.keys)) for table in tables]) if self.keys else None
        rows = sum(table.num_rows for table in tables)
        columns = [] if keys is None else [key_column(keys.column(name)) for name in self.keys]
        return group_by(columns, rows)[0]
