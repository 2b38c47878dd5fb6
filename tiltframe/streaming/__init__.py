"""tiltframe.streaming: windows that are still open while events arrive, and policies that determine when windows are
emitted and how late events are treated.
"""

from tiltframe.streaming.open_windows import OpenWindows
from tiltframe.streaming.ordered_stream import OrderedStream
from tiltframe.streaming.policies import (
    AfterClose,
    AfterCount,
    AfterKeyExpire,
    Buffer,
    Drop,
    EmitPolicy,
    LatePolicy,
    OnUpdate,
    Periodic,
    TrueWindow,
    read_emit,
    read_late,
)
from tiltframe.streaming.progress import Progress
from tiltframe.streaming.source_watermarks import SourceWatermarks

__all__ = [
    "AfterClose",
    "AfterCount",
    "AfterKeyExpire",
    "Buffer",
    "Drop",
    "EmitPolicy",
    "LatePolicy",
    "OnUpdate",
    "OpenWindows",
    "OrderedStream",
    "Periodic",
    "Progress",
    "SourceWatermarks",
    "TrueWindow",
    "read_emit",
    "read_late",
]
