"""For those who write a backend of a store: one in memory, and the checks of what the protocol promises."""

from tiltframe.store.testing.checks import check_backend
from tiltframe.store.testing.memory import MemoryBackend

__all__ = ["MemoryBackend", "check_backend"]
