"""running: results of a table's rows in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from aggr import Measure
from tiltframe.files.read_options import ReadOptions
from tiltframe.ordered.aggregation import RunningAggregation
from tiltframe.ordered.batches import some_batches
from tiltframe.tabular import whole_or_batches
from windows.ordered import OrderedWindow, Tick


def running(
    data: Any,
    measures: Mapping[str, Measure],
    window: OrderedWindow | str | Mapping[str, OrderedWindow | str] | None = None,
    *,
    time: str,
    keys: Sequence[str] | Mapping[str, str] = (),
    order: Sequence[str] = (),
    ticks: Tick | str | Sequence[Tick | str] = (),
    emit: str = "rows",
    reading: ReadOptions | None = None,
) -> pa.Table:
    """Aggregate rows in the order of key and time: by default a result for every row.

    Parameters
    ----------
    data : table, or batches
        A table in any order, or whatever `tiltframe.rollup` takes for one; batches must follow each other in time,
        within a key.
    measures : name -> measure
        As made by `aggr.count`, `aggr.dds` and the others. ``first`` and ``last`` without ``by=`` go by the order of
        rows.
    window : an ordered window, its text, or measure -> window
        Of `windows.ordered`; all rows of the key so far for those that none is given for.
    time : str
        The column of event times, of any type that a tilt frame takes.
    keys : column names, or name -> column or expression
        Windows are kept per key. Null is a legal key. ``{"route": "lower(route)"}`` keeps them per value of an
        expression in SQL, ``{"tag": each("tags")}`` per element of a list: a row then comes once per element.
    order : column names
        What rows of equal times are ordered by; then, and without any, by their arrival.
    ticks : ticks
        That there are results at, beside those of the window.
    emit : ``rows``, ``ticks`` or ``final``
        ``rows``: a result for each row and each tick; of windows that follow each other (count, weighted_count,
        interval, session, emit_when) one for each that is over. ``ticks``: those at ticks only. ``final``: one for each
        key, the last; of windows that follow each other the one that is still open, if there is one.
    reading : ReadOptions, optional
        What files, or a table, do not say of themselves, as `tiltframe.rollup` takes it.

    Returns
    -------
    table
        In the order of keys, time, ``order`` and arrival. For each row: its columns, its keys that are computed, in
        place of a column of the same name, and a column for each measure.
        Where there are ticks, ``tick`` says which rows are theirs, the time is in microseconds UTC, and their other
        columns are null. Otherwise keys, time and measures; the time of a window is that of the row which closes it.

    Raises
    ------
    ValueError, TypeError
        If the data does not fit, or the name of a measure is a column's.

    Guarantee
    ---------
    The same bits whatever the batches. Sorted input is not sorted again.

    Examples
    --------
    >>> import aggr
    >>> table = pa.table({"ts": [0, 1, 2, 3], "n": [5, 2, 13, 4]})
    >>> totals = running(table, {"total": aggr.sum("n")}, time="ts")
    >>> totals.column("total").to_pylist()
    [5, 7, 20, 24]
    >>> running(totals, {"pairs": aggr.sum("n")}, "count(2)", time="ts").column("pairs").to_pylist()
    [7, 17]
    """
    made = RunningAggregation(measures, window, time=time, keys=keys, order=order, ticks=ticks, emit=emit)
    rows = whole_or_batches(data, "data", time, list(keys), reading)
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        return made.finish(rows)
    parts = [made.add(batch) for batch in some_batches(rows)]
    return pa.concat_tables([*parts, made.finish()])
