"""Recording: values that callers record in a store, the commit numbers of writers, and the watermarks of streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aggr.arguments import checked_name, checked_names, nearest, shown
from tiltframe.store.changes.commit import check_unchanged
from tiltframe.store.log.records import RECORD_PREFIX, WATERMARKS, checked_records, expected_texts, record_values
from tiltframe.store.log.run import WritingTransaction, run_transaction, snapshot_of
from tiltframe.store.log.stream_watermarks import StreamWatermark, watermarks_of
from tiltframe.store.log.writers import check_writer, last_commits, skipped_value_counts
from tiltframe.store.opened import OpenedStore


def has_commit(store: OpenedStore, writer: str, commit: int) -> bool:
    """Return whether the last commit number of a writer in the store is ``commit`` or greater.

    Parameters
    ----------
    writer : str
        The name of the writer.
    commit : int
        The number of the commit.

    Returns
    -------
    bool
        False if the store has no commit of this writer.

    Raises
    ------
    ValueError
        If the writer or the number is not valid for a commit.
    StoreError
        If the store cannot be read.
    """
    check_writer(writer, commit)
    last = last_commit(store, writer)
    return last is not None and last >= commit


def last_commit(store: OpenedStore, writer: str) -> int | None:
    """Return the last commit number of a writer.

    Parameters
    ----------
    writer : str

    Returns
    -------
    int or None
        None if the store has no commit of this writer.

    Raises
    ------
    ValueError
        If ``writer`` cannot be the name of a writer.
    StoreError
        If the store cannot be read.
    """
    check_writer(writer, 0)
    snapshot = store.backend.snapshot([f"{RECORD_PREFIX}writer {writer}"])
    last = -1 if snapshot is None else last_commits(snapshot, writer)[0]
    return None if last < 0 else last


def refused_values(store: OpenedStore, writer: str) -> dict[int, dict[str, int]]:
    """Return the number of values that measures with ``bad_values="skip"`` have skipped in the commits of a writer.

    Parameters
    ----------
    writer : str
        The name of the writer.

    Returns
    -------
    dict of commit number -> column of states -> number of values
        The numbers for the last 64 commits. Commits without skipped values are left out.

    Raises
    ------
    ValueError, StoreError
        For the same reasons as `last_commit`.

    Examples
    --------
    >>> import aggr, tempfile, warnings, pyarrow as pa
    >>> from tiltframe import FrameStore, TiltFrame
    >>> frame = TiltFrame(["1m"], "ts", {"ms": aggr.hdr("ms", bad_values="skip")})
    >>> store = FrameStore(tempfile.mkdtemp(), frame)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     store.append_rows(pa.table({"ts": [0, 0], "ms": [5, -1]}), writer="docs", commit=1)
    True
    >>> store.refused_values("docs")
    {1: {'ms': 1}}
    """
    check_writer(writer, 0)
    snapshot = store.backend.snapshot([f"{RECORD_PREFIX}writer {writer}"])
    counts = {} if snapshot is None else skipped_value_counts(snapshot, writer)
    return {int(number): by_column for number, by_column in counts.items()}


def recorded(store: OpenedStore, names: Iterable[str]) -> dict[str, Any]:
    """Return the values that commits have recorded with the states, by name.

    Parameters
    ----------
    names : names
        The names under which values were recorded by `append`, `replace` or `record`. The store is read once for
        all names.

    Returns
    -------
    dict of name -> plain data
        Names without a recorded value are left out.

    Raises
    ------
    ValueError
        If ``names`` is not a list of names.
    StoreError
        If the store cannot be read.
    """
    requested = checked_names(names, "names")
    snapshot = store.backend.snapshot(requested)
    return {} if snapshot is None else record_values(snapshot.texts, requested)


def record(store: OpenedStore, recorded: Mapping[str, Any], replacing: Mapping[str, Any] | None = None) -> None:
    """Record values by name in a commit without states.

    Parameters
    ----------
    recorded : name -> plain data
        The values to record, as in `append`.
    replacing : name -> plain data, optional
        The values that the store must have under the names in ``recorded``; see `append`.

    Raises
    ------
    ValueError
        If a name or a value cannot be recorded.
    CommitConflict
        If another writer has recorded another value under one of the names.
    StoreError
        If the store does not exist or cannot be written.
    """
    texts = checked_records(recorded)
    expected = expected_texts(recorded, replacing)

    def attempt(transaction: WritingTransaction) -> None:
        check_unchanged(transaction, expected)
        for name, text in texts.items():
            transaction.records(name, text)

    _ = store.manifest
    run_transaction(store.backend, attempt, expected)


def end_stream(store: OpenedStore, stream: str) -> None:
    """Remove the watermark of a stream that does not continue. Queries with ``closed=True`` then ignore the stream.

    A stream that closes its windows at its end, such as ``tiltframe stream --drain``, removes its watermark itself.
    The states of the stream stay in the store. If the stream commits again, it records its watermark again.

    Parameters
    ----------
    stream : str
        The name of the stream, as in ``inspect().watermarks``.

    Raises
    ------
    ValueError
        If the store has no watermark of this stream.
    StoreError
        If the store does not exist or cannot be written.

    Examples
    --------
    >>> import aggr, tempfile, pyarrow as pa
    >>> from tiltframe import FrameStore, TiltFrame
    >>> from tiltframe.store.closed_windows import ClosedWindows
    >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
    >>> stream = ClosedWindows(store, "docs")
    >>> late = stream.add_rows(pa.table({"ts": [0]}))
    >>> stream.advance(60_000_000)
    >>> stream.commit(), store.inspect().watermarks
    (True, {'docs': 60000000})
    >>> store.query("1h", closed=True).num_rows
    0
    >>> store.end_stream("docs")
    >>> store.query("1h", closed=True)["n"].to_pylist()
    [1]
    """
    streams = watermarks_of(snapshot_of(store.backend))
    if checked_name(stream, "stream, the name of a stream into the store,") not in streams:
        raise ValueError(f"the store has no watermark of the stream {shown(stream)}; {nearest(stream, streams)}")
    run_transaction(store.backend, StreamWatermark(stream, None).record, [WATERMARKS])
