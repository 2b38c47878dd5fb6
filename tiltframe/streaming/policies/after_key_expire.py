"""AfterKeyExpire: emit a key's window over all time when the key has had no events for some time.

The policy is modelled on Timeplus's ``EMIT AFTER KEY EXPIRE``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import aggr
from aggr.arguments import checked_name, checked_truth
from aggr.arrays import Flags
from aggr.arrow import compute as pc
from tiltframe.streaming.policies.emit import ByClock
from tiltframe.streaming.policies.policy import LONGER_THAN_0, HeldWindows, micros

if TYPE_CHECKING:
    from tiltframe.frame import TiltFrame

SPAN = "span"


@dataclass(frozen=True, repr=False)
class AfterKeyExpire(ByClock):
    """Emit a key's window over all time when the key has had no events for some time. The window is then removed from
    memory, and a later event of the key starts a new one.

    The frame must have keys, and ``all`` as its only level. Emitted rows have the columns ``span``, the time from the
    earliest event of the key to the latest, and ``reason``: ``over_span`` if the span is longer than ``maxspan``, and
    ``expired`` otherwise.

    Parameters
    ----------
    timeout : duration, optional
        The time without events after which a key expires. If it is not passed, ``maxspan`` is required, and a key
        expires when the watermark reaches the time of its first event plus ``maxspan``.
    span_of : column name, optional
        The column of times from which ``span`` is computed. The default is the time column of the frame.
    maxspan : duration, optional
        The limit above which a span has the reason ``over_span``. Without ``timeout``, it is also the time after the
        first event at which a key expires.
    only : bool
        Whether to emit only keys whose span is longer than ``maxspan``. Other keys are removed without an emission.
    clock : str
        ``arrival``: a key expires when ``timeout`` has passed since the arrival of its last event. ``event``: a key
        expires when the watermark reaches the time of its last event plus ``timeout``. Without ``timeout``, the clock
        is always ``event``.
    delay, mode, having, latest, changed : as in `EmitPolicy`
        ``mode`` must be ``accumulating``, and ``changed`` must be ``rows``.

    Examples
    --------
    >>> from tiltframe.streaming import read_emit
    >>> read_emit("after_key_expire(timeout=1m, maxspan=500ms, only)")
    AfterKeyExpire(timeout='1m', maxspan='500ms', only=True)
    """

    timeout: str | None = field(default=None, metadata=LONGER_THAN_0)
    span_of: str | None = field(default=None, kw_only=True)
    maxspan: str | None = field(default=None, kw_only=True, metadata=LONGER_THAN_0)
    only: bool = field(default=False, kw_only=True)

    name: ClassVar[str] = "after_key_expire"
    columns: ClassVar[Mapping[str, pa.DataType]] = {SPAN: pa.duration("us")}
    forgets_timed_out: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.timeout is None:
            if self.maxspan is None:
                raise ValueError(
                    "after_key_expire needs timeout or maxspan; pass timeout, the time after a key's last event, such "
                    "as '1m', or maxspan, the time after its first event, such as '500ms'"
                )
            object.__setattr__(self, "clock", "event")
        if self.changed != "rows":
            raise ValueError(
                f"changed={self.changed} has no effect, because a key that expires is emitted once; leave it out"
            )
        if self.span_of is not None:
            checked_name(self.span_of, "span_of, the column that spans are measured by,")
        if checked_truth(self.only, "only") and self.maxspan is None:
            raise ValueError("only= emits only keys whose span is longer than maxspan; pass maxspan, such as '5m'")
        if self.mode != "accumulating":
            raise ValueError(
                f"mode={self.mode} cannot be used, because a key that expires is emitted once; leave it out"
            )

    @property
    def emits_without_rows(self) -> bool:
        return not self.by_event

    def check(self, frame: TiltFrame) -> None:
        if [level.name for level in frame.levels] != ["all"] or not frame.keys:
            raise ValueError(
                "after_key_expire emits a key's window over all of time: the frame must have keys, and levels=['all']; "
                f"its levels are {[level.name for level in frame.levels]} and its keys {list(frame.keys)}"
            )

    def measures(self, frame: TiltFrame) -> Mapping[str, aggr.Measure]:
        of = self.span_of or frame.time
        ends = {"earliest": aggr.first(of, by=self.span_of), "latest": aggr.last(of, by=self.span_of)}
        if self.timeout is None:
            return {**ends, "first_event": aggr.first(frame.time)}
        return {**ends, "last_event": aggr.last(frame.time)} if self.by_event else ends

    def timed_out(self, windows: HeldWindows, watermark: int | None, now: int | None) -> Flags:
        if not self.by_event:
            return super().timed_out(windows, watermark, now)
        if watermark is None or not len(windows):
            return np.zeros(len(windows), np.bool_)
        if self.timeout is None:
            over = pc.less_equal(windows.times("first_event"), watermark - micros(str(self.maxspan)))
        else:
            over = pc.less_equal(windows.times("last_event"), watermark - micros(self.timeout))
        return np.asarray(over.fill_null(True))

    def values(self, windows: HeldWindows) -> Mapping[str, pa.Array]:
        return {SPAN: pc.subtract(windows.times("latest"), windows.times("earliest")).cast(pa.duration("us"))}

    def reasons(self, windows: HeldWindows, reasons: NDArray[np.str_]) -> NDArray[np.str_]:
        return np.where(self._over_span(windows), "over_span", "expired")

    def admits(self, windows: HeldWindows) -> Flags:
        return self._over_span(windows) if self.only else super().admits(windows)

    def _over_span(self, windows: HeldWindows) -> Flags:
        """Return a mask of the windows whose span is longer than ``maxspan``. Without ``maxspan``, the mask is false
        everywhere.
        """
        if self.maxspan is None:
            return np.zeros(len(windows), np.bool_)
        over = pc.greater(self.values(windows)[SPAN].cast(pa.int64()), micros(self.maxspan))
        return np.asarray(over.fill_null(False))
