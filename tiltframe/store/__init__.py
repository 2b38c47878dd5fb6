"""The frame store: states that last, in Delta Lake or PostgreSQL, and every way to ask for them."""

from tiltframe.store.answer import Expired
from tiltframe.store.frame_store import FrameStore
from tiltframe.store.tables import StoreError

__all__ = ["Expired", "FrameStore", "StoreError"]
