"""Lookups: a query replaces a key of the frame by a key from a table. For example, the device is replaced by the site
of the device.

    device   site   valid_from                window 09:00, device d1 ──▶ berlin
    d1       berlin                           window 10:00, device d1 ──▶ paris
    d1       paris  2024-05-01T10:00Z         any window,   device d9 ──▶ null, with a warning

States whose keys get the same new value are merged. The results are the same as if the rows had the new key from the
start. Data warehouses call such tables slowly changing dimensions (Kimball): ``now`` corresponds to type 1, and
``as_of`` to type 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.extend.arguments import is_name, listed, nearest, shown
from aggr.extend.columns import compute as pc
from aggr.extend.columns import one_array
from aggr.extend.tables import ColumnUses, key_column
from tiltframe.extend import DerivedKey, consume, event_times, rows_of
from tiltframe.store.backends import INSTANT, instants_of
from windows import MIN_INSTANT

VALID = ("now", "as_of")
SINCE = "valid_from"


def lookup(key: str, table: Any, valid: str = "now") -> Lookup:
    """Return a key of results that replaces a key of the frame. For each value of the frame's key, ``table`` has the
    value of the new key. Pass the result to ``keys=`` of a query: ``keys={"site": lookup("device", table)}``.

    Parameters
    ----------
    key : str
        A key of the frame.
    table : table, DataFrame, stream or path
        The table. It has a column with the name of the frame's key, and one with the name of the new key. If it also
        has a column ``valid_from``, it may have several rows for a value of the frame's key. Each row is valid from its
        time in this column until the time of the next row for the value. A row whose time is null is valid from the
        beginning.
    valid : str
        ``now``: every window uses the row that is valid at the time ``now`` of the query. ``as_of``: every window of
        the stored level that the query reads uses the row that is valid at the start of this window. The level of the
        results may be coarser.

    Returns
    -------
    Lookup

    Raises
    ------
    ValueError
        If the table does not have the key's column, or has two rows for one key and time.

    Guarantee
    ---------
    States whose keys get the same new value are merged. The results are bit for bit the same as if the rows had the new
    key from the start. Values that are missing in the table become null, with the warning `tiltframe.store.Unmapped`.

    Examples
    --------
    >>> import aggr, tempfile
    >>> from tiltframe import FrameStore, TiltFrame
    >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["device"]))
    >>> store.append_rows(pa.table({"ts": [0, 0, 0], "device": ["d1", "d2", "d3"]}), writer="docs", commit=1)
    True
    >>> sites = pa.table({"device": ["d1", "d2", "d3"], "site": ["berlin", "paris", "berlin"]})
    >>> store.query("1h", keys={"site": lookup("device", sites)}, flat=True).select(["site", "n"]).to_pylist()
    [{'site': 'berlin', 'n': 2}, {'site': 'paris', 'n': 1}]
    """
    rows = rows_of(table, "the table of a lookup", columns=None, time=SINCE, uses=ColumnUses({key: key}))
    return Lookup(key, consume(rows, lambda rows: pa.Table.from_batches(rows.batches, rows.schema)), valid)


@dataclass(frozen=True)
class Lookup(DerivedKey):
    """A key of results that replaces a key of the frame, with values from a table. `lookup` returns it."""

    kind: ClassVar[str] = "lookup"
    call: ClassVar[str] = "lookup(KEY, table)"
    text: ClassVar[str] = "lookup(device, sites.csv, valid=as_of)"
    form: ClassVar[str] = '{"lookup": KEY, "table": {KEY: [...], NAME: [...]}}'
    make: ClassVar[Callable[..., DerivedKey]] = staticmethod(lookup)

    # a key of the frame
    key: str
    # a table with the key of the frame, one or more new keys, and optionally ``valid_from`` as columns
    table: pa.Table
    valid: str = "now"

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if a column is missing, or if two rows of the table have the same value of the key and
        the same time ``valid_from``.
        """
        if not is_name(self.key) or self.key not in self.table.column_names:
            raise ValueError(
                f"the table of a lookup needs a column with the name of the key; got {shown(self.key)} and the "
                f"columns {listed(self.table.column_names)}; rename a column of the table"
            )
        if self.valid not in VALID:
            raise ValueError(f"valid must be 'now' or 'as_of'; got {shown(self.valid)}")
        if self.valid == "as_of" and SINCE not in self.table.column_names:
            raise ValueError(
                f"valid='as_of' needs a column {SINCE} in the table, with the time from which each row is valid, or "
                f"null for always; got the columns {listed(self.table.column_names)}"
            )
        same_as_next = (self._order[:2, 1:] == self._order[:2, :-1]).all(axis=0)
        if same_as_next.any():
            value = self.table.column(self.key)[int(self._order[2, np.argmax(same_as_next)])].as_py()
            raise ValueError(
                f"the table of a lookup has the value {shown(value)} of {self.key} twice; it must have each value "
                f"once, or once for each {SINCE}; remove one of the rows"
            )

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """An int64 array of shape (3, rows). Each of its columns describes a row of the table by three numbers: the id
        of the key's value, the time from which the row is valid, in microseconds UTC, and the index of the row in the
        table. The columns are sorted by the first and the second number.
        """
        ids = one_array(self.table.column(self.key)).dictionary_encode("encode").indices.to_numpy()
        since = np.full(len(ids), MIN_INSTANT)
        if SINCE in self.table.column_names:
            begins = one_array(self.table.column(SINCE))
            since[begins.is_valid().to_numpy(zero_copy_only=False)] = event_times(begins.drop_null(), SINCE)
        order = np.lexsort((since, ids))
        return np.array([ids[order], since[order], order])

    def keys_of(self, rows: pa.Table, name: str, now: int) -> pa.Array:
        """Return the new key ``name`` of each row of states, of shape (rows,). The new key is read from the row of the
        table that is valid at ``now``, in microseconds UTC, or, with ``valid="as_of"``, at the start of the window. The
        new key is null if the table has no such row.
        """
        row_keys = one_array(rows.column(self.key))
        table_keys = self._converted_keys(rows.schema.field(self.key).type)
        key_numbers = pc.index_in(row_keys, value_set=table_keys).fill_null(-1).to_numpy().astype(np.int64)
        at = instants_of(rows) if self.valid == "as_of" else np.full(rows.num_rows, now)
        ids, since, places = self._order
        moments = np.unique(np.concatenate([since, at]))
        last = np.searchsorted(_ranks(ids, since, moments), _ranks(key_numbers, at, moments), side="right") - 1
        is_mapped = (
            (last >= 0) & (ids[np.maximum(last, 0)] == key_numbers)
            if len(ids)
            else np.zeros(len(key_numbers), np.bool_)
        )
        chosen = np.where(is_mapped, places[last] if len(ids) else 0, 0)
        return key_column(self.table.column(name)).take(pa.array(chosen, mask=~is_mapped))

    def _converted_keys(self, dtype: pa.DataType) -> pa.Array:
        """Return the different values of the frame's key in the table, converted to ``dtype``, the type of this key in
        the store. Raise ``ValueError`` if they cannot be converted, or if two of them become equal.
        """
        keys = one_array(self.table.column(self.key)).dictionary_encode("encode").dictionary
        try:
            converted = keys.cast(dtype)
        except pa.ArrowException as error:
            raise ValueError(
                f"the column {self.key!r} of the lookup's table cannot be converted to {dtype}, the key's type in the "
                f"store: {error}; correct the value, or convert the column"
            ) from None
        if len(pc.unique(converted)) < len(keys):
            raise ValueError(
                f"the column {self.key!r} of the lookup's table has two values that are equal as {dtype}, the key's "
                "type in the store; remove one of their rows"
            )
        return converted

    def describe(self) -> dict[str, Any]:
        """Return the lookup as a dict that JSON can represent. The table is a dict of column → list of values. Raise
        ``ValueError`` if JSON cannot represent the type of a column.
        """
        table = self.table
        if SINCE in table.column_names:
            begins = pa.array(self._order[1], mask=self._order[1] == MIN_INSTANT).cast(INSTANT)
            table = table.take(pa.array(self._order[2])).drop_columns([SINCE])
            table = table.append_column(SINCE, pc.strftime(begins, "%Y-%m-%dT%H:%M:%SZ"))
        for field in table.schema:
            if not (pa.types.is_string(field.type) or pa.types.is_int64(field.type) or pa.types.is_boolean(field.type)):
                raise ValueError(
                    f"the column {field.name!r} of the lookup's table cannot be written as JSON, because its type is "
                    f"{field.type}; cast it to text or int64"
                )
        return {"lookup": self.key, "table": table.to_pydict(), "valid": self.valid}

    @classmethod
    def from_description(cls, described: Mapping[str, Any]) -> Lookup:
        return cls(described["lookup"], pa.table({**described["table"]}), described.get("valid", "now"))

    def check(self, name: str) -> None:
        if name not in self.table.column_names:
            raise ValueError(
                f"the table of a lookup has no column {shown(name)}; {nearest(name, self.table.column_names)}"
            )
        if pa.types.is_nested(kind := self.table.schema.field(name).type):
            raise ValueError(
                f"{shown(name)} cannot be a key, because its values are {kind}; name a column whose type is not nested"
            )

    def reason(self, name: str) -> str:
        return f"the table of the lookup has no {name} for their values of {self.key}"

    def __repr__(self) -> str:
        return f"lookup({self.key!r}, {self.table.num_rows} rows, valid={self.valid!r})"


def _ranks(ids: NDArray[np.int64], at: NDArray[np.int64], moments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one integer for each pair of an element of ``ids`` and an element of ``at``. The integers have the order
    of the pairs, first by id and then by time. ``moments`` has all times that occur in ``at``, ascending, and may have
    further times.
    """
    ranks: NDArray[np.int64] = ids * len(moments) + np.searchsorted(moments, at)
    return ranks
