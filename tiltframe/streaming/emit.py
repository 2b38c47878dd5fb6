"""Emit policies: when open windows are emitted, and what of them.

All policies emit a window at its close, if it has changed since its last emission, and a closed window again, with the
next revision, after each batch that reaches it. They differ in what they emit before that. A window is closed once
the watermark has reached its end and a delay; one without an end (``all``) never is.

After the triggers and accumulation modes of Beam's model, the ``EMIT`` clauses of Timeplus, and Flink's triggers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from aggr import sql
from aggr.arguments import checked_name, checked_truth, checked_whole, shown
from tiltframe.streaming.policy_text import DURATION, Policy, checked_duration, micros, read_policy

Marks = Mapping[str, NDArray[np.int64]]  # of windows, as `tiltframe.streaming.window_table.MARKS` names them
Mask = NDArray[np.bool_]

MODES = ("accumulating", "discarding", "changelog")
CLOCKS = ("arrival", "event")


@dataclass(frozen=True, repr=False)
class EmitPolicy(Policy):
    """What all emit policies share.

    Parameters
    ----------
    delay : duration
        How long after its end a window is held open for events that are on their way, by the watermark.
    timeout : duration, optional
        Close a window that has seen no event for so long by the clock, wherever the watermark stands.
    mode : str
        ``accumulating``: the whole window each time. ``discarding``: what has come since its last emission.
        ``changelog``: the whole window, and first a retraction of what was emitted of it before; the column
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
    """

    delay: str = field(default="0s", kw_only=True, metadata=DURATION)
    timeout: str | None = field(default=None, kw_only=True, metadata=DURATION)
    mode: str = field(default="accumulating", kw_only=True)
    having: str | None = field(default=None, kw_only=True)
    latest: bool = field(default=False, kw_only=True)

    name: ClassVar[str] = ""
    early_reason: ClassVar[str] = ""  # of what is emitted before a window is closed

    def __post_init__(self) -> None:
        """Check every argument."""
        for each in self.__dataclass_fields__.values():
            given = getattr(self, each.name)
            if each.metadata is not DURATION and each.metadata.get("holds") != "duration":
                continue
            if given is not None:
                object.__setattr__(self, each.name, checked_duration(given, each.name, int(each.name != "delay")))
        if not isinstance(self.mode, str) or self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}; got {shown(self.mode)}")
        checked_truth(self.latest, "latest")
        if self.having is not None:
            sql.check_condition(self.having)

    @property
    def delay_us(self) -> int:
        """The delay in microseconds."""
        return micros(self.delay)

    @property
    def timeout_us(self) -> int | None:
        """The timeout in microseconds, if there is one."""
        return None if self.timeout is None else micros(self.timeout)

    @property
    def by_arrival(self) -> bool:
        """Whether windows may be emitted by the clock that rows arrive by, though no row comes."""
        return self.timeout is not None

    @property
    def by_event(self) -> bool:
        """Whether open windows are looked at by the watermark."""
        return getattr(self, "clock", "arrival") == "event"

    def time(self, watermark: int | None, now: int | None) -> int | None:
        """Read the clock that periods are counted by; None while it is not known.

        Parameters
        ----------
        watermark, now : int, optional
            Microseconds; None while they are not known.

        Returns
        -------
        int, microseconds, or None
        """
        return watermark if self.by_event else now

    def due(self, before: int | None, time: int | None) -> bool:
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

    def looked(self, before: int | None, time: int | None, emitted: bool) -> int | None:
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

    def early(self, pending: NDArray[np.int64]) -> Mask:
        """Choose open windows to emit, by how many rows have come since their last emission.

        Parameters
        ----------
        pending : array of int64, shape (windows,)

        Returns
        -------
        array of bool, shape (windows,)
        """
        return np.zeros(len(pending), np.bool_)

    def timed_out(self, marks: Marks, watermark: int | None, now: int | None) -> Mask:
        """Choose the windows that have seen no event for the timeout.

        Parameters
        ----------
        marks : name -> array of int64
            Of the windows, as `tiltframe.streaming.window_table.MARKS` names them.
        watermark, now : int, optional
            Microseconds; None while they are not known.

        Returns
        -------
        array of bool, shape (windows,)
        """
        if self.timeout_us is None or now is None:
            return np.zeros(len(marks["touched"]), np.bool_)
        return marks["touched"] <= now - self.timeout_us


@dataclass(frozen=True, repr=False)
class AfterClose(EmitPolicy):
    """Emit a window when it is closed, and again when late events reach it.

    Parameters
    ----------
    delay, timeout, mode, having, latest : optional
        As in `EmitPolicy`.

    Examples
    --------
    >>> AfterClose(delay="10 s", timeout="5m")
    AfterClose(delay='10s', timeout='5m')
    >>> print(AfterClose(delay="10s"))
    after_close(delay=10s)
    """

    name: ClassVar[str] = "after_close"


@dataclass(frozen=True, repr=False)
class Periodic(EmitPolicy):
    """Emit open windows every so often, those that have changed; besides, all at their close.

    Parameters
    ----------
    every : duration
        A period ends at each multiple of it since 1970 on the clock.
    repeat : bool
        Emit open windows even if they have not changed.
    clock : str
        ``arrival``, the clock that rows arrive by; ``event``, the watermark.
    delay, timeout, mode, having, latest : optional
        As in `EmitPolicy`.

    Examples
    --------
    >>> Periodic("60s", having="n > 300")
    Periodic(every='1m', having='n > 300')
    """

    every: str = field(metadata=DURATION)
    repeat: bool = False
    clock: str = field(default="arrival", kw_only=True)

    name: ClassVar[str] = "periodic"
    early_reason: ClassVar[str] = "period"

    def __post_init__(self) -> None:
        """Check every argument."""
        super().__post_init__()
        checked_truth(self.repeat, "repeat")
        _check_clock(self.clock)

    @property
    def by_arrival(self) -> bool:
        """Whether periods, or a timeout, are counted by the clock."""
        return super().by_arrival or not self.by_event

    def due(self, before: int | None, time: int | None) -> bool:
        """Say whether a multiple of the period has passed."""
        every = micros(self.every)
        return before is not None and time is not None and time // every > before // every

    def early(self, pending: NDArray[np.int64]) -> Mask:
        """Choose what has changed, or all."""
        return (pending > 0) | self.repeat


@dataclass(frozen=True, repr=False)
class OnUpdate(EmitPolicy):
    """Emit every window that a batch has changed; besides, all at their close.

    Parameters
    ----------
    batch : duration, optional
        Emit at most once in so long by the clock, and then a window once for all its changes.
    clock : str
        Of the gathering: ``arrival`` or ``event``, as in `Periodic`.
    delay, timeout, mode, having, latest : optional
        As in `EmitPolicy`.

    Examples
    --------
    >>> print(OnUpdate(batch="2s", mode="changelog"))
    on_update(batch=2s, mode=changelog)
    """

    batch: str | None = field(default=None, metadata=DURATION)
    clock: str = field(default="arrival", kw_only=True)

    name: ClassVar[str] = "on_update"
    early_reason: ClassVar[str] = "update"

    def __post_init__(self) -> None:
        """Check every argument."""
        super().__post_init__()
        _check_clock(self.clock)

    @property
    def by_arrival(self) -> bool:
        """Whether changes are gathered, or a timeout is counted, by the clock."""
        return super().by_arrival or (self.batch is not None and not self.by_event)

    def due(self, before: int | None, time: int | None) -> bool:
        """Say whether changes were gathered for long enough."""
        if self.batch is None or before is None:
            return self.batch is None or time is not None
        return time is not None and time - before >= micros(self.batch)

    def looked(self, before: int | None, time: int | None, emitted: bool) -> int | None:
        """Count from the last emission."""
        return time if emitted else before

    def early(self, pending: NDArray[np.int64]) -> Mask:
        """Choose what has changed."""
        return pending > 0


@dataclass(frozen=True, repr=False)
class AfterCount(EmitPolicy):
    """Emit a window once ``rows`` of its rows have come since its last emission; besides, all at their close.

    It is looked at after each batch, so that more rows than these may be emitted at once.

    Parameters
    ----------
    rows : int
        At least 1.
    delay, timeout, mode, having, latest : optional
        As in `EmitPolicy`.

    Examples
    --------
    >>> read_emit("after_count(100)")
    AfterCount(rows=100)
    """

    rows: int

    name: ClassVar[str] = "after_count"
    early_reason: ClassVar[str] = "count"

    def __post_init__(self) -> None:
        """Check every argument."""
        super().__post_init__()
        checked_whole(self.rows, "rows", 1)

    def early(self, pending: NDArray[np.int64]) -> Mask:
        """Choose those that enough rows have come for."""
        return pending >= self.rows


@dataclass(frozen=True, repr=False)
class AfterKeyExpire(EmitPolicy):
    """Emit a key's own window, over all of time, when no event of the key has come for a while; then forget the key.

    The frame has one level, ``all``, and keys. What is emitted has a column ``span``, from the key's earliest event to
    its latest. An event that comes afterwards begins the key anew.

    Parameters
    ----------
    timeout : duration
        How long no event of the key must have come.
    span_of : column name, optional
        The times that the span is measured by; the frame's own unless another column is named.
    maxspan : duration, optional
        Longer spans have the reason ``over_span``, others ``expired``.
    only : bool
        Emit over-span keys only; others are forgotten in silence.
    clock : str
        ``arrival``: a key expires so long after its last event arrived; ``event``: once the watermark is so long after
        its last event.
    delay, mode, having, latest : optional
        As in `EmitPolicy`; there is no mode but accumulating.

    Examples
    --------
    >>> read_emit("after_key_expire(timeout=1m, maxspan=500ms, only)")
    AfterKeyExpire(timeout='1m', maxspan='500ms', only=True)
    """

    timeout: str | None = field(default=None, metadata=DURATION)
    span_of: str | None = field(default=None, kw_only=True)
    maxspan: str | None = field(default=None, kw_only=True, metadata=DURATION)
    only: bool = field(default=False, kw_only=True)
    clock: str = field(default="arrival", kw_only=True)

    name: ClassVar[str] = "after_key_expire"

    def __post_init__(self) -> None:
        """Check every argument."""
        super().__post_init__()
        if self.timeout is None:
            raise ValueError("after_key_expire needs timeout, how long no event of a key must have come, such as '1m'")
        if self.span_of is not None:
            checked_name(self.span_of, "span_of, the column that spans are measured by,")
        if checked_truth(self.only, "only") and self.maxspan is None:
            raise ValueError("only= emits keys whose span is over maxspan; give maxspan, such as '5m'")
        if self.mode != "accumulating":
            raise ValueError(f"a key that expires is emitted once, and has no mode {self.mode}; leave it out")
        _check_clock(self.clock)

    @property
    def by_arrival(self) -> bool:
        """Whether keys expire by the clock."""
        return not self.by_event

    def timed_out(self, marks: Marks, watermark: int | None, now: int | None) -> Mask:
        """Choose the keys of which no event has come, or is of a time, for the timeout."""
        if self.clock == "arrival" or watermark is None or self.timeout_us is None:
            return super().timed_out(marks, watermark, None if self.clock == "event" else now)
        return marks["seen"] <= watermark - self.timeout_us

    def over(self, spans: NDArray[np.int64]) -> Mask:
        """Choose the keys whose span, in microseconds, is over the longest that is allowed.

        Parameters
        ----------
        spans : array of int64, shape (keys,)

        Returns
        -------
        array of bool, shape (keys,)
        """
        return np.zeros(len(spans), np.bool_) if self.maxspan is None else spans > micros(self.maxspan)


_FAMILY = {kind.name: kind for kind in (AfterClose, Periodic, OnUpdate, AfterCount, AfterKeyExpire)}


def read_emit(text: str | EmitPolicy) -> EmitPolicy:
    """Read an emit policy from text, or take it as it is.

    Parameters
    ----------
    text : str
        ``after_close``, ``periodic(EVERY)``, ``on_update``, ``after_count(ROWS)`` or ``after_key_expire(TIMEOUT)``,
        with the arguments of the class of that name: ``periodic(1m, repeat, having='n > 300')``.

    Returns
    -------
    EmitPolicy

    Raises
    ------
    ValueError
        If it cannot be read.

    Examples
    --------
    >>> read_emit("periodic(1m, repeat, having='n > 300')")
    Periodic(every='1m', repeat=True, having='n > 300')
    """
    return text if isinstance(text, EmitPolicy) else read_policy(text, _FAMILY, "emit policy", "after_close(delay=10s)")


def _check_clock(given: object) -> None:
    if not isinstance(given, str) or given not in CLOCKS:
        raise ValueError(f"clock must be one of {', '.join(CLOCKS)}; got {shown(given)}")
