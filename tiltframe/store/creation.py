"""Find the manifest of a store, or create the store with its manifest; check that the store has the expected name and
frame.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from tiltframe.frame import TiltFrame
from tiltframe.parameter_names import by_caller
from tiltframe.store.backends.protocol import Backend, Snapshot
from tiltframe.store.log.errors import MissingStore, OtherFrame
from tiltframe.store.log.manifest import Manifest, check_levels, id_in


def read_manifest(backend: Backend, name: str | None = None) -> Manifest | None:
    """Read and return the manifest of a store, or return None if the store does not exist. Raise `OtherFrame` if the
    store has another name than ``name``.
    """
    snapshot = backend.snapshot()
    if snapshot is None:
        return None
    manifest = Manifest.from_dict(snapshot.manifest, backend.display_uri)
    if name is not None and name != manifest.name:
        raise OtherFrame(
            f"the store {backend.display_uri} is called {manifest.name!r}, not {name!r}; pass its name, or leave out "
            "the name"
        )
    return manifest


def existing_manifest(backend: Backend) -> Manifest:
    """Read and return the manifest of a store. Raise `MissingStore` if the store does not exist yet."""
    manifest = read_manifest(backend)
    if manifest is None:
        raise MissingStore(
            f"the store {backend.display_uri} does not exist yet; its first commit creates it, and so does "
            "FrameStore(…, row_schema=SCHEMA) with the schema of future rows"
        )
    return manifest


def create_store(backend: Backend, manifest: Manifest) -> Manifest:
    """Create a store with a new id, and return the manifest that it has now. If another process has created the store
    in the meantime, its manifest is returned. Raise `OtherFrame` if that store has another name or frame.
    """
    backend.create(with_new_id(manifest).to_dict(), manifest.schema)
    stored = read_manifest(backend, manifest.name)
    assert stored is not None
    check_frame(stored, manifest.frame, backend.display_uri)
    return stored


def with_new_id(manifest: Manifest) -> Manifest:
    """Return a manifest for a new store: the same manifest with a new random id."""
    return replace(manifest, store_id=uuid.uuid4().hex)


def current_manifest(backend: Backend, manifest: Manifest, snapshot: Snapshot) -> Manifest:
    """Return the manifest with which a snapshot of a store is read. ``manifest`` was read before, and is returned if
    the snapshot belongs to the same store. If the store was deleted and created again in the meantime, the manifest of
    the new store is returned. Raise `OtherFrame` if the new store has another frame.
    """
    if id_in(snapshot.manifest) == manifest.store_id:
        return manifest
    new_manifest = Manifest.from_dict(snapshot.manifest, backend.display_uri)
    difference = manifest.frame.difference(new_manifest.frame)
    if difference:
        raise OtherFrame(
            f"the store {backend.display_uri} was deleted and created again with another frame since it was opened "
            f"here: {difference}; open the store again"
        )
    return new_manifest


def frame_of_store(manifest: Manifest | None, frame: TiltFrame | None, uri: str) -> TiltFrame:
    """Return the frame of a store.

    Parameters
    ----------
    manifest : Manifest, optional
        The manifest of the store, or None if the store does not exist.
    frame : TiltFrame, optional
        The frame that the caller expects, or with which the store will be created.
    uri : str
        The address of the store, for messages.

    Returns
    -------
    TiltFrame

    Raises
    ------
    MissingStore
        If the store does not exist and no frame is passed.
    OtherFrame
        If the store has another frame.
    ValueError
        If a store does not support the levels of the frame.
    """
    if manifest is not None:
        if frame is not None:
            check_frame(manifest, frame, uri)
        frame = manifest.frame
    if frame is None:
        raise MissingStore(f"there is no store {uri}; correct its address, or create it with a first commit")
    check_levels(frame)
    return frame


def check_frame(manifest: Manifest, frame: TiltFrame, uri: str) -> None:
    """Raise `OtherFrame` if a store has another frame than ``frame``; the message names the difference."""
    difference = frame.difference(manifest.frame)
    if difference:
        # `evolve` cannot change the keys, the time zone or the column of times.
        is_fixed = difference.startswith(("time", "keys"))
        evolved = (
            ""
            if is_fixed
            else ", or change the frame of the store: tiltframe evolve"
            + by_caller("", ", or FrameStore(uri).evolve(frame) in Python")
        )
        raise OtherFrame(
            f"the store {uri} belongs to another frame: {difference}; choose another folder or name{evolved}"
        )
