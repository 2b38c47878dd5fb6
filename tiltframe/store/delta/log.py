"""The Delta log, as a store uses it: files as parts, parts as actions, failures as sentences."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from tiltframe.frame import START
from tiltframe.names import BUCKET, COMMIT, WRITER
from tiltframe.store.core.backend import Part, StoreError
from tiltframe.store.delta.files import bucket_of_file, reason


def parts_of(files: pa.Table, level: str, uri: str) -> Iterator[Part]:
    """Read what a table says of its files."""
    if not files.num_rows:
        return
    sides = [f"{side}.{name}" for name in (WRITER, COMMIT) for side in ("min", "max")]
    if set(sides) - set(files.column_names) or not all(
        files.column(least).equals(files.column(greatest)) for least, greatest in (sides[:2], sides[2:])
    ):
        raise StoreError(
            f"the store {uri} is damaged: another tool has rewritten files of {level}; restore the version before"
        )
    starts = [files.column(f"{side}.{START}").cast(pa.int64()).to_pylist() for side in ("min", "max")]
    columns = [files.column(name).to_pylist() for name in (sides[0], sides[2], "num_records", "size_bytes", "path")]
    if any(None in column for column in (*starts, *columns)):
        raise StoreError(f"the store {uri} is damaged: the log of {level} does not say what its files hold")
    for least, greatest, writer, number, rows, size, path in zip(*starts, *columns, strict=True):
        yield Part(level, writer, number, least, greatest, rows, size, unquote(path))


def added(part: Part) -> AddAction:
    """Describe a file to Delta; the least and the greatest are what readers choose files by."""
    least, greatest = (
        {START: _iso(at), WRITER: part.writer, COMMIT: part.commit} for at in (part.least, part.greatest)
    )
    nothing = dict.fromkeys((START, WRITER, COMMIT), 0)
    stats = {"numRecords": part.rows, "minValues": least, "maxValues": greatest, "nullCount": nothing}
    now = int(time.time() * 1000)
    return AddAction(part.name, part.bytes, {BUCKET: bucket_of_file(part)}, now, True, json.dumps(stats))


def removed(part: Part) -> RemoveAction:
    """Say to Delta that a file is no longer of the table."""
    return RemoveAction(part.name, True, int(time.time() * 1000), part.bytes, {BUCKET: bucket_of_file(part)})


def _iso(at: int) -> str:
    return np.datetime_as_string(np.datetime64(at, "us")) + "Z"


def described_by(text: str | None, uri: str) -> dict[str, Any]:
    """Read a description from what the log has of it; raises `StoreError` unless it is one."""
    try:
        manifest: dict[str, Any] = json.loads(text or "")
    except ValueError:
        manifest = {}
    if not isinstance(manifest, dict) or not manifest:
        raise StoreError(f"the store {uri} is damaged: its description cannot be read") from None
    return manifest


@contextmanager
def clear(uri: str) -> Iterator[None]:
    """Turn what goes wrong below into one sentence; a missing file is for the caller."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise StoreError(f"the store {uri} cannot be read or written: {reason(error)}") from None
