"""A naive evaluator of streams: it follows docs/streams.md row by row in plain Python, without code of the package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

FOREVER = 2**62
Row = dict


@dataclass
class Level:
    """Windows of a size that begin every ``hop``; with a gap sessions; without either all of time. Microseconds."""

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
    rows: list[Row] = field(default_factory=list)  # of all time, or since the last emission where that discards
    new: int = 0
    revision: int = 0
    touched: int | None = None  # None: since the clock was last told
    timed_out: int = -FOREVER  # the end at which a timeout closed it
    times: list[int] = field(default_factory=list)  # at which rows lie, after a buffer has moved some


class NaiveStream:
    """Open windows of levels, from the finest on, under policies that are given as plain values."""

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
        self.stands: dict[tuple, list[Row]] = {}  # of a level and key what was said in a changelog, and not retracted
        self.held: list[list[Window]] = [[] for _ in levels]
        self.marks: list[int] = [-FOREVER] * len(levels)  # the watermark of each level
        self.watermark = self.now = self.looked = self.newest = None
        self.late = self.partly_late = self.moved = 0
        self.forgotten: list[Window] = []  # sessions, where the lateness is at least the gap

    # Rows

    def add(self, rows: list[Row]) -> list[Row]:
        """Take rows one by one, each of them the newest where it is; return those that are dropped."""
        dropped = []
        for row in rows:
            self._seen([row])
            dropped += self.add_at_once([row])
        return dropped

    def add_at_once(self, rows: list[Row]) -> list[Row]:
        """Take rows as one arrival, none of them behind another; return those that are dropped."""
        dropped = []
        if self.levels[0].gap:
            dropped = self._unite(rows)
        else:
            for row in rows:
                dropped += [] if self._put(row) else [row]
        self._seen(rows)
        self.late += len(dropped)
        return dropped

    def _seen(self, rows: list[Row]) -> None:
        if self.buffer is not None and rows:
            starts = [self.levels[0].windows(row["ts"])[0][0] for row in rows]
            self.newest = max([*starts, *([] if self.newest is None else [self.newest])])

    def _oldest(self) -> int:
        """Where the oldest window of the buffer starts."""
        if self.buffer is None or self.newest is None:
            return -FOREVER
        return self.newest - self.buffer * (self.levels[0].size or 0)

    def _put(self, row: Row) -> bool:
        at = row["ts"]
        if self.levels[0].windows(at)[0][0] < self._oldest():
            if self.older == "drop":
                return False
            at, self.moved = self._oldest(), self.moved + 1
        accepted = set()  # the numbers of the levels that accept the row
        for number, level in enumerate(self.levels):
            for start, end in level.windows(at):
                if not self._is_expired(end, number):
                    self._join(number, start, end, row, at)
                    accepted.add(number)
        self.partly_late += bool(accepted) and 0 not in accepted
        return bool(accepted)

    def _join(self, number: int, start: int, end: int, row: Row, at: int) -> None:
        for window in self.held[number]:
            if (window.start, window.key) == (start, row["k"]):
                break
        else:
            window = Window(start, end, row["k"])
            self.held[number].append(window)
        window.rows.append(row)
        window.times.append(at)
        window.new += 1
        window.touched = None

    def _remembers(self) -> bool:
        gap = self.levels[0].gap
        return bool(gap) and self.lateness is not None and self.lateness >= gap and self.marks[0] > -FOREVER

    def _touching(self, rows: list[Row]) -> list[Row]:
        """Rows that would join a forgotten session, or are two gaps older than all forgotten ones that may matter."""
        gap, until = self.levels[0].gap, self.marks[0] - self.delay - self.lateness
        late, apart = [], sorted(rows, key=lambda row: (row["k"] is None, row["k"] or "", row["ts"]))
        while apart:
            first_session = [apart.pop(0)]  # rows that came at once, and are one session already
            while (
                apart
                and apart[0]["k"] == first_session[0]["k"]
                and apart[0]["ts"] <= max(r["ts"] for r in first_session) + gap
            ):
                first_session.append(apart.pop(0))
            start, end, key = first_session[0]["ts"], max(r["ts"] for r in first_session) + gap, first_session[0]["k"]
            within = any(w.key == key and w.start <= start <= w.end for w in self.held[0])
            touches = any(w.key == key and w.start <= end and start <= w.end for w in self.forgotten)
            alone = len(rows) == 1 or end <= self.marks[0] - self.delay
            if alone and (touches or (start <= until - 2 * gap and not within)):
                late += first_session
        return late

    def _unite(self, rows: list[Row]) -> list[Row]:
        gap = self.levels[0].gap
        late = self._touching(rows) if self._remembers() else []
        rows = [row for row in rows if row not in late]
        for row in rows:
            new_session = Window(row["ts"], row["ts"] + gap, row["k"], [row], 1)
            apart = []
            for other in self.held[0]:
                if other.key == new_session.key and other.start <= new_session.end and new_session.start <= other.end:
                    new_session.start, new_session.end = (
                        min(new_session.start, other.start),
                        max(new_session.end, other.end),
                    )
                    new_session.rows = other.rows + new_session.rows
                    new_session.new += other.new
                    new_session.revision = max(new_session.revision, other.revision)
                    new_session.timed_out = max(new_session.timed_out, other.timed_out)
                else:
                    apart.append(other)
            self.held[0] = [*apart, new_session]
        expired = [window for window in self.held[0] if self._is_expired(window.end, 0)]
        self.held[0] = [window for window in self.held[0] if not self._is_expired(window.end, 0)]
        return late + [row for window in expired for row in window.rows if row in rows]

    # Time

    def advance(self, watermark: int | None, now: int | None) -> list[dict]:
        self.watermark = max((at for at in (self.watermark, watermark) if at is not None), default=None)
        self.now = max((at for at in (self.now, now) if at is not None), default=None)
        time = self.watermark if self.clock == "event" else self.now
        passed = self._passed()
        due, early = self._due(time), False
        emitted, behind = [], self._oldest()
        for number in range(len(self.levels)):
            before = self.marks[number]
            self.marks[number] = max(before, passed, behind)
            rows, chosen = self._look(number, due, before)
            emitted += rows
            early |= chosen
            shut = [window for window in self.held[number] if self._shut(window, number)]
            behind = max((w.start for w in shut), default=-FOREVER) if self.buffer is not None else -FOREVER
            expired = shut if self.kind == "after_key_expire" else []
            open_windows = [window for window in self.held[number] if not self._is_expired(window.end, number)]
            if number == 0 and self._remembers():
                self.forgotten += [window for window in self.held[0] if self._is_expired(window.end, 0)]
            self.held[number] = [window for window in open_windows if window not in expired]
            if not self.latest:  # what is forgotten is not retracted any more
                for (level, key), rows in self.stands.items():
                    spans = [(w.start, w.end) for w in self.held[number] if level == number and w.key == key]
                    kept_rows = [row for row in rows if any(s <= row["start"] and row["end"] <= e for s, e in spans)]
                    self.stands[level, key] = kept_rows if level == number else rows
        if self.kind == "periodic" or (self.kind == "on_update" and self.batch is not None and early and due):
            self.looked = time
        return emitted

    def _passed(self) -> int:
        """Up to when the watermark closes windows: with a buffer, it is an event of its time."""
        if self.watermark is None:
            return -FOREVER
        if self.buffer is None or self.watermark >= FOREVER:
            return self.watermark
        start = self.levels[0].windows(self.watermark)[0][0]
        self.newest = start if self.newest is None else max(self.newest, start)
        return start - self.buffer * (self.levels[0].size or 0)

    def close(self) -> list[dict]:
        return self.advance(FOREVER + self.delay, None)

    def _due(self, time: int | None) -> bool:
        if self.kind == "periodic":
            return None not in (self.looked, time) and time // self.every > self.looked // self.every
        if self.kind == "on_update" and self.batch is not None:
            return time is not None and (self.looked is None or time - self.looked >= self.batch)
        return True

    def _early(self, window: Window) -> bool:
        if self.kind == "periodic":
            return window.new > 0 or self.repeat
        if self.kind == "on_update":
            return window.new > 0
        return self.kind == "after_count" and window.new >= self.count

    def _over(self, end: int, number: int, mark: int | None = None) -> bool:
        at = self.marks[number] if mark is None else mark
        return at > -FOREVER and at >= end + self.delay

    def _shut(self, window: Window, number: int, mark: int | None = None) -> bool:
        return self._over(window.end, number, mark) or window.end <= window.timed_out

    def _is_expired(self, end: int, number: int) -> bool:
        lateness = 0 if self.buffer is not None else self.lateness
        return lateness is not None and self._over(end + lateness, number)

    def _times_out(self, window: Window) -> bool:
        if self.timeout is None:
            return False
        if self.kind == "after_key_expire" and self.clock == "event":
            seen = max(row["ts"] for row in window.rows)
            return self.watermark is not None and self.watermark >= seen + self.timeout
        return self.now is not None and window.touched is not None and self.now >= window.touched + self.timeout

    def _look(self, number: int, due: bool, before: int) -> tuple[list[dict], bool]:
        retracted, emitted, has_emitted, due_now = [], [], False, []
        for window in sorted(self.held[number], key=lambda w: (w.start, w.key is None, w.key or "")):
            if window.touched is None:
                window.touched = self.now
            was, over = self._shut(window, number, before), self._over(window.end, number)
            reason = "late" if was else "close" if over else None
            if reason is None and self._times_out(window):
                reason, window.timed_out = "timeout", window.end
            early = reason is None and due and self._early(window)
            has_emitted |= early
            if early or (reason is not None and window.new):
                word = {"periodic": "period", "on_update": "update", "after_count": "count"}.get(self.kind, "")
                due_now.append((window, *self._row_and_condition(number, window, reason or word, early)))
        if self.latest:
            other_windows = [other for other, _, meets in due_now if meets] + [
                w for w in self.held[number] if w.revision
            ]
            due_now = [
                (window, row, meets and all(w.start <= window.start for w in other_windows if w.key == window.key))
                for window, row, meets in due_now
            ]
        for window, row, meets in sorted(due_now, key=lambda due: not due[2]):  # what is said retracts first
            back, new_rows = self._say(number, window, row, meets)
            retracted += back
            emitted += new_rows
        for window in self.held[number]:
            if self._shut(window, number):
                window.new = 0
        retracted.sort(key=lambda row: (row["start"], row["k"] is None, row["k"] or ""))
        return retracted + emitted, has_emitted

    def _row_and_condition(self, number: int, window: Window, reason: str, partial: bool) -> tuple[dict, bool]:
        row = {"level": self.levels[number].name, "start": window.start, "end": window.end, "k": window.key}
        row |= self.results(window.rows) | {"reason": reason, "revision": window.revision, "partial": partial}
        meets = self.having is None or self.having(row)
        if self.kind == "after_key_expire":
            times = [row["ts"] for row in window.rows]
            row["span"] = max(times) - min(times)
            over = self.maxspan is not None and row["span"] > self.maxspan
            row["reason"] = "over_span" if over else "expired"
            meets &= over or not self.only
        return row, meets

    def _say(self, number: int, window: Window, row: dict, meets: bool) -> tuple[list[dict], list[dict]]:
        back = []
        if self.mode == "changelog":
            reason_and_partial, stands = (
                {name: row[name] for name in ("reason", "partial")},
                self.stands.get((number, window.key), []),
            )
            if not (self.latest and meets):  # of the window itself alone; sessions that have united are one
                stands = [row for row in stands if window.start <= row["start"] and row["end"] <= window.end]
            back = [{**row, "change": -1, **reason_and_partial} for row in stands]
            remaining = [row for row in self.stands.get((number, window.key), []) if row not in stands]
            self.stands[number, window.key], row["change"] = remaining, 1
        if not meets:
            return back, []
        window.revision += 1
        window.new = 0
        if self.mode == "changelog":
            self.stands[number, window.key].append(row)
        if self.mode == "discarding":
            window.rows = []
        return back, [row]

    # Numbers

    def counted(self) -> Iterator[tuple[str, int, int]]:
        """Of each level how many windows are open, and kept."""
        for number, level in enumerate(self.levels):
            shut = [window for window in self.held[number] if self._shut(window, number)]
            begun = [window for window in self.held[number] if window not in shut and self._begun(window, number)]
            yield level.name, len(begun), len(shut)

    def _begun(self, window: Window, number: int) -> bool:
        """A buffer's coarser window begins once one of the level below has closed that it shares rows with."""
        if self.buffer is None or number == 0:
            return True
        apart = self.levels[number - 1].size == self.levels[number - 1].hop
        timed = [w for w in self.held[number - 1] if apart and w.key == window.key and w.end <= w.timed_out]
        below = [bounds for at in window.times for bounds in self.levels[number - 1].windows(at)]
        return any(self._over(end, number - 1) or any(w.start == start for w in timed) for start, end in below)
