"""Checkpoints: the id of the query that a checkpoint is of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Read the id that Spark has written into a checkpoint before the first batch.

    Spark reads its own file: wherever it can keep a checkpoint, it can read one, on classic Spark and on Spark Connect.
    """
    lines = [row[0] for row in spark.read.text(f"{checkpoint.rstrip('/')}/metadata").collect()]
    return str(json.loads("".join(lines))["id"])
