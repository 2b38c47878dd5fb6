"""`check_policy`: check an emit policy or a late policy against its laws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa

import aggr
from aggr.testing.harness import LawBroken, check_laws
from tiltframe.frame import TiltFrame
from tiltframe.streaming.policies import EmitPolicy, LatePolicy, read_emit, read_late
from tiltframe.streaming.testing.emit_laws import EMIT_LAWS, EmitCase
from tiltframe.streaming.testing.late_laws import LATE_LAWS, LateCase

CreateRows = Callable[[int, int], pa.Table]
_SIZES = (0, 1, 2, 30)


def check_policy(
    policy: EmitPolicy | LatePolicy | str,
    frame: TiltFrame | None = None,
    rows: CreateRows | None = None,
    *,
    rounds: int = 10,
    seed: int = 0,
) -> None:
    """Check that an emit or a late policy obeys all laws.

    Parameters
    ----------
    policy : EmitPolicy, LatePolicy or str
        Text is parsed by `read_emit` or `read_late`.
    frame : TiltFrame, optional
        A frame that the policy accepts. The default has windows of 10s and 1m, or of all time, and the key ``host``.
    rows : function of (size, seed), optional
        A function that returns a table of events with the columns of the frame, in the order of their arrival. By
        default, the table has times in ``ts``, hosts in ``host`` and numbers in ``x``.
    rounds, seed : int
        The number of streams to test, and the seed of their random rows.

    Raises
    ------
    LawBroken
        If the policy breaks a law. Masks and columns must have one element per window, and columns must have the
        declared types. Results must not depend on the order of calls, on other windows, or on how rows are split into
        batches. Arguments must not change. A copy of the policy, and the policy that is read from its text, must be
        equal to the policy. The message names the law.
    ValueError
        If the policy does not accept the frame (pass another frame), or the object is not a policy.

    Examples
    --------
    >>> from tiltframe.streaming import Buffer, Periodic
    >>> check_policy(Periodic("5s", mode="changelog"), rounds=4)
    >>> check_policy(Buffer(2, older="drop"), rounds=4)
    """
    try:
        emit = read_emit(policy)  # type: ignore[arg-type]  # read_emit raises ValueError for a late policy
    except ValueError:
        late = read_late(policy)  # type: ignore[arg-type]
        _check_late(late, frame, rows, range(seed, seed + max(rounds, len(_SIZES))))
    else:
        _check_emit(emit, frame, rows, range(seed, seed + max(rounds, len(_SIZES))))


def _check_emit(policy: EmitPolicy, frame: TiltFrame | None, rows: CreateRows | None, seeds: range) -> None:
    """Raise `LawBroken` if an emit policy breaks one of its laws. Each seed gives other rows."""
    tested_frame = frame or _frame_for(policy)
    policy.check(tested_frame)
    for number, seed in enumerate(seeds):
        table = _rows_of_check(rows, number, seed)
        with _report_writes(policy, seed):
            new_case = partial(_emit_case, policy, tested_frame, table, seed=seed)
            check_laws(str(policy), EMIT_LAWS, new_case, f" (seed {seed})")


def _check_late(policy: LatePolicy, frame: TiltFrame | None, rows: CreateRows | None, seeds: range) -> None:
    """Raise `LawBroken` if a late policy breaks one of its laws. Each seed gives other rows."""
    tested_frame = frame or _frame_for(policy)
    policy.check(tested_frame)
    for number, seed in enumerate(seeds):
        table = _rows_of_check(rows, number, seed)
        with _report_writes(policy, seed):
            new_case = partial(_late_case, policy, tested_frame, table, seed=seed)
            check_laws(str(policy), LATE_LAWS, new_case, f" (seed {seed})")


def _emit_case(policy: EmitPolicy, frame: TiltFrame, table: pa.Table, seed: int) -> EmitCase:
    return EmitCase(policy, frame, table, np.random.default_rng(seed))


def _late_case(policy: LatePolicy, frame: TiltFrame, table: pa.Table, seed: int) -> LateCase:
    return LateCase(policy, frame, table, np.random.default_rng(seed))


def _rows_of_check(rows: CreateRows | None, number: int, seed: int) -> pa.Table:
    """Return the rows for the check with the number ``number``. The first checks have 0, 1, 2 and 30 rows, because edge
    cases are most frequent in small streams. Later checks have 60 rows.
    """
    return (rows or _rows)(_SIZES[number] if number < len(_SIZES) else 60, seed)


@contextmanager
def _report_writes(policy: EmitPolicy | LatePolicy, seed: int) -> Iterator[None]:
    """Within the block, raise `LawBroken` instead of NumPy's ``ValueError`` if the policy writes into a read-only
    array.
    """
    try:
        yield
    except ValueError as error:
        if "read-only" in str(error):
            raise LawBroken(f"{policy} breaks a law (seed {seed}): it writes into an array that it receives") from error
        raise


def _frame_for(policy: EmitPolicy | LatePolicy) -> TiltFrame:
    """Return a frame that fits the default rows and that the policy accepts: with windows of 10s and 1m or, if the
    policy does not accept these, with windows over all time.
    """
    measures = {"n": aggr.count(), "total": aggr.sum("x")}
    frames = [TiltFrame(levels, "ts", measures, ["host"]) for levels in (["10s", "1m"], ["all"])]
    for frame in frames[:-1]:
        try:
            policy.check(frame)
        except ValueError:
            continue
        return frame
    return frames[-1]


def _rows(size: int, seed: int) -> pa.Table:
    """Return ``size`` random events of three hosts, two seconds apart. Some of them are up to 45 seconds older than the
    events before them.
    """
    rng = np.random.default_rng(seed)
    times = 1_714_557_600_000_000 + np.arange(size) * 2_000_000 - rng.choice([0, 0, 0, 7_000_000, 45_000_000], size)
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "host": pa.array(rng.choice(["a", "b", "c"], size).tolist(), pa.string()),
            "x": pa.array(rng.normal(size=size), mask=rng.random(size) < 0.1),
        }
    )
