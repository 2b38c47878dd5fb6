"""The text of a Column, for the names of results and for messages."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import Column

# the text of a Column whose text is not known
UNKNOWN_TEXT = "expression"


def text_of(column: Column | str) -> str:
    """Return the text of a Column in the form that Spark prints. Return a name unchanged."""
    if isinstance(column, str):
        return column
    try:
        return str(column).removeprefix("Column<'").removesuffix("'>")
    # Spark 3.5 raises this error for an expression such as ``x.a``, which selects a field of a column, if Spark has not
    # resolved the column ``x`` yet.
    except AnalysisException:
        return UNKNOWN_TEXT
