"""Public names for extensions of tiltframe, such as kinds of keys, commands and servers. With these names, an extension
can read rows from any input, roll them up, and write results as text.

Extensions of stores use `tiltframe.store` and `tiltframe.store.backends`. Aggregate functions use `aggr.extend`.

>>> import pyarrow as pa
>>> from tiltframe.extend import as_text, json_lines
>>> as_text(1_500_000), json_lines(pa.table({"n": [1]}))
('1970-01-01T00:00:01.500000Z', '{"n": 1}\\n')
"""

from tiltframe.event_time import event_times
from tiltframe.exclusions import Note
from tiltframe.files.inputs import open_source
from tiltframe.memory_sizes import memory_size
from tiltframe.ranges import as_text
from tiltframe.rolling_up import from_rows
from tiltframe.store import DerivedKey, register_kind
from tiltframe.tabular import consume, rows_of
from tiltframe.text.html_table import html_table
from tiltframe.text.results import csv_cells, iso_times, json_lines, json_rows, json_text, json_value, python_values

__all__ = [
    "DerivedKey",
    "Note",
    "as_text",
    "consume",
    "csv_cells",
    "event_times",
    "from_rows",
    "html_table",
    "iso_times",
    "json_lines",
    "json_rows",
    "json_text",
    "json_value",
    "memory_size",
    "open_source",
    "python_values",
    "register_kind",
    "rows_of",
]
