"""The laws of emit policies. Each law is a function that raises `LawBroken` if the policy breaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import aggr
from aggr import Measure
from aggr.arrow.bit_equality import same_bits
from aggr.testing.harness import require
from tiltframe.frame import TiltFrame
from tiltframe.names import END, LEVEL, START
from tiltframe.results import finish
from tiltframe.rolling_up import rollup
from tiltframe.streaming.open_windows import OpenWindows
from tiltframe.streaming.policies import EmitPolicy, HeldWindows, read_emit
from tiltframe.streaming.testing.policy_laws import check_value
from windows import MAX_INSTANT, MIN_INSTANT

_SECOND = 1_000_000
_REASONS = ("close", "timeout", "late")


@dataclass(frozen=True)
class EmitCase:
    """The arguments of a law: an emit policy, a frame, the rows of a stream, and a generator of random numbers."""

    policy: EmitPolicy
    frame: TiltFrame
    rows: pa.Table
    rng: np.random.Generator

    def windows(self) -> HeldWindows:
        """Return the windows of all rows in the form that the policy receives. The arrays are read-only, and a tenth of
        the results is null.
        """
        measures = {"rows": aggr.count(), **self.policy.measures(self.frame)}
        frame = TiltFrame([self.frame.levels[0]], self.frame.time, measures, self.frame.keys)
        table = finish(rollup(self.rows, frame), frame)
        missing = self.rng.random(len(table)) < 0.1
        results = {
            name: pc.if_else(pa.array(missing), pa.scalar(None, column.type), column)
            for name, column in ((name, table.column(name).combine_chunks()) for name in measures)
        }
        return HeldWindows(
            starts=_read_only(_instants(table.column(START), MIN_INSTANT)),
            ends=_read_only(_instants(table.column(END), MAX_INSTANT)),
            new_rows=_read_only(self.rng.integers(0, 4, len(table))),
            last_arrival=_read_only(self.rng.integers(0, 120, len(table)) * _SECOND),
            result=results.__getitem__,
        )

    def clocks(self) -> list[tuple[int | None, int | None]]:
        """Return pairs of a watermark and an arrival time in microseconds; each may be None."""
        known = [int(value) * _SECOND for value in self.rng.integers(0, 120, 2)]
        return [(None, None), (known[0], None), (None, known[1]), (known[0], known[1])]


def is_a_value(case: EmitCase) -> None:
    """The policy is equal to its copy, and to the policy that is read from its text."""
    check_value(case.policy, read_emit)


def declarations(case: EmitCase) -> None:
    """``columns`` maps names to Arrow types and ``measures`` returns measures. No column has the name of a key, a
    measure, or the start or end of windows.
    """
    columns = case.policy.columns
    measures = case.policy.measures(case.frame)
    require(all(isinstance(kind, pa.DataType) for kind in columns.values()), "columns must map names to Arrow types")
    require(all(isinstance(measure, Measure) for measure in measures.values()), "measures must map names to measures")
    repeated = {*case.frame.measures, *case.frame.keys, START, END} & set(columns)
    require(not repeated, f"the columns {sorted(repeated)} have the names of other columns")
    require(measures == case.policy.measures(case.frame), "a second call of measures returns different measures")


def masks(case: EmitCase) -> None:
    """`emit_open`, `admits` and `timed_out` return arrays of bool with one element per window."""
    windows = case.windows()
    chosen = {"emit_open": case.policy.emit_open(windows), "admits": case.policy.admits(windows)}
    for watermark, now in case.clocks():
        chosen["timed_out"] = case.policy.timed_out(windows, watermark, now)
        for name, mask in chosen.items():
            require(
                isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (len(windows),),
                f"{name} must return an array of {len(windows)} bool; got {_array_text(mask)}",
            )


def columns(case: EmitCase) -> None:
    """`values` returns the declared columns, and `reasons` returns texts. Both have one element per window."""
    windows = case.windows()
    values = case.policy.values(windows)
    declared = dict(case.policy.columns)
    require(set(values) == set(declared), f"values must name the columns {sorted(declared)}; got {sorted(values)}")
    for name, column in values.items():
        require(
            column.type == declared[name], f"the column {name} has type {column.type}, declared as {declared[name]}"
        )
        require(len(column) == len(windows), f"the column {name} has {len(column)} values for {len(windows)} windows")
    reasons = case.policy.reasons(windows, _reasons(case, len(windows)))
    require(len(reasons) == len(windows), f"there are {len(reasons)} reasons for {len(windows)} windows")
    require(all(isinstance(reason, str) and reason for reason in reasons.tolist()), "reasons must be texts")


def order_of_calls(case: EmitCase) -> None:
    """The result of a method does not depend on earlier calls."""
    windows = case.windows()
    reasons = _reasons(case, len(windows))
    calls: list[Callable[[], object]] = [
        lambda: case.policy.emit_open(windows).tolist(),
        lambda: case.policy.admits(windows).tolist(),
        lambda: case.policy.timed_out(windows, 60 * _SECOND, 60 * _SECOND).tolist(),
        lambda: {name: column.to_pylist() for name, column in case.policy.values(windows).items()},
        lambda: case.policy.reasons(windows, reasons).tolist(),
        lambda: [case.policy.is_due(before, time) for before, time in ((None, 5), (5, 90 * _SECOND))],
    ]
    first = [repr(call()) for call in calls]
    other_windows = replace(windows, new_rows=windows.new_rows[::-1], last_arrival=windows.last_arrival + 90 * _SECOND)
    for _ in range(3):
        # Call the policy for other windows in between, because several streams may use the same policy object.
        case.policy.emit_open(other_windows)
        case.policy.admits(other_windows)
        order = case.rng.permutation(len(calls)).tolist()
        require(
            [repr(calls[i]()) for i in order] == [first[i] for i in order],
            "a second call with the same arguments returns another result",
        )


def isolation(case: EmitCase) -> None:
    """The result of a method for a window does not depend on the other windows of the call or on their order."""
    windows = case.windows()
    order = case.rng.permutation(len(windows))[: max(len(windows) - 1, 0)]
    subset = _select(windows, order)
    reasons = _reasons(case, len(windows))
    pairs = {
        "emit_open": (case.policy.emit_open(subset), case.policy.emit_open(windows)),
        "admits": (case.policy.admits(subset), case.policy.admits(windows)),
        "timed_out": tuple(case.policy.timed_out(shown, 60 * _SECOND, 60 * _SECOND) for shown in (subset, windows)),
        "reasons": (case.policy.reasons(subset, reasons[order]), case.policy.reasons(windows, reasons)),
    }
    for name, (result_of_subset, complete_result) in pairs.items():
        require(
            result_of_subset.tolist() == complete_result[order].tolist(),
            f"{name} depends on the other windows of the call",
        )
    values = case.policy.values(subset)
    all_values = case.policy.values(windows)
    for name, column in values.items():
        alike = same_bits(column, all_values[name].take(pa.array(order)))
        require(alike, f"the column {name} depends on the other windows of the call")


def clock(case: EmitCase) -> None:
    """The times that `time` and `last_checked` return are not later than their arguments."""
    for watermark, now in case.clocks():
        time = case.policy.time(watermark, now)
        require(time is None or isinstance(time, int), f"time must be a whole number or None; got {time!r}")
        require(
            time in (None, watermark, now),
            "time must return one of its arguments, the watermark or the arrival time, or None",
        )
        for before in (None, 0, 30 * _SECOND):
            due = case.policy.is_due(before, time)
            require(isinstance(due, bool | np.bool_), f"is_due must return a bool; got {due!r}")
            for emitted in (False, True):
                last = case.policy.last_checked(before, time, emitted)
                known = [moment for moment in (before, time) if moment is not None]
                require(
                    last is None or last <= max(known, default=0),
                    "last_checked returns a later time than it received",
                )


def stream_is_rollup(case: EmitCase) -> None:
    """After the end of a stream, the last emission of each window is its result in a rollup of all rows, even if the
    stream was saved and restored after each batch.
    """
    policy = case.policy
    if policy.mode != "accumulating" or policy.having or policy.latest or policy.forgets_timed_out:
        return
    expected = _results(finish(rollup(case.rows, case.frame), case.frame), case.frame)
    for batches in (1, 4):
        windows = OpenWindows(case.frame, policy, "true_window")
        emitted = []
        for start in range(0, max(len(case.rows), 1), max(len(case.rows) // batches, 1)):
            windows.add_rows(case.rows.slice(start, max(len(case.rows) // batches, 1)))
            emitted.append(windows.results(windows.advance(None, start * _SECOND)))
            # Save and restore the stream, as in a restart.
            windows = OpenWindows.from_ipc(windows.to_ipc(), emit=policy)
        emitted.append(windows.results(windows.close()))
        last = _results(pa.concat_tables(emitted), case.frame)
        for key, result in last.items():
            require(
                expected.get(key) == result,
                f"the last emission of {key} is {result}, and should be {expected.get(key)}",
            )


EMIT_LAWS: tuple[Callable[[EmitCase], None], ...] = (
    is_a_value, declarations, masks, columns, order_of_calls, isolation, clock, stream_is_rollup,
)  # fmt: skip


def _results(table: pa.Table, frame: TiltFrame) -> Mapping[tuple[object, ...], str]:
    """Return the results of each window as text, by level, start and keys. If a window occurs several times, the last
    results are returned. The texts of two NaN are equal, and those of 0.0 and -0.0 differ.
    """
    names = [LEVEL, START, *frame.keys]
    rows = table.select([*names, *frame.measures]).to_pylist()
    return {tuple(row[name] for name in names): repr([row[name] for name in frame.measures]) for row in rows}


def _reasons(case: EmitCase, size: int) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """Return ``size`` reasons as an array of texts, in which all possible reasons occur in turn."""
    known = [*_REASONS, case.policy.early_reason] if case.policy.early_reason else list(_REASONS)
    return np.array([known[i % len(known)] for i in range(size)], dtype=str)


def _select(windows: HeldWindows, order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> HeldWindows:
    """Return the windows with the indices ``order``, in this order."""
    arrays = {
        name: _read_only(getattr(windows, name)[order]) for name in ("starts", "ends", "new_rows", "last_arrival")
    }
    return replace(windows, **arrays, result=lambda name: windows.result(name).take(pa.array(order)))


def _instants(column: pa.ChunkedArray, missing: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a column of times as an array in microseconds UTC, with ``missing`` in the place of null."""
    known = column.cast(pa.int64()).combine_chunks().fill_null(missing)
    return np.asarray(known.to_numpy(zero_copy_only=False), np.int64)


def _read_only(array: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    own = array.astype(np.int64)
    own.setflags(write=False)
    return own


def _array_text(mask: object) -> str:
    """Return the type and shape of an array, or the name of the type of another value, for an error message."""
    if isinstance(mask, np.ndarray):
        return f"an array of {mask.dtype}, shape {mask.shape}"
    return type(mask).__name__
