"""The manifest: the one file that says what a store holds; replaced at once, by renaming."""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tiltframe.frame import TiltFrame

MANIFEST = "tiltframe.json"
_FORMAT = 1


class StoreError(ValueError):
    """A store is missing, damaged, newer than this release, or of another frame."""


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a store's manifest: ``format``, ``frame``, ``schema`` of the states, ``commits``.

    Raises `StoreError` where it is missing, damaged or of a newer release.
    """
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        newer = manifest["format"] > _FORMAT
        whole = all(isinstance(manifest.get(part), dict) for part in ("frame", "commits"))
    except FileNotFoundError:
        raise StoreError(f"{path} is no store: it has no {MANIFEST}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise StoreError(f"the store {path} is damaged: cannot read {MANIFEST}: {error}") from None
    if newer:
        raise StoreError(
            f"the store {path} has format {manifest['format']}, newer than this release: upgrade tiltframe"
        )
    if not whole:
        raise StoreError(f"the store {path} is damaged: {MANIFEST} lacks the frame or the commits")
    return manifest


def write_manifest(path: Path, frame: TiltFrame, schema: pa.Schema | None, commits: Mapping[str, Any]) -> None:
    """Replace a store's manifest: whoever reads sees the old one or the new one, whole."""
    text = None if schema is None else base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()
    manifest = {"format": _FORMAT, "frame": frame.describe(), "schema": text, "commits": dict(commits)}
    temporary = path / f".{MANIFEST}.{uuid.uuid4().hex[:8]}"
    with open(temporary, "w") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path / MANIFEST)
    sync_folder(path)


def read_schema(manifest: Mapping[str, Any]) -> pa.Schema | None:
    """Read the schema of the states from a manifest; None while there are none."""
    text = manifest.get("schema")
    return None if text is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def sync_folder(path: Path) -> None:
    """Have the system write a folder's entries to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
