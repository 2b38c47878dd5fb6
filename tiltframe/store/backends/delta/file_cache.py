"""A cache of footers of files, of the rows of small files, of results of stored rows, and of results and merged states
of parts. It has a maximum size in bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

from pyarrow import fs

from tiltframe.store.backends.cache_memory import cache_memory

# The version of a data file: its folder, its name, its size in bytes, and its modification time in ns.
FileVersion: TypeAlias = tuple[str, str, int, int | None]


class _Entry(NamedTuple):
    value: Any
    byte_count: int
    files: Sequence[FileVersion]


class FileCache:
    """A cache of values that were computed from files, by key. If the values together exceed a maximum number of bytes,
    those that were used least recently are removed. Any thread may use the cache.

    The maximum is the result of a function, which each ``get`` and ``put`` calls, so that a new limit takes effect at
    the next use of the cache.

    >>> cache = FileCache(lambda: 10)
    >>> cache.put("a", "footer", 6)
    >>> cache.put("b", "rows", 6)
    >>> cache.get("a"), cache.get("b")
    (None, 'rows')
    """

    def __init__(self, max_bytes: Callable[[], int]) -> None:
        """Create an empty cache. ``max_bytes`` returns its maximum size in bytes."""
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._keys_by_file: dict[FileVersion, set[Hashable]] = {}
        self._lock = Lock()

    def get(self, key: Hashable) -> Any:
        """Return the value of a key, or None if the cache does not have it."""
        return self.get_all([key])[0]

    def get_all(self, keys: Iterable[Hashable]) -> list[Any]:
        """Return the value of each key, or None for a key that the cache does not have."""
        with self._lock:
            self._remove_oldest()
            return [self._get(key) for key in keys]

    def _get(self, key: Hashable) -> Any:
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.value

    def put(self, key: Hashable, value: Any, bytes_of_value: int, files: Sequence[FileVersion] = ()) -> None:
        """Add a value that takes ``bytes_of_value`` bytes of memory, and was computed from ``files``.

        A value that is larger than the cache is not added, because all other values would have to be removed for it.
        """
        with self._lock:
            self._remove(key)
            if bytes_of_value > self._max_bytes():
                return
            self._bytes += bytes_of_value
            self._entries[key] = _Entry(value, bytes_of_value, files)
            for file in files:
                self._keys_by_file.setdefault(file, set()).add(key)
            self._remove_oldest()

    def forget(self, file: FileVersion) -> None:
        """Remove all values that were computed from a file."""
        with self._lock:
            for key in list(self._keys_by_file.get(file, ())):
                self._remove(key)

    def _remove(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._bytes -= entry.byte_count
        for file in entry.files:
            keys = self._keys_by_file.get(file, set())
            keys.discard(key)
            if not keys:
                self._keys_by_file.pop(file, None)

    def _remove_oldest(self) -> None:
        """Remove the values that were used least recently, until all values together fit into the maximum size."""
        max_bytes = self._max_bytes()
        while self._bytes > max_bytes:
            self._remove(next(iter(self._entries)))


CACHE = FileCache(cache_memory)


def version_of(name: str, folder: fs.FileSystem) -> FileVersion:
    """Return a data file's version, which changes if the file changes. Raise ``FileNotFoundError`` if the file is
    missing.
    """
    return versions_of([name], folder)[0]


def versions_of(names: Sequence[str], folder: fs.FileSystem) -> list[FileVersion]:
    """Return the versions of data files, as `version_of` does."""
    path = getattr(folder, "base_path", "")
    infos = folder.get_file_info(list(names))
    versions = [(path, name, info.size, info.mtime_ns) for name, info in zip(names, infos, strict=True)]
    for _, name, size, _ in versions:
        if size is None:  # Only files have a size.
            raise FileNotFoundError(name)
    return versions
