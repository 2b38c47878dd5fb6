"""Interleaved operations of a store: all pairs of operations, random operations, readers and crashes.

The stores use `tiltframe.store.testing.MemoryBackend`. Their rows are *tokens*, a commit and a window of the finest
level. At every call of the backend, a scheduler chooses the operation that continues. After every commit, each level
must have exactly the tokens that were appended, without those that were replaced, retracted or expired. A reader of any
level must see one version of the log. Stores begin with a history of appended, replaced and expired rows.

A longer run:  python -m tests.store.test_interleavings 600 7     # seconds, first seed
"""

from __future__ import annotations

import ast
import json
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.fields import ROWS_NOT_IN_STATE, CannotSubtract
from aggr.state_checks import arrow_of
from tiltframe.ranges import EVER, Range
from tiltframe.store import CommitConflict, OtherFrame, StoreError
from tiltframe.store.backends import Vacuumed, memory
from tiltframe.store.changes import (
    backfill,
    commit,
    compaction,
    copying,
    evolution,
    expiry,
    group_commit,
    recording,
    replacement,
    retraction,
)
from tiltframe.store.log import run as log_run
from tiltframe.store.log import writers
from tiltframe.store.log.errors import Conflict
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import EXPIRED, WATERMARKS, available_from
from tiltframe.store.log.run import snapshot_of
from tiltframe.store.log.snapshot import pieces_of
from tiltframe.store.log.stream_watermarks import StreamWatermark
from tiltframe.store.query import merging
from tiltframe.store.testing import MemoryBackend

SECOND = 1_000_000
END = 8  # finest windows: 0 … 7
Token = tuple[str, int]  # who brought it, its finest window


@dataclass(frozen=True)
class Fixed:
    """A window of whole seconds, without the calendar."""

    name: str
    length: int

    def starts(self, at: np.ndarray) -> np.ndarray:
        return at // self.length * self.length

    def ends(self, at: np.ndarray) -> np.ndarray:
        return self.starts(at) + self.length

    def first_start_from(self, at: int) -> int:
        return -(-at // self.length) * self.length

    def starts_between(self, start: int, end: int) -> np.ndarray:
        return np.arange(-(-start // self.length) * self.length, end, self.length)


LEVELS = tuple(Fixed(f"{size}s", size * SECOND) for size in (1, 2, 4))
BUCKET = Fixed("4s", 4 * SECOND)


@dataclass(frozen=True)
class Column:
    name: str
    measure = SimpleNamespace(
        function=aggr.count().function
    )  # without limits or refused values; `subtract_by` subtracts


@dataclass(frozen=True)
class Frame:
    """Levels, and measures, which have a column each."""

    levels: tuple[Fixed, ...]
    measures: tuple[str, ...]
    keys = ("who", "at")

    @property
    def states(self) -> list[Column]:
        return [Column(name) for name in self.measures]

    @property
    def state_functions(self) -> dict[str, aggr.Function]:
        return {column.name: column.measure.function for column in self.states}

    def level(self, name: str) -> Fixed:
        return next(level for level in self.levels if level.name == name)

    def difference(self, other: Frame) -> str | None:
        return None if self == other else f"{self.measures} of {len(self.levels)} levels here"


@dataclass(frozen=True)
class Description:
    """What stands for a store's manifest."""

    count: int = 3  # of levels
    measures: tuple[str, ...] = ("m0",)
    had: tuple[str, ...] = ("m0",)  # all measures that there were
    generation: int = 0
    earlier: tuple[()] = ()
    name: str = "s"
    retention: dict[str, str] = field(default_factory=lambda: {"1s": "1s", "2s": "3s"})
    store_id: str = ""

    def __post_init__(self) -> None:
        """Leave out the retention of levels that an evolution has removed."""
        names = {level.name for level in LEVELS[: self.count]}
        retention = {name: duration for name, duration in self.retention.items() if name in names}
        object.__setattr__(self, "retention", retention)

    @property
    def frame(self) -> Frame:
        return Frame(LEVELS[: self.count], self.measures)

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.measures)

    @property
    def columns(self) -> pa.Schema:
        return _schema(self.had)

    check_same_store = Manifest.check_same_store
    check_frame_unchanged = Manifest.check_frame_unchanged

    def to_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @staticmethod
    def from_dict(fields: dict[str, Any], uri: str = "") -> Description:
        return Description(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        )


def _schema(measures: Iterable[str]) -> pa.Schema:
    return pa.schema(
        [("window_start", pa.int64()), ("who", pa.string()), ("at", pa.int64()), *((m, pa.int64()) for m in measures)]
    )


def plan_evolution(now: Description, frame: Frame, row_schema: None = None) -> Description:
    had = tuple(dict.fromkeys([*now.had, *frame.measures]))
    return replace(now, count=len(frame.levels), measures=frame.measures, had=had, generation=now.generation + 1)


def subtract_by(rows: pa.Table, removed: pa.Table, by: Iterable[str], functions: Any) -> pa.Table:
    """Take tokens out of others; their measures do not matter."""
    missing = Counter(tokens_of(removed)) - Counter(tokens_of(rows))
    if missing:
        row = tokens_of(removed).index(next(iter(missing)))
        raise CannotSubtract(row, ROWS_NOT_IN_STATE, f"{missing}")
    return rows.filter(pa.array([token not in set(tokens_of(removed)) for token in tokens_of(rows)], pa.bool_()))


def rows_of(tokens: Iterable[Token], measures: Iterable[str]) -> pa.Table:
    """Make states of the finest level: a row for each token, whose measures are its window."""
    rows = [
        {"window_start": at * SECOND, "who": who, "at": at, **dict.fromkeys(measures, at)} for who, at in sorted(tokens)
    ]
    return pa.Table.from_pylist(rows, _schema(measures))


def tokens_of(rows: pa.Table) -> list[Token]:
    return list(zip(rows.column("who").to_pylist(), rows.column("at").to_pylist(), strict=True))


def merge_level(rows: pa.Table, frame: Any, level: Fixed, nulls_are_unknown: bool = True) -> pa.Table:
    starts = level.starts(rows.column("window_start").to_numpy())
    return rows.set_column(0, "window_start", pa.array(starts, pa.int64()))


def levels_of(rows: pa.Table, frame: Frame) -> Iterator[tuple[Fixed, pa.Table]]:
    return ((level, merge_level(rows, None, level)) for level in frame.levels)


def instants_of(rows: pa.Table) -> np.ndarray:
    return rows.column("window_start").to_numpy()


def split_by_bucket(states: pa.Table, level: Any) -> Iterator[tuple[str, pa.Table]]:
    begins = BUCKET.starts(instants_of(states))
    for begin in np.unique(begins).tolist():
        yield str(begin), states.filter(pa.array(begins == begin))


class Crash(BaseException):
    """Kill -9."""


class Schedule:
    """Decides who goes on; actors are threads of which one runs at a time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0
        self.actors: list[Actor] = []
        self.back = threading.Semaphore(0)
        self.trace: list[str] = []
        self.crashes = 0.0
        self.current: Actor | None = None
        # uniformly at random, or by priorities that change at a few moments (Burckhardt et al., PCT)
        self.changes = sorted(self.random.randrange(200) for _ in range(self.random.randrange(1, 9)))
        self.uniform = self.random.random() < 0.4

    def add(self, name: str, work: Callable[[], None]) -> None:
        self.actors.append(Actor(self, name, work, self.random.random()))

    def run(self) -> None:
        waiting = [actor for actor in self.actors if not actor.done]
        while waiting:
            if self.uniform:
                actor = self.random.choice(waiting)
            else:
                actor = max(waiting, key=lambda actor: actor.priority)
                if self.changes and self.now >= self.changes[0]:
                    self.changes.pop(0)
                    actor.priority = -self.random.random()
            self.step(actor)
            if actor.failure is not None:
                break
            waiting = [actor for actor in waiting if not actor.done]
        failures = [actor.failure for actor in self.actors if actor.failure is not None]
        for actor in self.actors:
            actor.stop()
        if failures:
            raise failures[0]

    def step(self, actor: Actor) -> None:
        self.now += 1
        self.current = actor
        actor.go()
        self.current = None

    def until(self, name: str, what: str = "") -> None:
        """Let one actor go on, to before a call that begins with a text; else to its end."""
        actor = next(actor for actor in self.actors if actor.name == name)
        while not actor.done:
            self.step(actor)
            if what and actor.at.startswith(what):
                return
        if actor.failure is not None:
            raise actor.failure

    def point(self, what: str) -> None:
        """Let others go on; called by an actor before each call of the backend."""
        actor = self.current
        if actor is None:
            return
        actor.at = what
        actor.pause()
        actor.at = ""
        self.trace.append(f"{self.now:4} {actor.name}: {what}")
        if self.random.random() < self.crashes:
            self.trace.append(f"{self.now:4} {actor.name}: CRASH")
            raise Crash


class Actor:
    def __init__(self, schedule: Schedule, name: str, work: Callable[[], None], priority: float) -> None:
        self.schedule, self.name, self.work, self.priority = schedule, name, work, priority
        self.turn, self.done, self.stopped, self.at = threading.Semaphore(0), False, False, ""
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.turn.acquire()
        try:
            if not self.stopped:
                self.work()
        except Crash:
            pass
        except BaseException as failure:
            self.failure = failure
        self.done = True
        self.schedule.back.release()

    def go(self) -> None:
        self.turn.release()
        self.schedule.back.acquire()

    def pause(self) -> None:
        self.schedule.back.release()
        self.turn.acquire()
        if self.stopped:
            raise Crash

    def stop(self) -> None:
        if not self.done:
            self.stopped = True
            self.go()
        self.thread.join()


@dataclass(frozen=True)
class Meant:
    """A change of the truth: tokens are added, and go, either all in a range or some."""

    added: frozenset[Token] = frozenset()
    replaced: Range = (0, 0)
    retracted: frozenset[Token] = frozenset()


@dataclass(frozen=True)
class Memory(MemoryBackend):
    """A backend in memory that lets others go on before each call, and holds every commit against what was meant."""

    schedule: Schedule = None
    first: Description = Description()
    meant: dict[str, Meant] = field(default_factory=dict)  # actor -> the change that it is about to commit
    truth: set[Token] = field(default_factory=set)
    states: dict[int, set[Token]] = field(default_factory=dict)  # version -> truth
    brought: dict[Token, tuple[str, ...]] = field(default_factory=dict)  # measures that tokens came with
    dropped: set[str] = field(default_factory=set)
    replacements: set[Token] = field(default_factory=set)  # tokens that replaced others
    told: dict[str, str] = field(default_factory=dict)  # name -> text that was recorded last
    once_readable: set[str] = field(default_factory=set)  # the names of parts that a commit has added
    spurious: list[float] = field(default_factory=lambda: [0.02])  # how often a commit is refused by chance

    def __post_init__(self):
        super().__post_init__()
        self.create(self.first.to_dict(), self.first.columns)
        self.states[0] = set()

    def snapshot(self, recorded=()):
        self.schedule.point("snapshot")
        return super().snapshot(recorded)

    def commit(self, transaction):
        added, removed = ([_named(part) for part in parts] for parts in (transaction.added, transaction.removed))
        self.schedule.point(f"commit +{added} -{removed} {[*transaction.recorded]}")
        if self.schedule.current and self.schedule.random.random() < self.spurious[0]:
            raise Conflict("by chance")
        actor = self.schedule.current.name if self.schedule.current else "past"
        meant = self.meant.get(actor, Meant())
        low, high = meant.replaced
        try:
            version = super().commit(transaction)
        except Conflict as conflict:
            self.schedule.trace.append(f"     … conflict: {conflict}")
            raise
        self.once_readable.update(part.name for part in transaction.added)
        # Rows that are appended to a range meanwhile come after it; replacements come one after the other.
        seen = self.states[transaction.snapshot.version] | self.replacements
        self.truth.difference_update([token for token in seen if low <= token[1] * SECOND < high])
        self.replacements.update(meant.added if high > low else ())
        removed_tokens = {token for token in meant.retracted - self.truth if self.is_held(token, transaction.snapshot)}
        assert not removed_tokens, f"{removed_tokens} is retracted, and was not there"
        self.truth.difference_update(meant.retracted)
        assert not meant.added & self.truth, f"{meant.added} is committed twice"
        self.truth.update(meant.added)
        self.states[version] = set(self.truth)
        self.check_records(transaction)
        manifest = transaction.manifest
        self.dropped.update(set(manifest["had"]) - set(manifest["measures"]) if manifest else ())
        self.check_levels()
        return version

    def vacuum(self, older_than):
        """Delete the rows of parts that a commit has removed. Rows without a commit are younger than a day and stay."""
        self.schedule.point("vacuum")
        removed = self.once_readable - self.tables.parts.keys()
        for name in removed:
            self.tables.rows.pop(name, None)
        return Vacuumed(len(removed))

    def is_held(self, token, snapshot):
        """Say whether any level still holds the window of a token; others are not looked at by a retraction."""
        levels = Description.from_dict(snapshot.manifest).frame.levels
        return any(level.starts(token[1] * SECOND) >= available_from(snapshot, level.name) for level in levels)

    def check_records(self, transaction):
        """Every record that was ever committed has the text of its last commit."""
        self.told.update(transaction.recorded)
        texts = MemoryBackend.snapshot(self, None).texts
        assert texts == self.told, f"records are {texts}, not {self.told}"

    def check_levels(self):
        """Every level holds the truth, as far as it has not let go of windows."""
        now = MemoryBackend.snapshot(self, [EXPIRED])
        for level in Description.from_dict(now.manifest).frame.levels:
            tokens = Counter(token for part in now.of(level.name) for token in tokens_of(self.tables.rows[part.name]))
            self.check(level, available_from(now, level.name), tokens, self.truth)

    def check(self, level, kept_from, tokens, truth):
        visible = Counter({t: n for t, n in tokens.items() if level.starts(t[1] * SECOND) >= kept_from})
        expected = Counter(t for t in truth if level.starts(t[1] * SECOND) >= kept_from)
        assert visible == expected, f"{level.name}: lost {expected - visible}, too much {visible - expected}"

    def read(self, parts, columns, where=None):
        self.schedule.point("read")
        return super().read(parts, columns)


def _named(part) -> str:
    return f"{part.level}:{part.name[:4]}[{part.first_start // SECOND},{part.last_start // SECOND}]"


@dataclass(frozen=True)
class Target(MemoryBackend):
    """The place of a copy, which lets others go on before each call too."""

    schedule: Schedule = None

    def snapshot(self, recorded=()):
        self.schedule.point("target: snapshot")
        return super().snapshot(recorded)

    def write(self, level, states):
        self.schedule.point("target: write")
        return super().write(level, states)

    def commit(self, transaction):
        self.schedule.point("target: commit")
        return super().commit(transaction)


@dataclass(frozen=True)
class Recorded:
    """The two methods of a store that a backfill asks."""

    backend: MemoryBackend

    def recorded(self, names):
        return {name: json.loads(text) for name, text in self.backend.snapshot(names).texts.items()}

    def last_commit(self, writer):
        last = writers.last_commits(self.backend.snapshot([f"tiltframe:writer {writer}"]), writer)[0]
        return None if last < 0 else last


class World:
    """One random schedule."""

    def __init__(self, seed: int, *, zombies: bool = False, evolves: bool = False) -> None:
        self.schedule = Schedule(seed)
        choose = self.random = self.schedule.random
        first = Description(choose.choice([1, 2, 2, 3]) if evolves else 3)
        self.backend = Memory(retains=choose.random() < 0.6, schedule=self.schedule, first=first)
        self.opened: dict[str, Description] = {}
        if choose.random() < 0.8:
            self.make_history()
        self.schedule.crashes = choose.choice([0.0, 0.0, 0.01, 0.04])
        for i in range(choose.randrange(1, 4)):
            self.add(f"writer{i}", lambda name, i=i: self.write(name, f"w{i}"))
            if zombies and choose.random() < 0.5:
                self.add(f"zombie{i}", lambda name, i=i: self.write(name, f"w{i}"))
        counts = {self.replace: choose.choice([0, 1, 1, 2]), self.compact: choose.choice([0, 1, 1, 2])}
        counts |= {self.expire: choose.choice([0, 1]), self.reader: choose.choice([1, 2, 3])}
        counts |= {self.evolve: choose.choice([1, 1, 2]) if evolves else 0}
        counts |= {work: choose.choice([0, 0, 1]) for work in (self.retract, self.fill_past, self.copy)}
        for work, count in counts.items():
            for i in range(count):
                self.add(f"{work.__name__}{i}", work)

    @property
    def store(self) -> SimpleNamespace:
        """The members of a store that the operations of `recording` use."""
        return SimpleNamespace(backend=self.backend, manifest=self.backend.first)

    def add(self, name: str, work: Callable[[str], None]) -> None:
        self.schedule.add(name, lambda: work(name))

    def make_history(self) -> None:
        """Append, replace, record the watermark of a stream, and expire by an early clock, alone."""
        self.append("past", "past", 1, {("past.1", at) for at in range(END)})
        self.append("past", "past", 2, {("past.2", at) for at in (1, 4)})
        self.replace_one("past", 4, 6, {("past.r", 5)})
        log_run.run_transaction(self.backend, StreamWatermark("past", 2 * SECOND).record, [WATERMARKS])
        expiry.expire_windows(self.backend, self.backend.first, 3 * SECOND)

    def works(self, actor: str, work: Callable[[Description], Any]) -> Any:
        """Do something by the description that an actor has; open the store again when it has evolved."""
        while True:
            try:
                return work(self.opened.setdefault(actor, self.backend.first))
            except OtherFrame:
                self.opened[actor] = Description.from_dict(self.backend.snapshot().manifest)
            finally:
                self.backend.meant.pop(actor, None)

    def write(self, actor, writer):
        number = 0
        for _ in range(self.random.randrange(1, 4)):
            number += self.random.choice([1, 1, 1, 2])
            tokens = {(f"{actor}.{number}", at) for at in self.random.sample(range(END), self.random.choice([1, 2, 3]))}
            for _ in range(3):
                try:
                    if self.append(actor, writer, number, tokens):
                        assert tokens <= self.backend.brought.keys(), f"{writer} {number} is not there"
                except Crash:
                    if self.random.random() < 0.3 or (self.schedule.actors and self.stopped(actor)):
                        break  # another goes on with the next number, or none does
                    continue
                break

    def stopped(self, actor):
        return next(candidate.stopped for candidate in self.schedule.actors if candidate.name == actor)

    def append(self, actor, writer, number, tokens, recorded=None):
        def work(manifest):
            transaction = commit.begin_commit(
                self.backend, manifest, writer, number, recorded=recorded or {}, replacing={}
            )
            rows = rows_of(tokens, manifest.measures)
            receipt = transaction.write_checked(
                (level, merge_level(rows, None, level)) for level in manifest.frame.levels
            )
            self.backend.meant[actor] = Meant(added=frozenset(tokens))
            added = transaction.commit([receipt])
            if added:
                self.backend.brought.update(dict.fromkeys(tokens, manifest.measures))
            return added

        self.backend.brought.update({t: self.opened.get(actor, self.backend.first).measures for t in tokens})
        try:
            return self.works(actor, work)
        except CommitConflict as error:  # other states under the number, by whom it was thought dead
            assert "a new batch needs a number above" in str(error), error  # noqa: PT017
            return False

    def append_group(self, actor, groups: dict[str, set[Token]]):
        """Append tokens of several writers in one transaction."""

        def work(manifest):
            excluded = SimpleNamespace(refused={}, report=lambda note: None)
            prepared = [
                group_commit.PreparedRows(
                    commit.Commit(self.backend, manifest, writer, 1, is_repeated=False),
                    rows_of(tokens, manifest.measures),
                    excluded,
                )
                for writer, tokens in groups.items()
            ]
            added = frozenset().union(*groups.values())
            self.backend.meant[actor] = Meant(added=added)
            self.backend.brought.update(dict.fromkeys(added, manifest.measures))
            outcomes = group_commit.commit_group(SimpleNamespace(backend=self.backend), prepared)
            if stale := [outcome for outcome in outcomes if isinstance(outcome, OtherFrame)]:
                assert len(stale) == len(outcomes), "one transaction has one frame"
                raise stale[0]
            assert outcomes == [True] * len(groups)

        self.works(actor, work)

    def replace(self, actor):
        for number in range(self.random.randrange(1, 3)):
            low = self.random.randrange(END)
            high = self.random.randrange(low + 1, END + 1)
            tokens = None
            if self.random.random() < 0.8:
                starts = self.random.sample(range(low, high), self.random.randrange(min(3, high - low) + 1))
                tokens = {(f"{actor}.{number}", at) for at in starts}
            self.replace_one(actor, low, high, tokens)

    def replace_one(self, actor, low, high, tokens):
        span = (low * SECOND, high * SECOND)

        def work(manifest):
            replaced = (0, 0) if tokens is None else span
            self.backend.meant[actor] = Meant(added=frozenset(tokens or ()), replaced=replaced)
            self.backend.brought.update(dict.fromkeys(tokens or (), manifest.measures))
            states = None if tokens is None else rows_of(tokens, manifest.measures)
            parts = None if states is None else self.backend.write(LEVELS[0], states)
            replacement.replace_range(self.backend, manifest, parts, span)

        try:
            self.works(actor, work)
        except StoreError:
            raise
        except ValueError as error:
            assert "expired" in str(error) or "has windows only from" in str(error), error  # noqa: PT017

    def end_stream(self, actor):
        """End a stream of the history, unless another actor has ended it."""
        try:
            recording.end_stream(self.store, "past")
        except ValueError as error:
            assert "no watermark of the stream 'past'" in str(error), error  # noqa: PT017

    def add_to_list(self, actor):
        """Add a name to a recorded list, and try again if another actor has changed the list since it was read."""
        for _ in range(2):
            before = recording.recorded(self.store, ["names"])
            try:
                recording.record(self.store, {"names": [*before.get("names", []), actor]}, before)
            except CommitConflict:
                continue
            break
        assert actor in recording.recorded(self.store, ["names"])["names"]

    def compact(self, actor):
        for _ in range(self.random.randrange(1, 3)):
            until = self.random.randrange(END + 1) * SECOND
            compact = self.random.choice([compaction.compact_parts, compaction.compact_small_parts])
            self.works(actor, lambda manifest: compact(self.backend, manifest, until))  # noqa: B023

    def compact_and_vacuum(self, actor):
        """Compact, and delete the rows of the parts that no longer belong to the store, which others may be reading."""
        self.works(actor, lambda manifest: compaction.compact_parts(self.backend, manifest, 2**62))
        self.backend.vacuum(0)

    def expire(self, actor):
        for now in sorted(self.random.choices(range(2, END + 2), k=self.random.randrange(1, 3))):
            self.works(actor, lambda manifest: expiry.expire_windows(self.backend, manifest, now * SECOND))  # noqa: B023

    def evolve(self, actor):
        for _ in range(self.random.randrange(1, 3)):
            self.works(actor, self.evolve_once)

    def evolve_once(self, manifest):
        measures = list(manifest.measures)
        if self.random.random() < 0.6:
            measures.append(f"m{self.random.randrange(10**6)}")
        if len(measures) > 1 and self.random.random() < 0.4:
            measures.remove(self.random.choice(measures))
        count = manifest.count + (manifest.count < 3 and self.random.random() < 0.7)
        self.evolve_to(manifest, count, tuple(measures))

    def evolve_to(self, manifest, count, measures):
        evolution.evolve(self.backend, manifest, Frame(LEVELS[:count], measures))

    def retract(self, actor):
        tokens = sorted(self.backend.truth)
        if tokens:
            self.retract_some(actor, set(self.random.sample(tokens, min(len(tokens), 2))))

    def retract_some(self, actor, tokens):
        """Take tokens out again, which may have been replaced since: then nothing changes."""

        def work(manifest):
            transaction = commit.begin_commit(self.backend, manifest, f"{actor}'s", 1, recorded={}, replacing={})
            rows = rows_of(tokens, manifest.measures)
            levels = [(level.name, merge_level(rows, None, level)) for level in manifest.frame.levels]
            tables = [table.append_column("level", pa.array([name] * len(table))) for name, table in levels]
            self.backend.meant[actor] = Meant(retracted=frozenset(tokens))
            retraction.retract_states(transaction, pa.concat_tables(tables))

        try:
            self.works(actor, work)
        except CannotSubtract as error:
            assert "not there" in str(error) or ROWS_NOT_IN_STATE in str(error), error  # noqa: PT017

    def fill_past(self, actor):
        """Backfill two ranges, with a plan that is recorded."""
        ranges = [(0, 2 * SECOND), (2 * SECOND, 4 * SECOND)]

        def add(store, span, writer, number, recorded):
            tokens = {(f"{actor}.{number}", span[0] // SECOND)}
            texts = {name: json.dumps(value) for name, value in (recorded or {}).items()}
            return self.append(actor, writer, number, tokens, texts)

        plan = backfill.Backfill(f"{actor}'s", ranges, {"chunk": "2s"}, add)
        plan.follow(Recorded(self.backend), {}, lambda done, range_count: None)
        assert plan.ranges_left(Recorded(self.backend)) == []

    def copy(self, actor, target=None):
        """Copy the store: the copy is a state that the log had, at all levels."""
        target = Target(schedule=self.schedule) if target is None else target
        copying.copy_store(self.backend, target, "copied")
        now = MemoryBackend.snapshot(target, None)
        fits = []
        for truth in self.backend.states.values():
            try:
                for level in Description.from_dict(now.manifest).frame.levels:
                    parts = now.of(level.name)
                    tokens = Counter(token for part in parts for token in tokens_of(target.tables.rows[part.name]))
                    self.backend.check(level, available_from(now, level.name), tokens, truth)
            except AssertionError:
                continue
            fits.append(truth)
        assert fits, "the copy is of no moment of the store"

    def reader(self, actor):
        for _ in range(self.random.randrange(1, 6)):
            if self.random.random() < 0.3:
                self.opened[actor] = Description.from_dict(self.backend.snapshot().manifest)
            self.read(self.opened.get(actor, self.backend.first))

    def read(self, manifest):
        level = self.random.choice(manifest.frame.levels)

        def attempt():
            snapshot = snapshot_of(self.backend)
            kept_from = available_from(snapshot, level.name)
            pieces = pieces_of(snapshot.of(level.name), [(kept_from, EVER[1])])
            return snapshot.version, kept_from, self.backend.read(pieces, manifest.schema.names[1:])

        version, kept_from, rows = log_run.retry_on_conflict(attempt)
        self.backend.check(level, kept_from, Counter(tokens_of(rows)), self.backend.states[version])
        for row in rows.to_pylist():
            brought = self.backend.brought[row["who"], row["at"]]
            for name in manifest.measures:
                allowed = [row["at"] if name in brought else None, *([None] if name in self.backend.dropped else [])]
                assert row[name] in allowed, f"{level.name}: {name} of {row} is not one of {allowed}"
        return set(tokens_of(rows))

    def run(self):
        try:
            self.schedule.run()
            self.backend.spurious[0] = 0
            last = Description.from_dict(self.backend.snapshot().manifest)
            compaction.compact_parts(self.backend, last, 2**62)
            self.read(last)
        except (AssertionError, StoreError, Conflict, KeyError, ValueError) as failure:
            raise AssertionError(
                f"{type(failure).__name__}: {failure}\n"
                + "\n".join(self.schedule.trace)
                + "\n"
                + "".join(traceback.format_exception(failure)[-3:])
            ) from None


class Patches:
    """What stands for Arrow, the calendar and the clock."""

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        for module in (merging, copying):
            self.patch.setattr(module, "bucket_of", lambda level: BUCKET)
        self.patch.setattr(memory, "split_by_bucket", split_by_bucket)
        for module in (memory, retraction):
            self.patch.setattr(module, "instants_of", instants_of)
        for module in (merging, retraction):
            self.patch.setattr(module, "merge_level", merge_level)
        for module in (evolution, copying):
            self.patch.setattr(module, "Manifest", Description)
        self.patch.setattr(group_commit, "merge_panes", lambda rows, frame: arrow_of(rows))
        self.patch.setattr(group_commit, "climb", levels_of)
        self.patch.setattr(retraction, "subtract_by", subtract_by)
        self.patch.setattr(evolution, "plan_evolution", plan_evolution)
        self.patch.setattr(merging, "ROWS_AT_ONCE", 2)
        self.patch.setattr(merging, "_MIN_SMALL_PARTS", 2)
        self.patch.setattr(log_run.time, "sleep", lambda seconds: None)

    def __exit__(self, *_):
        self.patch.undo()


# Random schedules of a test. The test of each pair of operations tries all moments; these add three actors and crashes.
SEEDS = int(os.environ.get("TRIALS", "60"))


@pytest.fixture
def patched():
    with Patches():
        yield


@pytest.mark.slow
@pytest.mark.long
def test_whoever_comes_between_levels_hold_whole_commits(patched):
    for seed in range(SEEDS):
        World(seed, zombies=seed % 3 == 0).run()


@pytest.mark.slow
@pytest.mark.long
def test_whoever_comes_between_evolutions_nothing_is_lost(patched):
    for seed in range(40_000, 40_000 + SEEDS):
        World(seed, zombies=seed % 3 == 0, evolves=True).run()


class Play(World):
    """A schedule by hand."""

    def __init__(self, levels: int = 3) -> None:
        self.schedule = Schedule(0)
        self.random = self.schedule.random
        first = Description(levels)
        self.backend = Memory(retains=True, schedule=self.schedule, spurious=[0], first=first)
        self.opened = {}
        self.until = self.schedule.until

    def appends(self, name, writer, number, starts):
        self.add(name, lambda name: self.append(name, writer, number, {(f"{name}.{number}", at) for at in starts}))

    def replaces(self, name, low, high, starts):
        self.add(name, lambda name: self.replace_one(name, low, high, {(name, at) for at in starts}))

    def expires(self, name, now):
        self.add(name, lambda name: expiry.expire_windows(self.backend, Description(), now * SECOND))

    def evolves(self, name, count):
        self.add(name, lambda name: evolution.evolve(self.backend, self.backend.first, Frame(LEVELS[:count], ("m0",))))


KEPT = {"1s": "4s"}  # the retention that an actor of the kind ``retain`` sets
PAST = {  # what an actor of each kind does to a store with a history
    "append": lambda play, name: play.append(name, name, 1, {(name, at) for at in (1, 5, 6)}),
    "append a group": lambda play, name: play.append_group(
        name, {name + writer: {(name + writer, at) for at in (1, 5)} for writer in "ab"}
    ),
    "replace": lambda play, name: play.replace_one(name, 4, 6, {(name, 4)}),
    "replace an empty range": lambda play, name: play.replace_one(name, END + 4, END + 8, {(name, END + 5)}),
    "rebuild": lambda play, name: play.replace_one(name, 4, 8, None),
    "retain": lambda play, name: evolution.set_retention(play.backend, KEPT),
    "expire": lambda play, name: play.works(name, lambda m: expiry.expire_windows(play.backend, m, 7 * SECOND)),
    "compact": lambda play, name: play.works(name, lambda m: compaction.compact_parts(play.backend, m, 2**62)),
    "compact small parts": lambda play, name: play.works(
        name, lambda m: compaction.compact_small_parts(play.backend, m, 2**62)
    ),
    "evolve": lambda play, name: play.works(name, lambda m: play.evolve_to(m, 3, ("m0", f"m{name}"))),
    "retract": lambda play, name: play.retract_some(name, {("past.r", 5), ("past.1", 7)}),
    "backfill": lambda play, name: play.fill_past(name),
    "copy": lambda play, name: play.copy(name, play.target),
    "record": lambda play, name: play.add_to_list(name),
    "end a stream": lambda play, name: play.end_stream(name),
    "compact and vacuum": lambda play, name: play.compact_and_vacuum(name),
}


@pytest.mark.slow
@pytest.mark.parametrize("first", PAST)
@pytest.mark.parametrize("second", PAST)
def test_of_two_operations_on_a_store_with_a_history_nothing_is_lost(first, second, patched):
    """The second one comes as a whole before each call of the first, from its beginning to its end."""
    calls = 0
    while True:
        play = Play(levels=2)
        play.target = Target(schedule=play.schedule)
        play.make_history()
        for name, kind in (("one", first), ("two", second)):
            play.add(name, partial(PAST[kind], play))
        actor = play.schedule.actors[0]
        for _ in range(calls):
            if not actor.done:
                play.schedule.step(actor)
        is_over = actor.done
        play.until("two")
        play.until("one")
        play.run()
        retention = Description.from_dict(play.backend.snapshot().manifest).retention
        assert retention == (KEPT if "retain" in (first, second) else Description().retention)
        if is_over:
            return
        calls += 1


# Each function of a store in `tiltframe.store.changes`, with the kind of actor that runs its transaction.
KIND_OF_OPERATION = {
    "append.append": "append",
    "append.append_from_stream": "append",
    "append.append_rows": "append",
    "append.append_spilled": "append",
    "commit.begin": "append",
    "commit.begin_checked": "append",
    "backfill.backfill": "backfill",
    "backfill.plan_backfill": "backfill",
    "compaction.compact": "compact",
    "copying.copy_to": "copy",
    "expiry.expire": "expire",
    "group_commit.commit_group": "append a group",
    "group_commit.prepare_rows": "append a group",
    "recording.end_stream": "end a stream",
    "recording.record": "record",
    "replacement.begin_replacement": "replace",
    "replacement.rebuild": "rebuild",
    "replacement.replace": "replace",
    "retraction.begin_retraction": "retract",
    "retraction.retract": "retract",
}
# These operations do not commit: they read, check arguments, or write tables outside the log, which
# `test_interleaved_stores` interleaves.
WITHOUT_COMMIT = {
    "recording.has_commit",
    "recording.last_commit",
    "recording.recorded",
    "recording.refused_values",
    "replacement.replaced_range",
    "result_tables.export",
}


def test_the_pairs_contain_every_operation_of_a_store():
    operations = {
        f"{path.stem}.{node.name}"
        for path in Path(compaction.__file__).parent.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        for parameter in node.args.args[:1]
        if parameter.annotation is not None and ast.unparse(parameter.annotation) == "OpenedStore"
    }
    assert operations == KIND_OF_OPERATION.keys() | WITHOUT_COMMIT
    assert set(KIND_OF_OPERATION.values()) <= PAST.keys()


def played(script: Callable[[Play], None]) -> Play:
    """Run a script, and then whoever is not done."""
    with Patches():
        play = Play()
        script(play)
        for actor in play.schedule.actors:
            play.until(actor.name)
        play.run()
        return play


def test_of_two_replacements_of_an_empty_range_one_comes_after_the_other_after_a_history():
    """The record of how much has expired is there, and neither changes its text."""

    def script(play):
        play.make_history()
        play.replaces("one", END, END + 2, [END])
        play.replaces("two", END, END + 2, [END + 1])
        play.until("one", "commit")
        play.until("two", "commit")
        play.until("one")

    assert {token for token in played(script).backend.truth if token[1] >= END} == {("two", END + 1)}


@pytest.mark.parametrize("starts", [[], [2]])
def test_of_two_replacements_that_overlap_one_comes_after_the_other(starts):
    """Also where the range is empty, so that neither removes what the other does."""

    def script(play):
        if starts:
            play.appends("append", "w", 1, starts)
            play.until("append")
        play.replaces("one", 0, 2, [1])
        play.replaces("two", 1, 3, [1])
        play.until("one", "commit")
        play.until("two", "commit")
        play.until("one")

    assert played(script).backend.truth == {("two", 1)}


def test_an_append_to_a_range_that_is_being_replaced_counts_once():
    def script(play):
        play.replaces("replace", 0, 4, [0])
        play.until("replace", "commit")
        play.appends("append", "w", 1, [3])
        play.until("append")

    assert played(script).backend.truth == {("replace", 0), ("append.1", 3)}


@pytest.mark.parametrize(("low", "starts"), [(1, [0, 5]), (3, [0, 5])])
def test_nothing_expires_that_a_replacement_is_about_to_need(low, starts):
    def script(play):
        play.appends("append", "w", 1, starts)
        play.until("append")
        play.expires("expire", 7)
        play.until("expire", "commit")
        play.replaces("replace", low, low + 1, [low])
        play.until("replace", "commit")
        play.until("expire")

    played(script)


def test_a_number_that_two_commit_at_once_counts_once():
    def script(play):
        for name in ("one", "two"):
            play.add(name, lambda name: play.append(name, "w", 1, {("same", 1)}))
            play.until(name, "commit")

    assert played(script).backend.truth == {("same", 1)}


def test_a_level_that_is_added_holds_what_is_appended_meanwhile():
    def script(play):
        play.backend.tables.manifest = ""
        object.__setattr__(play.backend, "first", Description(2))
        play.backend.create(play.backend.first.to_dict(), play.backend.first.columns)
        play.appends("before", "w", 1, [0, 5])
        play.until("before")
        play.evolves("evolve", 3)
        play.until("evolve", "commit")
        play.appends("late", "v", 1, [1])
        play.until("late")

    play = played(script)
    assert {tokens for tokens, _ in play.backend.truth} == {"before.1", "late.1"}


def explore(seconds: float, seed: int, **options: bool) -> tuple[int, dict[int, str]]:
    begun, failures, runs = time.monotonic(), {}, 0
    with Patches():
        while time.monotonic() - begun < seconds:
            try:
                World(seed, **options).run()
            except AssertionError as failure:
                failures[seed] = str(failure)
            seed, runs = seed + 1, runs + 1
    return runs, failures


def main(arguments: Sequence[str]) -> None:
    flags = {name: True for name in arguments[2:] if name in ("zombies", "evolves")}
    count, failures = explore(float(arguments[0]), int(arguments[1]), **flags)
    print(f"{count} schedules, {len(failures)} failures")
    if failures:
        shortest = min(failures, key=lambda seed: len(failures[seed]))
        print("seeds", sorted(failures)[:20], "\nshortest", shortest)
        print(failures[shortest])


if __name__ == "__main__":
    main(sys.argv[1:])
