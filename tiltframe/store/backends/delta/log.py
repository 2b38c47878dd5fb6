"""The Delta log of a store: convert its entries to parts, which are files of states, and parts to entries. Also convert
errors of deltalake to store errors.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from aggr.arguments import because
from tiltframe.names import BUCKET, LEVEL, RECORD, START
from tiltframe.store.backends.delta.process import forked_error
from tiltframe.store.backends.delta.records import RECORDS, RecordFile
from tiltframe.store.backends.protocol import Part
from tiltframe.store.log.errors import DamagedStore, UnreachableStore

# the maximum length of a line in an error message; longer lines are shortened, because some messages of Delta Lake
# contain complete schemas
_MAX_LINE_LENGTH = 150
_TRACE_LINE = re.compile(r"at \./|[0-9]+: ")


def files_of_actions(actions: pa.Table, uri: str) -> tuple[tuple[Part, ...], tuple[RecordFile, ...]]:
    """Return the files of a table as two tuples: the parts of states, and the files of records. ``actions`` are the
    actions of the table's log that add files, one row per file. Raise `DamagedStore` if an action lacks a value.
    """
    names = {"level": f"partition.{LEVEL}", "rows": "num_records", "size": "size_bytes", "path": "path"}
    names |= {"first": f"min.{START}", "last": f"max.{START}", "low": f"min.{RECORD}", "high": f"max.{RECORD}"}
    actions = actions.select([name for name in names.values() if name in actions.column_names])
    for name in (names["first"], names["last"]):
        if name in actions.column_names:
            micros = actions.column(name).cast(pa.int64())
            actions = actions.set_column(actions.column_names.index(name), name, micros)
    parts = list[Part]()
    records = list[RecordFile]()
    for row in actions.to_pylist():
        level, rows, size, path, first, last, low, high = (row.get(name) for name in names.values())
        edges = (low, high) if level == RECORDS else (first, last)
        if None in (level, rows, size, *edges):
            raise DamagedStore(
                f"the store {uri} is damaged: its log does not contain the level, the number of rows, the size, or the "
                f"first and last value of the file {path}; restore the log from a backup"
            )
        if level == RECORDS:
            records.append(RecordFile(unquote(path), low, last=high, rows=rows, bytes=size))
        else:
            parts.append(Part(level, first, last_start=last, rows=rows, bytes=size, name=unquote(path)))
    return tuple(parts), tuple(records)


def add_action(file: Part | RecordFile) -> AddAction:
    """Return the action of the log that adds a file. It contains the minimum and the maximum of one column, with which
    readers select files: window_start for a file of states, and the name of the record for a file of records.
    """
    if isinstance(file, Part):
        first_and_last = np.array([file.first_start, file.last_start], "datetime64[us]")
        edges = [{START: f"{at}Z"} for at in np.datetime_as_string(first_and_last)]
    else:
        edges = [{RECORD: name} for name in (file.first, file.last)]
    stats = {"numRecords": file.rows, "minValues": edges[0], "maxValues": edges[1]}
    stats["nullCount"] = dict.fromkeys(edges[0], 0)
    return AddAction(
        path=file.name,
        size=file.bytes,
        partition_values=partition_of(file),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(stats),
    )


def remove_action(file: Part | RecordFile) -> RemoveAction:
    """Return the action that removes a file from the table."""
    return RemoveAction(
        path=file.name,
        data_change=True,
        deletion_timestamp=int(time.time() * 1000),
        size=file.bytes,
        partition_values=partition_of(file),
    )


def partition_of(file: Part | RecordFile) -> dict[str, str | None]:
    """Return the partition of a file: the values of the columns level and bucket, as column → value."""
    bucket = file.name.split("/")[-2].removeprefix(f"{BUCKET}=")
    return {LEVEL: file.level, BUCKET: bucket}


def parse_manifest(text: str | None, uri: str) -> Mapping[str, Any]:
    """Return the manifest in ``text``, which is JSON from the metadata of the log. Raise `DamagedStore` if ``text`` is
    not a manifest.
    """
    try:
        manifest: dict[str, Any] = json.loads(text or "")
    except ValueError:
        manifest = {}
    if not isinstance(manifest, dict) or not manifest:
        raise DamagedStore(f"the store {uri} is damaged: its manifest cannot be read; restore its log from a backup")
    return manifest


@contextmanager
def as_store_errors(uri: str) -> Iterator[None]:
    """Convert errors that deltalake raises in the block to `DamagedStore` or `UnreachableStore`, with a message of one
    sentence. A ``FileNotFoundError`` is not converted.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except BaseException as error:
        if type(error).__name__ == "PanicException" and "orked process" in str(error):
            raise forked_error() from None
        if not isinstance(error, DeltaError | OSError | pa.ArrowException):
            raise
        problem = one_line_message(error)
        error_class = DamagedStore if "its log is damaged" in problem else UnreachableStore
        advice = "; restore it from a backup" if error_class is DamagedStore else ""
        raise error_class(f"the store {uri} cannot be read or written: {problem}{advice}") from None


def one_line_message(error: BaseException) -> str:
    """Return the message of an error in one line: the operation that failed, and the last cause, without stack traces
    and internal names of deltalake.
    """
    text = because(error) if isinstance(error, OSError) and error.errno is not None else str(error)
    # Remove escape sequences for terminal colours.
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    # delta-kernel is the library with which deltalake reads the log. An error that begins with "Kernel error: " means
    # that the log is damaged.
    text = re.sub(r"^Kernel error: ", "its log is damaged: ", text)
    # An error that begins with "Kernel error -> " is not reported as damage. It also occurs for rejected requests, such
    # as a request to S3 without credentials.
    text = re.sub(r"^Kernel error -> ", "", text)
    text = re.sub(r'Os \{[^}]*message: "([^"]*)" \}', r"\1", re.sub(r"Generic [\w ]*error(: |\n)", "", text))
    lines = [line.strip(" \t↳") for line in text.strip().splitlines()]
    # Leave out the lines of Delta Lake's stack trace.
    lines = [line for line in lines if not _TRACE_LINE.match(line)] or lines
    lines = [re.sub(r":? ?ParsedLogPath \{.*", "", line) for line in lines]
    lines = [
        line if len(line) <= _MAX_LINE_LENGTH else f"{line[:90]}…{line[91 - _MAX_LINE_LENGTH :]}" for line in lines
    ]
    first_and_last = lines[:1] + lines[-1:] if len(lines) > 1 else lines
    parts = [line.rstrip(".:") for line in first_and_last if line]
    return ": ".join(dict.fromkeys(parts)) or type(error).__name__
