"""The frame store: states that last, in Delta Lake or PostgreSQL, and every way to ask for them."""

from tiltframe.store.core.backend import StoreError
from tiltframe.store.frame_store import FrameStore
from tiltframe.store.query.execution import Expired

__all__ = ["Expired", "FrameStore", "StoreError"]
