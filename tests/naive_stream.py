"""A naive evaluator of streams, which follows docs/streams.md row by row. It uses no code of the package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

FOREVER = 2**62
Row = dict


@dataclass
class Level:
    """The windows of a level: hopping windows with a size and a hop, sessions with a gap, or otherwise all of time. All
    lengths are in microseconds.
    """

    name: str
    size: int | None = None
    hop: int | None = None
    gap: int | None = None

    def windows(self, at: int) -> list[tuple[int, int]]:
        if self.gap:
            return [(at, at + self.gap)]
        if not self.size:
            return [(-FOREVER, FOREVER)]
        last = at // self.hop * self.hop
        return [(start, start + self.size) for start in range(last, at - self.size, -self.hop)]


@dataclass
class Window:
    start: int
    end: int
    key: str | None
    rows: list[Row] = field(default_factory=list)  # all rows, or in the mode discarding those since the last emission
    new_rows: int = 0  # the number of rows since the last emission
    revision: int = 0
    # The value of the clock when rows were last added. None if the clock has not been read since.
    last_change: int | None = None
    timed_out: int = -FOREVER  # the end of the window when a timeout closed it
    times: list[int] = field(default_factory=list)  # the times of the rows, which a buffer may have moved


class NaiveStream:
    """The open windows of several levels, the finest first. Policies are plain values."""

    def __init__(
        self,
        levels: list[Level],
        results: Callable[[list[Row]], dict],
        *,
        kind: str,
        lateness: int | None = 0,
        buffer: int | None = None,
        older: str = "oldest",
        delay: int = 0,
        timeout: int | None = None,
        mode: str = "accumulating",
        having: Callable[[dict], bool] | None = None,
        clock: str = "arrival",
        every: int = 0,
        repeat: bool = False,
        batch: int | None = None,
        rows: int = 0,
        maxspan: int | None = None,
        only: bool = False,
        latest: bool = False,
    ) -> None:
        self.levels, self.results, self.kind, self.lateness = levels, results, kind, lateness
        self.buffer, self.older, self.delay, self.timeout, self.mode = buffer, older, delay, timeout, mode
        self.having, self.clock, self.every, self.repeat, self.batch = having, clock, every, repeat, batch
        self.count, self.maxspan, self.only, self.latest = rows, maxspan, only, latest
        self.emitted_rows: dict[tuple, list[Row]] = {}  # by level and key: emitted and not retracted
        self.windows_by_level: list[list[Window]] = [[] for _ in levels]
        self.level_watermarks: list[int] = [-FOREVER] * len(levels)
        self.watermark = self.now = self.last_emission = self.newest_start = None
        self.late = self.partly_late = self.moved = 0
        self.expired_sessions: list[Window] = []  # only if the lateness is at least the gap

    # Rows

    def add(self, rows: list[Row]) -> list[Row]:
        """Add rows one by one, and return those that are dropped. Each row updates the newest start before the next."""
        dropped = []
        for row in rows:
            self._update_newest([row])
            dropped += self.add_at_once([row])
        return dropped

    def add_at_once(self, rows: list[Row]) -> list[Row]:
        """Add rows as one batch, and return those that are dropped. A row does not make others of the batch late."""
        dropped = []
        if self.levels[0].gap:
            dropped = self._unite_sessions(rows)
        else:
            for row in rows:
                dropped += [] if self._add_row(row) else [row]
        self._update_newest(rows)
        self.late += len(dropped)
        return dropped

    def _update_newest(self, rows: list[Row]) -> None:
        if self.buffer is not None and rows:
            starts = [self.levels[0].windows(row["ts"])[0][0] for row in rows]
            self.newest_start = max([*starts, *([] if self.newest_start is None else [self.newest_start])])

    def _oldest_start(self) -> int:
        """Return the start of the oldest window of the buffer."""
        if self.buffer is None or self.newest_start is None:
            return -FOREVER
        return self.newest_start - self.buffer * (self.levels[0].size or 0)

    def _add_row(self, row: Row) -> bool:
        at = row["ts"]
        if self.levels[0].windows(at)[0][0] < self._oldest_start():
            if self.older == "drop":
                return False
            at, self.moved = self._oldest_start(), self.moved + 1
        accepted = set()  # the numbers of the levels that accept the row
        for number, level in enumerate(self.levels):
            for start, end in level.windows(at):
                if not self._is_expired(end, number):
                    self._add_to_window(number, start, end, row=row, at=at)
                    accepted.add(number)
        self.partly_late += bool(accepted) and 0 not in accepted
        return bool(accepted)

    def _add_to_window(self, number: int, start: int, end: int, row: Row, at: int) -> None:
        for window in self.windows_by_level[number]:
            if (window.start, window.key) == (start, row["k"]):
                break
        else:
            window = Window(start, end, row["k"])
            self.windows_by_level[number].append(window)
        window.rows.append(row)
        window.times.append(at)
        window.new_rows += 1
        window.last_change = None

    def _keeps_expired(self) -> bool:
        gap = self.levels[0].gap
        return bool(gap) and self.lateness is not None and self.lateness >= gap and self.level_watermarks[0] > -FOREVER

    def _late_session_rows(self, rows: list[Row]) -> list[Row]:
        """Return the rows that would join an expired session, and those that are more than two gaps older than all
        expired sessions that are still known.
        """
        gap, expired_before = self.levels[0].gap, self.level_watermarks[0] - self.delay - self.lateness
        late, remaining = [], sorted(rows, key=lambda row: (row["k"] is None, row["k"] or "", row["ts"]))
        while remaining:
            first_session = [remaining.pop(0)]  # rows of this batch that form one session
            while (
                remaining
                and remaining[0]["k"] == first_session[0]["k"]
                and remaining[0]["ts"] <= max(r["ts"] for r in first_session) + gap
            ):
                first_session.append(remaining.pop(0))
            start, end, key = first_session[0]["ts"], max(r["ts"] for r in first_session) + gap, first_session[0]["k"]
            is_in_open_session = any(w.key == key and w.start <= start <= w.end for w in self.windows_by_level[0])
            touches_expired = any(w.key == key and w.start <= end and start <= w.end for w in self.expired_sessions)
            is_complete = len(rows) == 1 or end <= self.level_watermarks[0] - self.delay
            if is_complete and (touches_expired or (start <= expired_before - 2 * gap and not is_in_open_session)):
                late += first_session
        return late

    def _unite_sessions(self, rows: list[Row]) -> list[Row]:
        gap = self.levels[0].gap
        late = self._late_session_rows(rows) if self._keeps_expired() else []
        rows = [row for row in rows if row not in late]
        for row in rows:
            new_session = Window(row["ts"], row["ts"] + gap, row["k"], [row], 1)
            remaining = []
            for other in self.windows_by_level[0]:
                if other.key == new_session.key and other.start <= new_session.end and new_session.start <= other.end:
                    new_session.start, new_session.end = (
                        min(new_session.start, other.start),
                        max(new_session.end, other.end),
                    )
                    new_session.rows = other.rows + new_session.rows
                    new_session.new_rows += other.new_rows
                    new_session.revision = max(new_session.revision, other.revision)
                    new_session.timed_out = max(new_session.timed_out, other.timed_out)
                else:
                    remaining.append(other)
            self.windows_by_level[0] = [*remaining, new_session]
        expired = [window for window in self.windows_by_level[0] if self._is_expired(window.end, 0)]
        self.windows_by_level[0] = [
            window for window in self.windows_by_level[0] if not self._is_expired(window.end, 0)
        ]
        return late + [row for window in expired for row in window.rows if row in rows]

    # Time

    def advance(self, watermark: int | None, now: int | None) -> list[dict]:
        self.watermark = max((at for at in (self.watermark, watermark) if at is not None), default=None)
        self.now = max((at for at in (self.now, now) if at is not None), default=None)
        time = self.watermark if self.clock == "event" else self.now
        closing_time = self._closing_time()
        due, is_early = self._is_due(time), False
        emitted, oldest_start = [], self._oldest_start()
        for number in range(len(self.levels)):
            before = self.level_watermarks[number]
            self.level_watermarks[number] = max(before, closing_time, oldest_start)
            rows, has_emitted = self._emit_level(number, due, before)
            emitted += rows
            is_early |= has_emitted
            closed_windows = [window for window in self.windows_by_level[number] if self._is_closed(window, number)]
            oldest_start = (
                max((w.start for w in closed_windows), default=-FOREVER) if self.buffer is not None else -FOREVER
            )
            expired = closed_windows if self.kind == "after_key_expire" else []
            open_windows = [
                window for window in self.windows_by_level[number] if not self._is_expired(window.end, number)
            ]
            if number == 0 and self._keeps_expired():
                self.expired_sessions += [
                    window for window in self.windows_by_level[0] if self._is_expired(window.end, 0)
                ]
            self.windows_by_level[number] = [window for window in open_windows if window not in expired]
            if not self.latest:  # results of expired windows are not retracted any more
                for (level, key), rows in self.emitted_rows.items():
                    spans = [
                        (w.start, w.end) for w in self.windows_by_level[number] if level == number and w.key == key
                    ]
                    kept_rows = [row for row in rows if any(s <= row["start"] and row["end"] <= e for s, e in spans)]
                    self.emitted_rows[level, key] = kept_rows if level == number else rows
        if self.kind == "periodic" or (self.kind == "on_update" and self.batch is not None and is_early and due):
            self.last_emission = time
        return emitted

    def _closing_time(self) -> int:
        """Return the time up to which the watermark closes windows. With a buffer, the watermark counts as an event."""
        if self.watermark is None:
            return -FOREVER
        if self.buffer is None or self.watermark >= FOREVER:
            return self.watermark
        start = self.levels[0].windows(self.watermark)[0][0]
        self.newest_start = start if self.newest_start is None else max(self.newest_start, start)
        return start - self.buffer * (self.levels[0].size or 0)

    def close(self) -> list[dict]:
        return self.advance(FOREVER + self.delay, None)

    def _is_due(self, time: int | None) -> bool:
        if self.kind == "periodic":
            return None not in (self.last_emission, time) and time // self.every > self.last_emission // self.every
        if self.kind == "on_update" and self.batch is not None:
            return time is not None and (self.last_emission is None or time - self.last_emission >= self.batch)
        return True

    def _emits_early(self, window: Window) -> bool:
        if self.kind == "periodic":
            return window.new_rows > 0 or self.repeat
        if self.kind == "on_update":
            return window.new_rows > 0
        return self.kind == "after_count" and window.new_rows >= self.count

    def _has_ended(self, end: int, number: int, mark: int | None = None) -> bool:
        at = self.level_watermarks[number] if mark is None else mark
        return at > -FOREVER and at >= end + self.delay

    def _is_closed(self, window: Window, number: int, mark: int | None = None) -> bool:
        return self._has_ended(window.end, number, mark) or window.end <= window.timed_out

    def _is_expired(self, end: int, number: int) -> bool:
        lateness = 0 if self.buffer is not None else self.lateness
        return lateness is not None and self._has_ended(end + lateness, number)

    def _times_out(self, window: Window) -> bool:
        if self.timeout is None:
            return False
        if self.kind == "after_key_expire" and self.clock == "event":
            seen = max(row["ts"] for row in window.rows)
            return self.watermark is not None and self.watermark >= seen + self.timeout
        return self.now is not None and window.last_change is not None and self.now >= window.last_change + self.timeout

    def _emit_level(self, number: int, due: bool, before: int) -> tuple[list[dict], bool]:
        retracted, emitted, has_emitted, candidates = [], [], False, []
        for window in sorted(self.windows_by_level[number], key=lambda w: (w.start, w.key is None, w.key or "")):
            if window.last_change is None:
                window.last_change = self.now
            was_closed, has_ended = self._is_closed(window, number, before), self._has_ended(window.end, number)
            reason = "late" if was_closed else "close" if has_ended else None
            if reason is None and self._times_out(window):
                reason, window.timed_out = "timeout", window.end
            is_early = reason is None and due and self._emits_early(window)
            has_emitted |= is_early
            if is_early or (reason is not None and window.new_rows):
                policy_reason = {"periodic": "period", "on_update": "update", "after_count": "count"}.get(self.kind, "")
                candidates.append((window, *self._row_and_condition(number, window, reason or policy_reason, is_early)))
        if self.latest:
            other_windows = [other for other, _, meets_condition in candidates if meets_condition] + [
                w for w in self.windows_by_level[number] if w.revision
            ]
            candidates = [
                (
                    window,
                    row,
                    meets_condition and all(w.start <= window.start for w in other_windows if w.key == window.key),
                )
                for window, row, meets_condition in candidates
            ]
        for window, row, meets_condition in sorted(
            candidates, key=lambda candidate: not candidate[2]
        ):  # emitted windows retract first
            retractions, new_rows = self._emit_window(number, window, row, meets_condition)
            retracted += retractions
            emitted += new_rows
        for window in self.windows_by_level[number]:
            if self._is_closed(window, number):
                window.new_rows = 0
        retracted.sort(key=lambda row: (row["start"], row["k"] is None, row["k"] or ""))
        return retracted + emitted, has_emitted

    def _row_and_condition(self, number: int, window: Window, reason: str, partial: bool) -> tuple[dict, bool]:
        row = {"level": self.levels[number].name, "start": window.start, "end": window.end, "k": window.key}
        row |= self.results(window.rows) | {"reason": reason, "revision": window.revision, "partial": partial}
        meets_condition = self.having is None or self.having(row)
        if self.kind == "after_key_expire":
            times = [row["ts"] for row in window.rows]
            row["span"] = max(times) - min(times)
            exceeds_span = self.maxspan is not None and row["span"] > self.maxspan
            row["reason"] = "over_span" if exceeds_span else "expired"
            meets_condition &= exceeds_span or not self.only
        return row, meets_condition

    def _emit_window(
        self, number: int, window: Window, row: dict, meets_condition: bool
    ) -> tuple[list[dict], list[dict]]:
        retractions = []
        if self.mode == "changelog":
            reason_and_partial, unretracted = (
                {name: row[name] for name in ("reason", "partial")},
                self.emitted_rows.get((number, window.key), []),
            )
            if not (self.latest and meets_condition):  # results of this window, or of sessions that it has united
                unretracted = [row for row in unretracted if window.start <= row["start"] and row["end"] <= window.end]
            retractions = [{**row, "change": -1, **reason_and_partial} for row in unretracted]
            remaining = [row for row in self.emitted_rows.get((number, window.key), []) if row not in unretracted]
            self.emitted_rows[number, window.key], row["change"] = remaining, 1
        if not meets_condition:
            return retractions, []
        window.revision += 1
        window.new_rows = 0
        if self.mode == "changelog":
            self.emitted_rows[number, window.key].append(row)
        if self.mode == "discarding":
            window.rows = []
        return retractions, [row]

    # Numbers

    def count_windows(self) -> Iterator[tuple[str, int, int]]:
        """Yield, for each level, its name and the numbers of its open and its closed windows."""
        for number, level in enumerate(self.levels):
            closed_windows = [window for window in self.windows_by_level[number] if self._is_closed(window, number)]
            open_windows = [
                window
                for window in self.windows_by_level[number]
                if window not in closed_windows and self._has_begun(window, number)
            ]
            yield level.name, len(open_windows), len(closed_windows)

    def _has_begun(self, window: Window, number: int) -> bool:
        """Return whether a window counts as open. With a buffer, a coarser window is open once a window of the finer
        level with some of its rows has closed.
        """
        if self.buffer is None or number == 0:
            return True
        is_tumbling = self.levels[number - 1].size == self.levels[number - 1].hop
        timed_out_windows = [
            w for w in self.windows_by_level[number - 1] if is_tumbling and w.key == window.key and w.end <= w.timed_out
        ]
        below = [bounds for at in window.times for bounds in self.levels[number - 1].windows(at)]
        return any(
            self._has_ended(end, number - 1) or any(w.start == start for w in timed_out_windows) for start, end in below
        )
