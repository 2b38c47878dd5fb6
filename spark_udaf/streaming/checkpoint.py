"""Checkpoints: the id of the query that a checkpoint is of, and in how many partitions it keeps state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from spark_udaf.plan.session import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Read the id that Spark has written into a checkpoint before the first batch.

    Spark reads its own file: wherever it can keep a checkpoint, it can read one, on classic Spark and on Spark Connect.
    """
    lines = [row[0] for row in spark.read.text(f"{checkpoint.rstrip('/')}/metadata").collect()]
    return str(json.loads("".join(lines))["id"])


def kept_partitions(checkpoint: Path) -> int | None:
    """Read into how many partitions the state in a folder is shuffled, as Spark notes with each batch; None before."""
    batches = [path for path in (checkpoint / "offsets").glob("*") if path.name.isdigit()]
    if not batches:
        return None
    offsets = json.loads(max(batches, key=lambda path: int(path.name)).read_text().splitlines()[1])
    return int(offsets["conf"][PARTITIONS])
