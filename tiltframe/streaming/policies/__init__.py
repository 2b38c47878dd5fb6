"""tiltframe.streaming.policies: emit policies, late policies, and base classes for new policies."""

from tiltframe.streaming.policies.after_key_expire import AfterKeyExpire
from tiltframe.streaming.policies.emit import AfterClose, AfterCount, ByClock, EmitPolicy, OnUpdate, Periodic
from tiltframe.streaming.policies.late import Arrival, Buffer, Drop, LatePolicy, TrueWindow
from tiltframe.streaming.policies.policy import DURATION, LONGER_THAN_0, HeldWindows, micros
from tiltframe.streaming.policies.read import emit_policy, read_emit, read_late

__all__ = [
    "DURATION",
    "LONGER_THAN_0",
    "AfterClose",
    "AfterCount",
    "AfterKeyExpire",
    "Arrival",
    "Buffer",
    "ByClock",
    "Drop",
    "EmitPolicy",
    "HeldWindows",
    "LatePolicy",
    "OnUpdate",
    "Periodic",
    "TrueWindow",
    "emit_policy",
    "micros",
    "read_emit",
    "read_late",
]
