"""Times in Parquet files that Spark and Arrow read differently: of another calendar, or as INT96."""

from __future__ import annotations

import pyarrow.dataset as ds
import pyarrow.parquet as pq

_WRITER = b"org.apache.spark.version"
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_FIRST_GREGORIAN = 3  # the first major version of Spark that writes dates of the proleptic Gregorian calendar


def time_problem(fragment: ds.ParquetFileFragment, setting: str | None) -> str | None:
    """Return the property of a file for which Spark reads its times otherwise; None if both read the same.

    Parameters
    ----------
    fragment : of a dataset
    setting : str, optional
        Spark's ``spark.sql.parquet.datetimeRebaseModeInRead``, which decides about files of other writers.
    """
    footer: pq.FileMetaData = fragment.metadata
    columns = (footer.schema.column(place) for place in range(len(footer.schema)))
    if any(column.physical_type == "INT96" for column in columns):
        return "holds times as INT96"
    written = footer.metadata or {}
    if any(key in written for key in _LEGACY):
        return "was written with the legacy calendar"
    version = written.get(_WRITER)
    if version is None:
        return "is read with the legacy calendar" if setting == "LEGACY" else None
    return None if int(version.split(b".")[0]) >= _FIRST_GREGORIAN else "was written with the legacy calendar"
