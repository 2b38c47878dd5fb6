"""Plain tables: the results of a level as a Delta table of its own, next to the table of the store.

The commit that writes a plain table also contains the list of the parts from which it was computed, so that the table
and the list change together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from aggr.arrow.normalize import one_array
from tiltframe.instants import instants_of
from tiltframe.names import START
from tiltframe.ranges import Range, inside
from tiltframe.store.backends.delta.files import open_file_system
from tiltframe.store.backends.delta.vacuum import vacuum_table
from tiltframe.store.backends.protocol import Vacuumed
from tiltframe.store.backends.stored_types import stored, stored_schema
from tiltframe.store.log.errors import Conflict

_SOURCES = "tiltframe"  # the name of the property of a commit that contains the list of parts


def result_sources(path: str, options: Mapping[str, str]) -> dict[str, Range] | None:
    """Return the parts of a store from which a plain table of results was computed, as name → range of window starts in
    microseconds UTC, or None if the table does not exist.
    """
    table = _open(path, options)
    if table is None:
        return None
    sources = json.loads(table.history(1)[0].get(_SOURCES, "{}"))
    return {name: (low, high) for name, (low, high) in sources.items()}


def write_results(
    path: str, options: Mapping[str, str], ranges: Sequence[Range], results: pa.Table, sources: Mapping[str, Range]
) -> None:
    """In a plain table, remove the rows of the windows that begin in ``ranges``, and add the rows of ``results``. In
    the same commit, record ``sources``, the parts of the store from which the complete table was computed. Raise
    `Conflict` if another writer has changed the table, and ``ValueError`` for a folder in which deltalake cannot write
    a table.
    """
    if "://" not in path and (refused := re.search(r"[\[\]^|]", path)):
        # For such a path, deltalake ends with a panic of its Rust code, which is not an `Exception`.
        raise ValueError(
            f"cannot write results to {path}: deltalake cannot write tables in a folder with {refused[0]!r} in its "
            "path; rename the folder, or copy the store to another one with `copy_to`"
        )
    columns = [stored(one_array(column)) for column in results.columns]
    new_table = pa.table(columns, schema=stored_schema(results.schema))
    table = _open(path, options)
    old_table = None if table is None else table.to_pyarrow_table()
    has_same_columns = old_table is None or old_table.column_names == new_table.column_names
    # Rows outside ``ranges`` are kept if the columns are the same. A table with other columns belongs to an earlier
    # frame of the store, and is replaced completely.
    if old_table is not None and has_same_columns:
        unchanged = old_table.filter(pa.array(~inside(instants_of(old_table), ranges)))
        new_table = pa.concat_tables([unchanged.cast(new_table.schema), new_table])
    properties = CommitProperties({_SOURCES: json.dumps(sources)}, max_commit_retries=0)
    try:
        write_deltalake(
            path if table is None else table,
            new_table.sort_by(START),
            mode="error" if table is None else "overwrite",
            schema_mode=None if has_same_columns else "overwrite",
            storage_options=dict(options),
            commit_properties=properties,
        )
    except CommitFailedError as error:
        raise Conflict(f"the table {path} was changed by another process at the same time: {error}") from None


def vacuum_results(path: str, options: Mapping[str, str], older_than: float) -> Vacuumed:
    """Delete the files that were removed from a plain table at least ``older_than`` seconds ago, and return their
    number.
    """
    table = _open(path, options)
    return (
        Vacuumed(0)
        if table is None
        else vacuum_table(table, open_file_system(path, tuple(options.items())), older_than)
    )


def _open(path: str, options: Mapping[str, str]) -> DeltaTable | None:
    with suppress(TableNotFoundError):
        return DeltaTable(path, storage_options=dict(options))
    return None
