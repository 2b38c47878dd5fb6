"""Emit policies: when open windows are emitted, and what of them.

All policies emit a window at its close, if it has changed since its last emission, and a closed window again, with the
next revision, after each batch that reaches it; they differ in what they emit before. A window is closed once the
watermark has reached its end and a delay; one without an end (``all``) never is. After the triggers and accumulation
modes of Beam's model, the ``EMIT`` clauses of Timeplus, and Flink's triggers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import Measure, sql
from aggr.arguments import checked_truth, checked_whole, shown
from tiltframe.streaming.policies.policy import DURATION, LONGER_THAN_0, HeldWindows, Policy, micros

if TYPE_CHECKING:
    from tiltframe.frame import TiltFrame

Mask = NDArray[np.bool_]

MODES = ("accumulating", "discarding", "changelog")
CLOCKS = ("arrival", "event")


@dataclass(frozen=True, repr=False)
class EmitPolicy(Policy):
    """What an emit policy is: a frozen dataclass, whose fields are its arguments and whose ``name`` begins its text.

    Everything has a default, that of `AfterClose`; a policy overrides what it does in another way.

    Parameters
    ----------
    delay : duration
        How long after its end a window is held open for events that are on their way, by the watermark.
    timeout : duration, optional
        Close a window that has seen no event for so long by the clock, wherever the watermark stands.
    mode : str
        ``accumulating``: the whole window each time. ``discarding``: the rows since its last emission.
        ``changelog``: the whole window, and first a retraction of its last emission; the column
        ``change`` is -1 for a retraction and 1 for what replaces it.
    having : str, optional
        A condition in SQL on the keys and results; what does not meet it is held back until it does. In a changelog
        a window that no longer meets it is retracted.
    latest : bool
        Of each level and key the latest window alone: none is emitted behind one that begins later. In a changelog it
        retracts the one before.

    Raises
    ------
    ValueError
        For anything else.

    Examples
    --------
    docs/streams.md has a policy of one's own, in one file.
    """

    delay: str = field(default="0s", kw_only=True, metadata=DURATION)
    timeout: str | None = field(default=None, kw_only=True, metadata=LONGER_THAN_0)
    mode: str = field(default="accumulating", kw_only=True)
    having: str | None = field(default=None, kw_only=True)
    latest: bool = field(default=False, kw_only=True)

    name: ClassVar[str] = ""
    early_reason: ClassVar[str] = ""  # of open windows that are emitted; a policy without one emits none
    columns: ClassVar[Mapping[str, pa.DataType]] = {}  # added to emitted rows
    forgets_timed_out: ClassVar[bool] = False  # whether a window is forgotten once a timeout has closed it

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.mode, str) or self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}; got {shown(self.mode)}")
        checked_truth(self.latest, "latest")
        if self.having is not None:
            sql.check_condition(self.having)

    @property
    def delay_micros(self) -> int:
        """The delay in microseconds."""
        return micros(self.delay)

    @property
    def timeout_micros(self) -> int | None:
        """The timeout in microseconds, if there is one."""
        return None if self.timeout is None else micros(self.timeout)

    @property
    def emits_open(self) -> bool:
        """Whether open windows may be emitted."""
        return bool(self.early_reason)

    @property
    def by_arrival(self) -> bool:
        """Whether windows may be emitted by the clock that rows arrive by, though no row comes."""
        return self.timeout is not None

    @property
    def by_event(self) -> bool:
        """Whether `is_due` counts by the watermark, not by the clock that rows arrive by."""
        return False

    def check(self, frame: TiltFrame) -> None:
        """Refuse a frame whose windows cannot be emitted so.

        Parameters
        ----------
        frame : TiltFrame

        Raises
        ------
        ValueError
            The message says what the policy needs.
        """

    def measures(self, frame: TiltFrame) -> Mapping[str, Measure]:
        """Name the measures that the policy needs of each window, next to those of the frame; they are not emitted.

        Parameters
        ----------
        frame : TiltFrame

        Returns
        -------
        name -> measure
            `HeldWindows.result` reads them by these names.
        """
        return {}

    def time(self, watermark: int | None, now: int | None) -> int | None:
        """Read the clock that `is_due` counts by; None while it is not known.

        Parameters
        ----------
        watermark, now : int, optional
            Microseconds; None while they are not known.

        Returns
        -------
        int, microseconds, or None
        """
        return watermark if self.by_event else now

    def is_due(self, before: int | None, time: int | None) -> bool:
        """Say whether open windows are to be looked at, given the clock, and where it stood when they last were.

        Parameters
        ----------
        before, time : int, optional
            Microseconds of the policy's clock.

        Returns
        -------
        bool
        """
        return True

    def last_checked(self, before: int | None, time: int | None, emitted: bool) -> int | None:
        """Say from where on the clock counts, after open windows were emitted or not.

        Parameters
        ----------
        before, time : int, optional
            Microseconds of the policy's clock.
        emitted : bool

        Returns
        -------
        int, microseconds, or None
        """
        return time

    def emit_open(self, windows: HeldWindows) -> Mask:
        """Choose windows to emit while they are open, with the reason ``early_reason``.

        Parameters
        ----------
        windows : HeldWindows
            They include closed windows, whose answer is ignored.

        Returns
        -------
        array of bool, shape (windows,)
        """
        return np.zeros(len(windows), np.bool_)

    def timed_out(self, windows: HeldWindows, watermark: int | None, now: int | None) -> Mask:
        """Choose the windows that are closed, whatever their ends, for they have seen no event for the timeout.

        Parameters
        ----------
        windows : HeldWindows
        watermark, now : int, optional
            Microseconds; None while they are not known.

        Returns
        -------
        array of bool, shape (windows,)
        """
        if self.timeout_micros is None or now is None:
            return np.zeros(len(windows), np.bool_)
        return windows.last_arrival <= now - self.timeout_micros

    def values(self, windows: HeldWindows) -> Mapping[str, pa.Array]:
        """Compute the columns that the policy adds.

        Parameters
        ----------
        windows : HeldWindows
            Those that are emitted.

        Returns
        -------
        name -> array, as ``columns`` names and types them
        """
        return {}

    def reasons(self, windows: HeldWindows, reasons: NDArray[np.str_]) -> NDArray[np.str_]:
        """Say why windows are emitted.

        Parameters
        ----------
        windows : HeldWindows
            Those that are emitted.
        reasons : array of str, shape (windows,)
            ``close``, ``timeout``, ``late``, or ``early_reason``.

        Returns
        -------
        array of str, shape (windows,)
        """
        return reasons

    def admits(self, windows: HeldWindows) -> Mask:
        """Choose the windows to emit, among the windows that are due; the others are held back.

        Parameters
        ----------
        windows : HeldWindows

        Returns
        -------
        array of bool, shape (windows,)
        """
        return np.ones(len(windows), np.bool_)


@dataclass(frozen=True, repr=False)
class ByClock(EmitPolicy):
    """An emit policy that counts by one of two clocks.

    Parameters
    ----------
    clock : str
        ``arrival``, the clock that rows arrive by; ``event``, the watermark.
    delay, timeout, mode, having, latest : as in `EmitPolicy`
    """

    clock: str = field(default="arrival", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.clock, str) or self.clock not in CLOCKS:
            raise ValueError(f"clock must be one of {', '.join(CLOCKS)}; got {shown(self.clock)}")

    @property
    def by_event(self) -> bool:
        return self.clock == "event"


@dataclass(frozen=True, repr=False)
class AfterClose(EmitPolicy):
    """Emit a window when it is closed, and again when late events reach it.

    Parameters
    ----------
    delay, timeout, mode, having, latest : as in `EmitPolicy`

    Examples
    --------
    >>> AfterClose(delay="10 s", timeout="5m")
    AfterClose(delay='10s', timeout='5m')
    >>> print(AfterClose(delay="10s"))
    after_close(delay=10s)
    """

    name: ClassVar[str] = "after_close"


@dataclass(frozen=True, repr=False)
class Periodic(ByClock):
    """Emit open windows every so often, those that have changed; besides, all at their close.

    Parameters
    ----------
    every : duration
        A period ends at each multiple of it since 1970 on the clock.
    repeat : bool
        Emit open windows even if they have not changed.
    clock, delay, timeout, mode, having, latest : as in `ByClock`

    Examples
    --------
    >>> Periodic("60s", having="n > 300")
    Periodic(every='1m', having='n > 300')
    """

    every: str = field(metadata=LONGER_THAN_0)
    repeat: bool = False

    name: ClassVar[str] = "periodic"
    early_reason: ClassVar[str] = "period"

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_truth(self.repeat, "repeat")

    @property
    def by_arrival(self) -> bool:
        return super().by_arrival or not self.by_event

    def is_due(self, before: int | None, time: int | None) -> bool:
        every = micros(self.every)
        return before is not None and time is not None and time // every > before // every

    def emit_open(self, windows: HeldWindows) -> Mask:
        return (windows.new_rows > 0) | self.repeat


@dataclass(frozen=True, repr=False)
class OnUpdate(ByClock):
    """Emit every window that a batch has changed; besides, all at their close.

    Parameters
    ----------
    batch : duration, optional
        Emit at most once in so long by the clock, and then a window once for all its changes.
    clock : str
        Of the gathering: ``arrival`` or ``event``, as in `Periodic`.
    delay, timeout, mode, having, latest : as in `EmitPolicy`

    Examples
    --------
    >>> print(OnUpdate(batch="2s", mode="changelog"))
    on_update(batch=2s, mode=changelog)
    """

    batch: str | None = field(default=None, metadata=LONGER_THAN_0)

    name: ClassVar[str] = "on_update"
    early_reason: ClassVar[str] = "update"

    @property
    def by_arrival(self) -> bool:
        return super().by_arrival or (self.batch is not None and not self.by_event)

    def is_due(self, before: int | None, time: int | None) -> bool:
        if self.batch is None or before is None:
            return self.batch is None or time is not None
        return time is not None and time - before >= micros(self.batch)

    def last_checked(self, before: int | None, time: int | None, emitted: bool) -> int | None:
        return time if emitted else before

    def emit_open(self, windows: HeldWindows) -> Mask:
        return windows.new_rows > 0


@dataclass(frozen=True, repr=False)
class AfterCount(EmitPolicy):
    """Emit a window once ``rows`` of its rows have come since its last emission; besides, all at their close.

    It is looked at after each batch, so that more rows than these may be emitted at once.

    Parameters
    ----------
    rows : int
        At least 1.
    delay, timeout, mode, having, latest : as in `EmitPolicy`

    Examples
    --------
    >>> AfterCount(100)
    AfterCount(rows=100)
    """

    rows: int

    name: ClassVar[str] = "after_count"
    early_reason: ClassVar[str] = "count"

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_whole(self.rows, "rows", 1)

    def emit_open(self, windows: HeldWindows) -> Mask:
        return windows.new_rows >= self.rows
