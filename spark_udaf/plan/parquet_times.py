"""Times in Parquet files that Spark and Arrow read differently: times in Spark's legacy calendar, or of type INT96.

By default, Spark writes times as INT96, without a zone in the file. Spark reads INT96 as instants. Arrow reads INT96 as
times without a zone, unless the schema of the dataset has the zone UTC.
"""

from __future__ import annotations

import pyarrow.dataset as ds
import pyarrow.parquet as pq

_SPARK_VERSION_KEY = b"org.apache.spark.version"
_LEGACY_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_FIRST_GREGORIAN_VERSION = 3  # the first major version of Spark that writes dates of the proleptic Gregorian calendar


def int96_columns(footer: pq.FileMetaData) -> list[str]:
    """Return the names of the top-level columns that a file stores as INT96."""
    paths = _int96_paths(footer)
    if not paths:
        return []
    names = set(footer.schema.to_arrow_schema().names)
    return [path for path in paths if path in names]


def time_problem(fragment: ds.ParquetFileFragment, rebase_mode: str | None) -> str | None:
    """Return the reason why Spark and Arrow read different times from a file, or None if they read the same times. The
    reason continues a sentence after the path of the file, such as "was written with the legacy calendar".

    Parameters
    ----------
    fragment : file of a dataset
    rebase_mode : str, optional
        The value of ``spark.sql.parquet.datetimeRebaseModeInRead``, which applies to files that Spark has not written.
    """
    footer: pq.FileMetaData = fragment.metadata
    nested_columns = set(_int96_paths(footer)) - set(int96_columns(footer))
    if nested_columns:
        return f"contains times as INT96 inside the column {min(nested_columns)!r}"
    file_metadata = footer.metadata or {}
    if any(key in file_metadata for key in _LEGACY_KEYS):
        return "was written with the legacy calendar"
    version = file_metadata.get(_SPARK_VERSION_KEY)
    if version is None:
        return "is read with the legacy calendar" if rebase_mode == "LEGACY" else None
    return None if int(version.split(b".")[0]) >= _FIRST_GREGORIAN_VERSION else "was written with the legacy calendar"


def _int96_paths(footer: pq.FileMetaData) -> list[str]:
    columns = (footer.schema.column(index) for index in range(len(footer.schema)))
    return [column.path for column in columns if column.physical_type == "INT96"]
