"""What a stream's rows come in: a streaming DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggr.arguments import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_stream(df: DataFrame, instead: str) -> None:
    """Raise ``TypeError`` for what is no streaming DataFrame; ``instead`` says what takes an ordinary one."""
    if not hasattr(df, "isStreaming") or isinstance(df, type):
        raise TypeError(f"give a streaming DataFrame, as spark.readStream makes it; got {shown(df)}")
    if not df.isStreaming:
        raise TypeError(f"this DataFrame is no stream; {instead}")
