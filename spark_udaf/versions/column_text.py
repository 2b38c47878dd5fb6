"""The text of a Column, for the names of results and for messages."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import Column


def text_of(column: Column | str) -> str:
    """Return a Column as Spark shows it, and a name unchanged."""
    if isinstance(column, str):
        return column
    try:
        return str(column).removeprefix("Column<'").removesuffix("'>")
    # Spark 3.5 cannot show an expression that is not resolved yet and has a field taken from it.
    except AnalysisException:
        return "expression"
