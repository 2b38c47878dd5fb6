"""The served stores, by name. A store is opened once for all threads. If its manifest, for example its frame, changes,
the store is opened again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from aggr.extend.arguments import nearest, shown
from tiltframe.serve.errors import Refused
from tiltframe.store import FrameStore, OtherFrame, StoreView
from tiltframe.store.backends import scheme_of

_NAME = r"[A-Za-z0-9_.-]+"
_DATABASE_SCHEMES = ("postgres", "postgresql")


class ServedStore:
    """A store under the name by which it is served.

    ``address`` is a folder, a URI or ``NAME=URI``. Without ``NAME``, the name is the last part of the folder or URI.
    The URI of a database is an exception: ``NAME`` then selects a store of the database and, without ``NAME``, the
    store has the name that it has in the database.

    Raise ``ValueError`` if the name cannot be part of a URL, and `StoreError` if the store cannot be opened.
    """

    def __init__(self, address: str, durable: bool = False) -> None:
        """Open the store. With ``durable``, commits are written to the disk before they are acknowledged."""
        match = re.fullmatch(f"({_NAME})=(.+)", address)
        uri = match[2] if match else address
        is_in_database = scheme_of(uri) in _DATABASE_SCHEMES
        self._uri = uri
        self.is_remote = "://" in uri
        self._name_in_database = match[1] if match and is_in_database else None
        store = FrameStore(uri, name=self._name_in_database, durable=durable)
        folder = os.path.basename(uri.rstrip("/") if self.is_remote else os.path.abspath(uri))
        name_without_prefix = store.name if is_in_database else folder
        self.name = match[1] if match else name_without_prefix
        if not re.fullmatch(_NAME, self.name):
            raise ValueError(
                f"the store name {shown(self.name)} cannot be part of a URL, which allows only letters, digits, '_', "
                f"'.' and '-'; give it another name: NAME={shown(uri)[1:-1]}"
            )
        self.store = store
        self._opened_manifest = store.at().snapshot.manifest

    def include_open_windows(self, state_file: str) -> None:
        """From now on, include the open windows of a stream in the views of the store. ``state_file`` is the path of
        the file in which the stream saves its state.
        """
        self.store = self.store.with_open(state_file)
        self.current_view()

    def check_can_open(self) -> None:
        """Open the store again, without cached data. Raise `StoreError` if it cannot be opened."""
        FrameStore(self._uri, name=self._name_in_database).at()

    def current_view(self) -> StoreView:
        """Return the current view of the store. If the manifest of the store has changed, or another store was created
        at the address, the store is opened again.

        The view's time is set to the last microsecond of the current window of the finest level. All requests within
        this window therefore have the same time, and get the same cached answer if the store has not changed.
        """
        try:
            view = self.store.at()
        except OtherFrame:
            self.store = FrameStore(self.store.backend)
            view = self.store.at()
        if view.snapshot.manifest != self._opened_manifest:
            self.store = FrameStore(view.backend)
            self._opened_manifest = view.snapshot.manifest
            view = replace(view, manifest=self.store.manifest)
        finest = view.frame.levels[0]
        end = finest.ends(finest.starts(np.array([view.now], np.int64)))[0]
        return replace(view, now=int(end) - 1)


class Stores(Mapping[str, FrameStore]):
    """A mapping from names to the served stores, at their current versions. For an unknown name, `Refused` is raised
    with status 404.
    """

    def __init__(self, addresses: Iterable[str], durable: bool = False, state_files: Iterable[str] = ()) -> None:
        """Open the stores at ``addresses``, as `ServedStore` reads them. ``state_files`` are the files of streams
        whose open windows are included, as FILE or NAME=FILE.

        Raise ``ValueError`` if two stores have the same name, or if a state file does not belong to one of the stores.
        """
        self._stores: dict[str, ServedStore] = {}
        for text in addresses:
            store = ServedStore(text, durable)
            if store.name in self._stores:
                raise ValueError(
                    f"two stores are called {store.name!r}; rename one of them: "
                    f"NAME={text.removeprefix(f'{store.name}=')}"
                )
            self._stores[store.name] = store
        for text in state_files:
            match = re.fullmatch(f"({_NAME})=(.+)", text)
            if not match and len(self._stores) > 1:
                raise ValueError(
                    f"the server has several stores; name the store of the state file {shown(text)}: NAME={text}"
                )
            name, file = match.groups() if match else (next(iter(self._stores)), text)
            if name not in self._stores:
                raise ValueError(f"no store {shown(name)} is served; {nearest(name, self._stores)}")
            self._stores[name].include_open_windows(file)

    def current_view(self, name: str) -> StoreView:
        """Return the current view of a store. Raise `Refused` if no store has this name."""
        if name not in self._stores:
            raise Refused(404, f"no store {shown(name)} is served; {nearest(name, self._stores)}")
        return self._stores[name].current_view()

    def is_remote(self, name: str) -> bool:
        """Return whether a store is at an address such as ``s3://bucket/store``, and not in a local folder."""
        return self._stores[name].is_remote

    def check_can_open(self) -> None:
        """Raise `StoreError` if one of the stores cannot be opened."""
        for store in self._stores.values():
            store.check_can_open()

    def current_views(self) -> dict[str, StoreView]:
        """Return the current views of all stores, by name."""
        return {name: store.current_view() for name, store in self._stores.items()}

    def __getitem__(self, name: str) -> FrameStore:
        self.current_view(name)
        return self._stores[name].store

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)
