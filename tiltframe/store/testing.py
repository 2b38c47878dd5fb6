"""Support for writing a backend of a store: a backend in memory, and checks of the guarantees that the protocol
requires.
"""

from tiltframe.store.backends.guarantees.check_backend import check_backend
from tiltframe.store.backends.memory import MemoryBackend

__all__ = ["MemoryBackend", "check_backend"]
