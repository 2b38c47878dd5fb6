"""tiltframe stream --spark: any source of Structured Streaming into a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggr.arguments import shown
from spark_udaf.streaming.stream_into import ALL_THERE, stream_into
from tiltframe import FrameStore, TiltFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOT_HERE = {"emit": "after_close", "late": None, "disorder": "0s", "max_keys": None, "encoding": "utf-8"}


def run(
    folder: Path | None,
    source: str | None,
    options: tuple[str, ...],
    *,
    frame: TiltFrame,
    uri: str | None,
    name: str | None,
    durable: bool,
    state: Path | None,
    stream_name: str | None,
    once: bool,
    declared: Any,
    **others: Any,
) -> None:
    """Run a query from a source into a store until it ends, or Ctrl-C.

    Parameters
    ----------
    folder : path, optional
        What the source loads.
    source : str
        Its format, as Spark names it.
    options : texts
        ``KEY=VALUE``, of the source.
    frame, uri, name, durable, state, stream_name, once, declared, **others
        Of ``tiltframe stream``; ``state`` is the folder of Spark's checkpoint.

    Raises
    ------
    ValueError, StoreError
        If options are missing, cannot be read, or are not of Spark; as `spark_udaf.stream_into`.
    """
    if source is None:
        raise ValueError("--spark reads a source of Structured Streaming; say which: --format kafka, json, rate, …")
    if uri is None or state is None:
        raise ValueError(
            "--spark writes into a store, and keeps a checkpoint of how far it is: give --store and --state"
        )
    given = [key for key, default in _NOT_HERE.items() if others[key] != default] + ["type"] * bool(declared.types)
    if given:
        raise ValueError(f"--{given[0].replace('_', '-')} has no meaning with --spark and --store; leave it out")
    settings = dict(_setting(text) for text in options)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("tiltframe stream").getOrCreate()
    store = FrameStore(uri, frame, name=name, durable=durable)
    query = stream_into(
        _loaded(spark, source, settings, folder),
        store,
        name=stream_name or source,
        checkpoint=state.resolve(),
        trigger=ALL_THERE if once else None,
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()  # Ctrl-C: the batch that is under way is run again, and counts once


def _loaded(spark: SparkSession, source: str, settings: dict[str, str], folder: Path | None) -> DataFrame:
    """Open a source; of files Spark infers the columns from those that are there."""
    inference = "spark.sql.streaming.schemaInference"
    before = str(spark.conf.get(inference))
    spark.conf.set(inference, "true")
    try:
        reader = spark.readStream.format(source).options(**settings)
        return reader.load() if folder is None else reader.load(str(folder))
    finally:
        spark.conf.set(inference, before)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"cannot read --option {shown(text)}; write KEY=VALUE such as maxFilesPerTrigger=1")
    return key.strip(), value
