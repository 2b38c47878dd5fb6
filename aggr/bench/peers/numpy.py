"""NumPy's ``bincount`` as a reference time: one pass over rows whose groups are already numbered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.bench.costs import GROUP
from aggr.bench.peers.contract import Peer
from aggr.call_text import read_call

_CALLS = ("sum", "count")


class NumPy(Peer):
    """The floating-point sum of a numeric column per group, ``sum(x)``, or the number of rows per group, ``count(x)``.

    The sum is computed in double precision in the order of the rows, so it is neither exact nor independent of the
    order. Its time is a reference for the speed of a machine.
    """

    name = "numpy"
    package = "numpy"

    def check(self) -> None:
        """Raise an error unless the expression is ``sum(COLUMN)`` or ``count(COLUMN)``."""
        self._call()

    def prepare(self, rows: pa.Table, group_count: int) -> Callable[[], Any]:
        """Return the call that computes the sum of the column, or the number of rows, for each group."""
        name, column = self._call()
        if column not in rows.column_names:
            raise ValueError(
                f"{self}: there is no column {shown(column)}; the rows have {', '.join(rows.column_names)}"
            )
        ids = np.asarray(rows.column(GROUP).to_numpy(), np.intp)
        if name == "count":
            return lambda: np.bincount(ids, minlength=group_count)
        values = rows.column(column).cast(pa.float64()).to_numpy()
        has_rows = np.bincount(ids, minlength=group_count) > 0
        if has_rows.all():
            return lambda: np.bincount(ids, values, minlength=group_count)
        return lambda: np.bincount(ids, values, minlength=group_count)[has_rows]

    def results(self, answer: Any) -> Sequence[Any]:
        """Return the results, which are already ordered by group."""
        results: list[Any] = answer[answer > 0].tolist() if self._call()[0] == "count" else answer.tolist()
        return results

    def _call(self) -> tuple[str, str]:
        """Return the function that the expression calls, ``sum`` or ``count``, and its column. Raise ``ValueError``
        unless the expression is ``sum(COLUMN)`` or ``count(COLUMN)``.
        """
        call = read_call(self.expression)
        if call is None or call.name not in _CALLS or len(call.arguments) != 1 or call.arguments[0][0] is not None:
            raise ValueError(
                f"cannot read {shown(str(self))} as a peer; write numpy:sum(COLUMN) or numpy:count(COLUMN)"
            )
        return call.name, call.arguments[0][1]
