"""tiltframe stream --spark: read any source of Structured Streaming, and write to a store or to standard output."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aggr.arguments import checked_whole, shown
from spark_udaf.late_rows import LateRowReporter
from spark_udaf.plan.session import PARTITIONS_SETTING, interruptible, parallelism, start_session
from spark_udaf.streaming.progress import recorded_partition_count
from spark_udaf.streaming.stream import stream
from spark_udaf.streaming.stream_into import AVAILABLE_NOW, stream_into
from spark_udaf.versions.arrow_tables import collect_arrow
from tiltframe import FrameStore, TiltFrame
from tiltframe.cli.interrupts import set_interrupt_message
from tiltframe.cli.stream_options import StreamOptions
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.streaming import read_late
from tiltframe.streaming.policies import emit_policy
from tiltframe.text.results import json_lines

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# Options of the command with their defaults. With --spark, options in `_UNSUPPORTED` cannot be used, options in
# `_ONLY_WITHOUT_STORE` can be used only without --store, and options in `_ONLY_WITH_STORE` only with --store.
_UNSUPPORTED = {"dropped": None, "bad_rows": "fail"}
_ONLY_WITHOUT_STORE = {
    "emit": None, "late": None, "disorder": "0s", "ahead": "1h", "max_keys": None, "shards": None
}  # fmt: skip
_ONLY_WITH_STORE = {"name": None, "durable": False, "stream_name": None}
_PACKAGE = (
    " A source that is not part of Spark, such as kafka, needs its package; name it in the environment, such as "
    "PYSPARK_SUBMIT_ARGS='--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 pyspark-shell', with your "
    "version of Spark in the place of 4.0.0"
)


def run(options: StreamOptions) -> None:
    """Run a query from a source into a store or to standard output, until the query ends or Ctrl-C is pressed.

    ``options.source`` is the format of the source in Spark, such as ``kafka``. ``options.folder`` is the folder that
    the source reads, or None for a source that does not read files. ``options.source_options`` are options of the
    source, as texts ``KEY=VALUE``. ``options.state`` is the folder of Spark's checkpoint.
    """
    frame = options.frame
    source = options.source
    checkpoint_folder = options.state
    uri = options.uri
    if source is None:
        raise ValueError(
            "--spark needs the format of a source of Structured Streaming; pass --format, such as kafka, json or rate"
        )
    if uri is not None and checkpoint_folder is None:
        raise ValueError("--spark with --store needs a folder for Spark's checkpoint; pass --state FOLDER")
    unusable_options = {**_UNSUPPORTED, **(_ONLY_WITH_STORE if uri is None else _ONLY_WITHOUT_STORE)}
    passed = [key for key, default in unusable_options.items() if getattr(options, key) != default]
    if passed:
        option = passed[0].replace("stream_name", "stream").replace("_", "-")
        raise ValueError(f"--{option} cannot be used with --spark {'and' if uri else 'without'} --store; leave it out")
    if options.reading.time is not None:
        raise ValueError(
            "with --spark, --time must be the name of a column of the source; got an expression for "
            f"{_time_column(frame)!r}; let the source compute this column"
        )
    if read_options := [name for name in options.reading.non_default_options() if name != "where"]:
        raise ValueError(
            f"--{read_options[0].replace('_', '-')} applies only to files that tiltframe reads itself; with --spark, "
            "the source reads the files, so use an option of the source instead, --option KEY=VALUE"
        )
    settings = dict(_parse_setting(text) for text in options.source_options)
    if uri is not None and isinstance(frame, OrderedAggregator):
        raise ValueError(
            "a store can contain only time windows; leave out --store, or use --levels in place of --ordered"
        )
    watermark_delay_micros = options.disorder_micros
    if uri is None:
        read_late(options.late or "drop")  # This call raises an error if the policy of late events is invalid.
        if isinstance(frame, TiltFrame):
            emit = emit_policy(options.emit, frame)
            if emit.emits_without_rows and options.once:
                emit_text = options.emit or emit
                raise ValueError(
                    f"--once would not end with --emit {emit_text}, which depends on the clock; use --emit on_update, "
                    f"or leave out --once"
                )
    spark = start_session(SparkSession.builder.appName("tiltframe stream"))
    with interruptible(spark):
        _set_shuffle_partitions(spark, options.shards, checkpoint_folder)
        rows = _open_source(spark, source, settings, options.folder)
        if options.reading.where is not None:
            rows = rows.where(options.reading.where)
        if options.arrival:
            rows = _with_arrival_time(rows, _time_column(frame))
        if isinstance(frame, OrderedAggregator) or uri is None:
            policies = {
                "emit": options.emit,
                "late": options.late or "drop",
                "max_keys": options.max_keys,
            }
            policies["ahead"] = "none" if options.arrival else options.ahead
            query = _start_emitting(
                rows,
                frame,
                watermark_delay_micros=watermark_delay_micros,
                checkpoint_folder=checkpoint_folder,
                once=options.once,
                policies=policies,
            )
        else:
            query = stream_into(
                rows,
                FrameStore(uri, frame, name=options.name, durable=options.durable),
                name=options.stream_name or source,
                checkpoint=cast("Path", checkpoint_folder).resolve(),
                trigger=AVAILABLE_NOW if options.once else None,
            )
        loss = "open windows were not emitted; use --state FOLDER to keep them"
        set_interrupt_message(f"stopped; {'the next run continues from the checkpoint' if checkpoint_folder else loss}")
        # Ctrl-C also stops Spark, possibly within a batch. The next run repeats this batch, and the rows of the batch
        # are counted only once.
        LateRowReporter(query, has_disorder=watermark_delay_micros > 0).await_query_end()


def _set_shuffle_partitions(spark: SparkSession, shards: int | None, checkpoint_folder: Path | None) -> None:
    """Set the number of shuffle partitions of the session. It is the first of the following numbers that exists: the
    option ``--shards``, the number in the checkpoint, the number in the session's settings, the number of cores.
    """
    partitions = (
        recorded_partition_count(checkpoint_folder) if shards is None and checkpoint_folder is not None else shards
    )
    count = None if partitions is None else checked_whole(partitions, "--shards", 1, 10_000)
    if count is None and PARTITIONS_SETTING not in spark.conf.getAll:
        count = parallelism(spark)
    if count is not None:
        spark.conf.set(PARTITIONS_SETTING, str(count))


def _start_emitting(
    df: DataFrame,
    frame: TiltFrame | OrderedAggregator,
    *,
    watermark_delay_micros: int,
    checkpoint_folder: Path | None,
    once: bool,
    policies: Any,
) -> StreamingQuery:
    time = _time_column(frame)
    type_name = next((type_name for name, type_name in df.dtypes if name == time), None)
    if type_name != "timestamp":
        raise ValueError(
            f"the watermark of a Spark source needs a column of timestamps, and {time!r} "
            f"{f'is of type {type_name}' if type_name else 'is not a column'}; for JSON or CSV, try --option "
            f"inferTimestamp=true or --option inferSchema=true"
        )
    writer = stream(df.withWatermark(time, f"{watermark_delay_micros} microseconds"), frame, **policies).writeStream
    if checkpoint_folder is not None:
        writer = writer.option("checkpointLocation", str(checkpoint_folder.resolve()))
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 second")
    return writer.foreachBatch(_print).start()


def _time_column(frame: TiltFrame | OrderedAggregator) -> str:
    return str((frame.query if isinstance(frame, OrderedAggregator) else frame).time)


def _print(batch: DataFrame, number: int) -> None:
    """Print the rows of a batch as JSON lines. After a failure, Spark repeats the last batch, and its rows are printed
    again.
    """
    sys.stdout.write(json_lines(collect_arrow(batch)))
    sys.stdout.flush()


def _open_source(spark: SparkSession, source: str, settings: dict[str, str], folder: Path | None) -> DataFrame:
    """Return a streaming DataFrame of a source. Spark infers the columns of files from the existing files. Raise
    ``ValueError`` if Spark cannot open the source.
    """
    inference = "spark.sql.streaming.schemaInference"
    previous_setting = str(spark.conf.get(inference))
    spark.conf.set(inference, "true")
    try:
        reader = spark.readStream.format(source).options(**settings)
        return reader.load() if folder is None else reader.load(str(folder))
    except Exception as error:  # For an unknown source, PySpark raises the unconverted error of the JVM.
        condition = re.search(r"\[([A-Z_.]+)\] ([^\n]*)", str(error))
        if condition is None:
            raise
        reason = condition[2]
        advice = _PACKAGE if "SOURCE" in condition[1] else ""
        raise ValueError(f"Spark cannot open the source {source}: {reason}{advice}") from None
    finally:
        spark.conf.set(inference, previous_setting)


def _with_arrival_time(df: DataFrame, time: str) -> DataFrame:
    """Return the rows with the additional column ``time``, which contains their arrival time. All rows of a batch have
    the same arrival time, which stays the same if the batch is repeated.
    """
    if time in df.columns:
        raise ValueError(
            f"--arrival adds a column called {time!r}, but the rows already have this column; pass another name to "
            "--time"
        )
    return df.withColumn(time, F.current_timestamp())


def _parse_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"cannot read --option {shown(text)}; write KEY=VALUE such as maxFilesPerTrigger=1")
    return key.strip(), value
