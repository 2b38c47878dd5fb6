"""Places: where a store is, a folder, an object store or a database, and what is there."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa

from aggr.arguments import because, checked_mapping, is_name, shown
from aggr.extras import MissingExtra
from tiltframe.store.core.backend import Backend, StoreError
from tiltframe.store.core.manifest import Manifest
from tiltframe.store_folders import DESCRIPTION

OLD = "tiltframe.json"  # the manifest of format 1


_SCHEMES = r"(postgres|postgresql|file|s3a?|gs|gcs|az|adl|azure|abfss?|hdfs|https?):"


def checked_uri(uri: str | os.PathLike[str]) -> str:
    """Check that something can say where a store is; raises ``ValueError``."""
    given = os.fspath(uri) if isinstance(uri, str | os.PathLike) else uri
    if not isinstance(given, str) or not is_name(given):
        raise ValueError(f"a store is at a folder, an object store's URI or postgresql://…; got {shown(uri)}")
    if re.match(rf"{_SCHEMES}(?!//)|postgres(ql)?//", given):
        raise ValueError(f"{shown(given)} is no URI of a store: // follows the colon, as in postgresql://host/database")
    if re.match(r"(memory|hdfs)://", given):
        raise ValueError(
            f"{shown(given)} is of a kind that cannot be opened; use a folder, s3://, gs://, az:// or abfss://"
        )
    if re.match(r"(?!file:|postgres(ql)?:)[a-z][a-z0-9+]*://(/|$)", given):
        raise ValueError(f"{shown(given)} names no bucket; write it after //, as in s3://bucket/path")
    if given.startswith("file:"):
        parts = urlsplit(given)
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
            raise ValueError(f"{shown(given)} is no folder of this machine; write file:///path, or the folder itself")
    if "://" not in given and re.search("%[0-9A-Fa-f]{2}", os.path.abspath(given)):
        raise ValueError(
            f"{shown(given)} has % and two digits in it, which Delta Lake reads as another character; "
            "choose another folder"
        )
    return given


def check_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """Check the options of an object store; raises ``ValueError``."""
    if options is None:
        return {}
    for name, value in checked_mapping(options, "storage_options", "name -> value, both text").items():
        if not is_name(name) or not isinstance(value, str):
            raise ValueError(f"storage_options must be text by name; got {shown(name)}: {shown(value)}")
    return dict(options)


def backend_at(uri: str, name: str | None, options: Mapping[str, str], durable: bool = False) -> Backend:
    """Choose what keeps a store by its URI, and whether commits are on the disk first; nothing is read or written.

    Raises `StoreError` where what is needed is not installed.
    """
    if uri.startswith("file://"):
        from urllib.request import url2pathname  # with http and ssl

        uri = url2pathname(urlsplit(uri).path)
    if not is_address(uri):
        try:
            from tiltframe.store.delta.backend import DeltaBackend  # half a second, for stores in folders alone
        except ImportError as error:
            raise StoreError(str(MissingExtra("a store in a folder or object store", "delta", error))) from None
        return DeltaBackend(uri, tuple(options.items()), durable)
    if options:
        raise ValueError("PostgreSQL takes its options in the URI: postgresql://…?option=value")
    from tiltframe.store.postgres.backend import PostgresBackend

    return PostgresBackend(uri, name or "", durable)


def is_address(uri: str) -> bool:
    """Say whether a URI is of PostgreSQL."""
    return uri.startswith(("postgresql://", "postgres://"))


def described(backend: Backend, name: str | None) -> Manifest | None:
    """Read what a place says of itself; None where there is nothing yet.

    Raises `StoreError` for a file, a folder of other things, a store of another name or of an older format.
    """
    if isinstance(backend, _of_delta()):
        from tiltframe.store.delta.log import clear

        with clear(backend.place):  # what may not be looked at
            return _described(backend, name)
    return _described(backend, name)


def _of_delta() -> tuple[type, ...]:
    """Return the class of Delta's backends, if it has been loaded: no backend is of it otherwise."""
    loaded = sys.modules.get("tiltframe.store.delta.backend")
    return () if loaded is None else (loaded.DeltaBackend,)


def _described(backend: Backend, name: str | None) -> Manifest | None:
    path = Path(backend.uri)
    is_folder = isinstance(backend, _of_delta()) and "://" not in backend.uri
    if is_folder:
        check_folder(path)
    found = backend.describe()
    if found is None:
        if is_folder and (path / OLD).exists():
            raise StoreError(
                f"the store {path} has format 1, of before 0.1: roll its inputs up again into a new folder"
            )
        if is_folder and path.exists() and any(entry.name != DESCRIPTION for entry in path.iterdir()):
            raise StoreError(f"the folder {path} has other things in it and is no store; give a new or an empty folder")
        return None
    manifest = Manifest.from_dict(found, backend.place)
    if name is not None and name != manifest.name:
        raise StoreError(f"the store {backend.place} is called {manifest.name!r}, not {name!r}")
    return manifest


def check_folder(path: Path) -> None:
    """Raise `StoreError` where no folder is, and none can be made."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise StoreError(f"a store cannot be there: {because(error)}") from None
    there = next(folder for folder in (path, *path.absolute().parents) if os.path.lexists(folder))
    if not there.is_dir():
        problem = "a file" if there.is_file() else "a link to nothing" if there.is_symlink() else "no folder"
        raise StoreError(f"{there} is {problem}; a store is a folder")


def check_types(kept: Manifest, states: pa.Schema, uri: str) -> None:
    """Raise `StoreError` unless states of this schema can be merged with those in the store."""
    for field in kept.schema:
        given = states.field(field.name).type
        if given != field.type:
            raise StoreError(
                f"the store {uri} keeps {_kind(field.type)} in {field.name!r}, and this is {_kind(given)}; "
                "convert the data to the store's type, or give another folder"
            )


def _kind(dtype: pa.DataType) -> str:
    """Name the type that a state or a key is about."""
    if not pa.types.is_struct(dtype):
        return str(dtype)
    about = [
        dtype.field(i).type for i in range(dtype.num_fields) if dtype.field(i).name in ("unit", "least", "greatest")
    ]
    return f"states of {about[0]}" if about else "states"
