"""Places: where a store is, a folder, an object store or a database, and what is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa

from tiltframe.store.delta import DESCRIPTION, DeltaTables
from tiltframe.store.delta_log import clear
from tiltframe.store.description import Description
from tiltframe.store.tables import StoreError, Tables

OLD = "tiltframe.json"  # the manifest of format 1


def tables_at(uri: str | os.PathLike[str], name: str | None, options: Mapping[str, str]) -> Tables:
    """Choose what keeps a store by its URI; nothing is read or written.

    Raises ``ValueError`` for no text, `StoreError` where what is needed is not installed.
    """
    uri = os.fspath(uri)
    if not isinstance(uri, str) or not uri.strip() or "\0" in uri:
        raise ValueError(f"a store is at a folder, an object store's URI or postgresql://…; got {uri!r}")
    if uri.startswith("file://"):
        uri = url2pathname(urlsplit(uri).path)
    if not uri.startswith(("postgresql://", "postgres://")):
        return DeltaTables(uri, tuple(options.items()))
    if options:
        raise ValueError("PostgreSQL takes its options in the URI: postgresql://…?option=value")
    try:
        from tiltframe.store.postgres import PostgresTables
    except ImportError as error:
        raise StoreError(f"stores in PostgreSQL need the extra: pip install 'tiltframe[postgres]' ({error})") from None
    return PostgresTables(uri, name or "")


def is_store(folder: Path) -> bool:
    """Say whether a folder is a store."""
    return (folder / DESCRIPTION / "_delta_log").is_dir()


def described(tables: Tables, name: str | None) -> Description | None:
    """Read what a place says of itself; None where there is nothing yet.

    Raises `StoreError` for a file, a folder of other things, a store of another name or of an older format.
    """
    with clear(tables.place):  # what may not be looked at
        return _described(tables, name)


def _described(tables: Tables, name: str | None) -> Description | None:
    path = Path(tables.uri)
    is_folder = "://" not in tables.uri
    if is_folder and path.exists() and not path.is_dir():
        raise StoreError(f"{path} is a file; a store is a folder")
    found = tables.describe()
    if found is None:
        if is_folder and (path / OLD).exists():
            raise StoreError(
                f"the store {path} has format 1, of before 0.1: roll its inputs up again into a new folder"
            )
        if is_folder and path.exists() and any(entry.name != DESCRIPTION for entry in path.iterdir()):
            raise StoreError(f"the folder {path} has other things in it and is no store; give a new or an empty folder")
        return None
    description = Description.from_dict(found, tables.place)
    if name is not None and name != description.name:
        raise StoreError(f"the store {tables.place} is called {description.name!r}, not {name!r}")
    return description


def check_types(kept: Description, states: pa.Schema, uri: str) -> None:
    """Raise `StoreError` unless states of this schema can be merged with those in the store."""
    for field in kept.schema:
        given = states.field(field.name).type
        if given != field.type:
            raise StoreError(
                f"the store {uri} keeps {_kind(field.type)} in {field.name!r}, and this is {_kind(given)}; "
                "convert the data to the store's type, or give another folder"
            )


def _kind(kind: pa.DataType) -> str:
    """Name the type that a state or a key is about."""
    if not pa.types.is_struct(kind):
        return str(kind)
    about = [kind.field(i).type for i in range(kind.num_fields) if kind.field(i).name in ("unit", "least", "greatest")]
    return f"states of {about[0]}" if about else "states"
