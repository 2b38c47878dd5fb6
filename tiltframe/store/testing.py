"""Support for writing a backend of a store: one in memory, and the checks of the protocol's promises."""

from tiltframe.store.backends.check_backend import check_backend
from tiltframe.store.backends.memory import MemoryBackend

__all__ = ["MemoryBackend", "check_backend"]
