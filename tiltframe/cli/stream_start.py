"""The start of a stream: create its destination, or restore the destination from a saved state or a store."""

from __future__ import annotations

from typing import Any

import click

from tiltframe.cli.output import time_or_dot
from tiltframe.cli.stream_options import StreamOptions
from tiltframe.cli.stream_sinks import DRAINED, OrderedOutputSink, OutputSink, StoreSink
from tiltframe.frame import TiltFrame
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.store import FrameStore
from tiltframe.store.closed_windows import ClosedWindows
from tiltframe.streaming import OpenWindows, OrderedStream, read_late
from tiltframe.streaming.policies import emit_policy
from tiltframe.streaming.saved import OtherSavedFrame, read_extension


def create_sink(
    options: StreamOptions, *, data: bytes | None, store: FrameStore | None, name: str
) -> OutputSink | StoreSink:
    """Return the destination of a stream. It is restored from the saved state ``data``, or is new if ``data`` equals
    None.
    """
    frame = options.frame
    if isinstance(frame, OrderedAggregator):
        return OrderedOutputSink(_restore_ordered_stream(data, frame))
    try:
        if store is None:
            return OutputSink(_restore_open_windows(data, frame, options))
        return StoreSink(_restore_closed_windows(data, store, name, options))
    except OtherSavedFrame as error:
        raise ValueError(
            f"{error}; any frame can be used after tiltframe stream --drain has closed all windows"
        ) from None


def _restore_ordered_stream(data: bytes | None, frame: OrderedAggregator) -> OrderedStream:
    """Return the stream of ordered windows. It is restored from the saved state ``data``, or is new if ``data`` equals
    None. If --drain has closed all windows of the saved state, return a new stream that begins with the watermark of
    this state.
    """
    notes = {} if data is None else read_extension(data)[0]
    if data is not None and DRAINED not in notes:
        return OrderedStream.from_ipc(data, frame)
    stream = OrderedStream(frame)
    stream.advance(notes.get(DRAINED))
    return stream


def _restore_open_windows(data: bytes | None, frame: TiltFrame, options: StreamOptions) -> OpenWindows:
    """Return the open windows of a stream. They are restored from the saved state ``data``, or are new if ``data``
    equals None. If --drain has closed all windows of the saved state, return new windows that begin with the watermark
    of this state.
    """
    late = "drop" if options.late is None else options.late
    policies = emit_policy(options.emit, frame), read_late(late)
    max_keys = options.max_keys
    notes = {} if data is None else read_extension(data)[0]
    if data is None or DRAINED in notes:
        windows = OpenWindows(frame, *policies, max_keys=max_keys)
        windows.advance(notes.get(DRAINED))
        return windows
    if "writer" in notes:
        raise ValueError("the saved state belongs to a stream with a store; pass --store, or begin with a new state")
    return OpenWindows.from_ipc(data, frame, *policies, max_keys=max_keys)


def _restore_closed_windows(
    data: bytes | None, store: FrameStore, stream_name: str, options: StreamOptions
) -> ClosedWindows:
    """Return the windows of a stream that writes into a store. They are restored from the saved state ``data``. The
    commit that followed this state is repeated, because the process may have ended before the commit.

    If ``data`` equals None, the stream continues after the last windows that it has committed to the store. If the
    store has no rows of the stream, the stream begins without windows.
    """
    late = "true_window" if options.late is None else options.late
    policies: dict[str, Any] = {"emit": options.emit or "after_close", "late": late, "max_keys": options.max_keys}
    if data is not None:
        closed = ClosedWindows.from_ipc(data, store, stream_name, **policies)
        closed.commit()
        return closed
    closed = ClosedWindows(store, stream_name, **policies)
    if closed.committed is not None:
        click.echo(
            f"tiltframe: there is no saved state; the stream {stream_name!r} continues from {store.display_uri} as a "
            f"new writer, and skips rows of windows that end by {time_or_dot(closed.committed)}, because these windows "
            "are committed",
            err=True,
        )
    return closed
