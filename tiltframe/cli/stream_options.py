"""The options of `tiltframe stream` as one value, and checks of options that depend on each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tiltframe.cli.metrics_server import metrics_address
from tiltframe.cli.options import bad_rows_from
from tiltframe.cli.stream_inputs import STANDARD_INPUT, check_input, read_inputs
from tiltframe.cli.stream_sources import AheadLimit
from tiltframe.files.bad_rows import BadRows
from tiltframe.files.read_options import ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.regular_files import kind_unless_file
from tiltframe.streaming.ahead import read_ahead
from tiltframe.streaming.policies import micros

# option that does not work with --spark → the advice in its error message
_ADVICE_FOR_SPARK = {
    "inputs": "union the sources in Spark, which uses the minimum of their watermarks",
    "idle": "Spark does not support idle sources; leave it out",
    "drain": "Spark keeps open windows in its checkpoint; use --emit on_update to emit them early",
    "metrics": "Spark has its own metrics; su.progress returns those of the stream",
}


@dataclass(frozen=True)
class StreamOptions:
    """The arguments and options of `tiltframe stream`, as they were passed. The options that declare a frame are
    combined in ``frame``, and those for reading files in ``reading``.
    """

    folder: Path | None
    frame: TiltFrame | OrderedAggregator
    reading: ReadOptions
    emit: str | None
    late: str | None
    disorder: str
    ahead: str
    arrival: bool
    dropped: Path | None
    bad_rows: str
    max_keys: int | None
    inputs: tuple[str, ...]
    idle: str | None
    drain: bool
    metrics: str | None
    state: Path | None
    uri: str | None  # the value of the option --store
    name: str | None
    durable: bool
    stream_name: str | None  # the value of the option --stream
    once: bool
    spark: bool
    source: str | None  # the value of the option --format: the format of a Spark source
    source_options: tuple[str, ...]
    shards: int | None

    @cached_property
    def disorder_micros(self) -> int:
        """The time by which the watermark stays behind the newest event, in microseconds."""
        return micros(self.disorder)

    @cached_property
    def ahead_limit(self) -> AheadLimit:
        """The maximum time by which event times may be ahead of the clock."""
        return AheadLimit(self.ahead, read_ahead(self.ahead))

    @cached_property
    def metrics_address(self) -> tuple[str, int] | None:
        """The host and the port at which metrics are served, or None if they are not served."""
        return None if self.metrics is None else metrics_address(self.metrics)

    @cached_property
    def paths(self) -> dict[str, Path]:
        """The paths of the inputs by the names of the inputs."""
        return read_inputs(self.folder, self.inputs)

    def check_texts(self) -> None:
        """Raise ``ValueError`` if the text of --disorder, --ahead or --metrics cannot be read.

        Without this check, an invalid text would raise an error only after the stream has opened inputs and written
        files.
        """
        _ = (self.disorder_micros, self.ahead_limit, self.metrics_address)


def check_for_spark(options: StreamOptions) -> None:
    """Raise ``ValueError`` if an option was passed that works only without Spark."""
    for name, advice in _ADVICE_FOR_SPARK.items():
        if getattr(options, name):
            option = "--input" if name == "inputs" else f"--{name}"
            raise ValueError(f"{option} cannot be used with --spark; {advice}")


def checked_without_spark(options: StreamOptions) -> BadRows | None:
    """Check the options of a stream that runs without Spark. Return the treatment of rows that cannot be read, or None
    if the first such row raises an error. Raise ``ValueError`` if an option is invalid or does not apply.
    """
    if options.source is not None or options.source_options or options.shards is not None:
        raise ValueError("--format, --option and --shards apply only to a Spark source; pass --spark too")
    options.check_texts()
    folder = options.folder
    if folder is not None and not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder; name a folder in which files arrive, or send rows through standard input"
        )
    _check_inputs(options)
    has_store_option = options.name is not None or options.durable or options.stream_name is not None
    if options.uri is None and has_store_option:
        raise ValueError("--name, --durable and --stream apply only to a store; pass --store too")
    bad = bad_rows_from(options.bad_rows, once=any(_has_files(path) for path in options.paths.values()))
    _check_written_files(
        {"--state": options.state, "--dropped": options.dropped, "--bad-rows": None if bad is None else bad.file}
    )
    if isinstance(options.frame, OrderedAggregator):
        _check_ordered(options)
    return bad


def _has_files(path: Path) -> bool:
    return path != STANDARD_INPUT and not path.is_fifo()


def _check_inputs(options: StreamOptions) -> None:
    """Raise ``ValueError`` if an input cannot be read, or if one of the options --once, --arrival and --idle does not
    apply to the inputs.
    """
    for name, path in options.paths.items():
        check_input(name, path)
    has_files = [_has_files(path) for path in options.paths.values()]
    if options.once and not any(has_files):
        raise ValueError(
            "--once applies only to a folder or a Spark source; leave it out, because standard input ends by itself"
        )
    if options.arrival and any(has_files):
        raise ValueError(
            "--arrival applies only to standard input or a Spark source; for files, name the column of event times "
            "with --time"
        )
    if options.idle is not None and len(options.paths) == 1:
        raise ValueError(
            "--idle needs several inputs, and there is only one; to close windows without new rows, use --emit "
            f"'after_close(timeout={options.idle})'"
        )


def _check_written_files(files: Mapping[str, Path | None]) -> None:
    """Raise ``ValueError`` if a file cannot be written, or if two options name the same file. ``files`` maps each
    option to its file.
    """
    written: dict[Path, str] = {}
    for option, file in files.items():
        if file is None:
            continue
        if kind := kind_unless_file(file):
            raise ValueError(
                f"{option} {file}: this path is {kind}; name a regular file, or a path that does not exist yet"
            )
        if (other := written.setdefault(file.absolute(), option)) != option:
            raise ValueError(f"{other} and {option} would both write to {file}; use a different file for each")


def _check_ordered(options: StreamOptions) -> None:
    """Raise ``ValueError`` if an option was passed that cannot be used with --ordered."""
    if options.uri is not None:
        raise ValueError(
            "a store can contain only time windows; leave out --store, or use --levels in place of --ordered"
        )
    if (options.emit, options.late, options.max_keys) != (None, None, None):
        raise ValueError(
            "--ordered emits each result once, when the watermark has passed it, and drops later rows, so "
            "--emit, --late and --max-keys cannot be used; leave them out"
        )
