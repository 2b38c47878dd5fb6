"""tiltframe stream: JSON lines on standard input, windows as JSON lines on standard output while they come."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.json as pajson
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tiltframe.cli.measure_parser import keys_from, measures_from
from tiltframe.cli.output import as_moment, json_lines
from tiltframe.event_time import event_times
from tiltframe.files.column_types import DeclaredTypes, read_declared_types
from tiltframe.frame import TiltFrame
from tiltframe.regular_files import not_a_file
from tiltframe.streaming import Buffer, OpenWindows, read_emit, read_late
from tiltframe.streaming.policy_text import micros
from windows import NEVER, read_windows

_GATHERED = 1 << 20  # bytes of a batch, unless the input pauses before
_PAUSE = 0.2  # seconds: how long a batch waits for more, and how late a period may be noticed


@click.command(
    epilog="\b\nExamples:\n  "
    "tail -F log.jsonl | tiltframe stream --time ts --measure 'n=count()' --levels 1s,1m\n  "
    "tiltframe stream --time ts --key host --measure 'p=dds(ms)' --levels 10s,1h --disorder 5s < log.jsonl"
)
@click.option("--time", required=True, metavar="COL", help="The column of event times.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="Keep windows per value of a column, or NAME=EXPRESSION; may repeat.",
)
@click.option(
    "--measure", "measures", multiple=True, required=True, metavar="NAME=CALL", help="Such as p=dds(x); may repeat."
)
@click.option("--levels", required=True, metavar="SIZES", help="From fine to coarse: 10s,1m,10m,1h; or session(30m).")
@click.option(
    "--timezone", default="UTC", show_default=True, metavar="ZONE", help="IANA zone the windows are aligned in."
)
@click.option("--emit", default="after_close", show_default=True, metavar="POLICY", help="When windows are emitted.")
@click.option("--late", default="drop", show_default=True, metavar="POLICY", help="What becomes of late events.")
@click.option(
    "--disorder", default="0s", show_default=True, metavar="TIME", help="How far the watermark stays behind the events."
)
@click.option("--max-keys", type=int, metavar="N", help="How many distinct keys may be held at once.")
@click.option("--state", type=click.Path(path_type=Path), metavar="FILE", help="Go on from here, and save at the end.")
@click.option("--type", "types", multiple=True, metavar="COL=TYPE", help="What a column is; may repeat.")
def stream(
    time: str,
    keys: tuple[str, ...],
    measures: tuple[str, ...],
    levels: str,
    timezone: str,
    emit: str,
    late: str,
    disorder: str,
    max_keys: int | None,
    state: Path | None,
    types: tuple[str, ...],
) -> None:
    """Aggregate JSON lines from standard input while they come.

    Windows that are emitted go to standard output as JSON lines. At the end of the input all windows are closed and
    emitted; with --state they are saved instead, and the next run goes on with them. Ctrl-C ends the stream after the
    lines that were read.

    \b
    POLICY of --emit: after_close(delay=10s, timeout=5m), periodic(1m, repeat), on_update(batch=2s),
    after_count(100), after_key_expire(1m, maxspan=5m, only); each with mode=accumulating, discarding or
    changelog, and having='n > 300'.
    POLICY of --late: drop(5m), true_window, buffer(3, older=drop).
    """
    frame = TiltFrame(read_windows(levels, timezone), time, measures_from(measures), keys_from(keys), timezone)
    declared = read_declared_types(types, (), time)
    declared.check(time, frame.may_read())
    policies = read_emit(emit), read_late(late)
    behind = micros(disorder)
    if state is not None and (there := not_a_file(state)):
        raise ValueError(f"--state {state}: there is {there}; name a file, or one that is not there yet")
    if state is not None and state.exists():
        windows = OpenWindows.from_ipc(state.read_bytes(), frame, *policies, max_keys=max_keys)
    else:
        windows = OpenWindows(frame, *policies, max_keys=max_keys)
    lines = _Lines(frame, declared)
    with _stopped_by_ctrl_c() as stopped, _live_line(windows) as show:
        for given in _gathered(sys.stdin.fileno(), stopped):
            watermark = None
            if given:
                rows = lines.read(given)
                windows.add_rows(rows)
                watermark = _newest(rows, time) - behind if rows.num_rows else None
            _write(windows, None if isinstance(windows.late, Buffer) else watermark)
            show()
        if state is None and not stopped:
            _write(windows, NEVER - 1)
    if state is not None:
        _save(state, windows.to_ipc())
    elif stopped:
        click.echo("tiltframe: stopped; open windows were not emitted: --state FILE keeps them", err=True)
    if stopped:
        raise SystemExit(130)


class _Lines:
    """JSON lines as rows of the types that were declared, or that the first lines have."""

    def __init__(self, frame: TiltFrame, declared: DeclaredTypes) -> None:
        self.frame, self.declared = frame, declared
        self.schema: pa.Schema | None = None

    def read(self, given: bytes) -> pa.Table:
        """Read complete lines; raises ``ValueError`` for what is no JSON, or of other types."""
        known = self.schema or pa.schema(list(self.declared.types.items()))
        behavior = "infer" if self.schema is None else "ignore"
        options = pajson.ParseOptions(explicit_schema=known, unexpected_field_behavior=behavior)
        try:
            rows = pajson.read_json(io.BytesIO(given), parse_options=options)
        except pa.ArrowException as error:
            raise ValueError(
                f"cannot read standard input as JSON lines: {str(error).splitlines()[0]}; the types of columns are "
                "those of the first lines, unless --type COL=TYPE declares them"
            ) from None
        if self.schema is None:
            self.frame.check(rows.schema)
            read = self.frame.columns_in(rows.column_names)
            self.schema = pa.schema([rows.schema.field(name) for name in read])
        rows = rows.select(self.schema.names)
        unit = self.declared.unit
        if unit is not None:
            at = rows.column_names.index(self.frame.time)
            rows = rows.set_column(at, self.frame.time, rows.column(at).cast(pa.timestamp(unit)))
        return rows


def _gathered(source: int, stopped: list[bool]) -> Iterator[bytes]:
    """Yield complete lines as they come, much at once where much is there; nothing now and then while none come."""
    held = b""
    while not stopped:
        if not select.select([source], [], [], _PAUSE)[0]:
            yield b""
            continue
        parts, size, ended = [held], len(held), False
        while size < _GATHERED and select.select([source], [], [], 0)[0]:
            part = os.read(source, _GATHERED)
            ended = not part
            if ended:
                break
            parts.append(part)
            size += len(part)
        data = b"".join(parts)
        whole = len(data) if ended else data.rfind(b"\n") + 1
        held = data[whole:]
        if data[:whole].strip():
            yield data[:whole]
        if ended:
            return


def _newest(rows: pa.Table, time: str) -> int:
    return int(event_times(rows.column(time), time).max())


def _write(windows: OpenWindows, watermark: int | None) -> None:
    emitted = windows.advance(watermark, clock.time_ns() // 1000)
    if emitted.num_rows:
        sys.stdout.write(json_lines(windows.results(emitted)))
        sys.stdout.flush()


def _save(file: Path, state: bytes) -> None:
    """Write a state in place of the one before: all of it or nothing."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with beside.open("wb") as out:
            out.write(state)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _stopped_by_ctrl_c() -> Iterator[list[bool]]:
    """Note Ctrl-C instead of raising it, so that a batch is taken whole or not at all; what is yielded is true then."""
    stopped: list[bool] = []
    before = signal.signal(signal.SIGINT, lambda *_: stopped.append(True))
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _live_line(windows: OpenWindows) -> Iterator[Callable[[], None]]:
    """Show a line on standard error, if that is a terminal: rows a second, watermark, open windows, late rows."""
    console, begun, first = Console(stderr=True), clock.monotonic(), windows.progress.rows
    if not console.is_terminal:
        yield lambda: None
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:

        def show() -> None:
            said = windows.progress
            rate = (said.rows - first) / max(clock.monotonic() - begun, 1e-9)
            held = ", ".join(f"{level} {count:,}" for level, count in said.open_windows.items())
            live.update(
                Text(
                    f"{said.rows:,} rows, {rate:,.0f}/s · watermark {as_moment(said.watermark)} · open {held or '·'} · "
                    f"late {said.late_rows:,}"
                )
            )

        yield show
