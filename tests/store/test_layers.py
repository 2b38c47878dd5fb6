"""The rule of layers against interleavings: writers, compactions, expiries, replacements, readers and crashes.

Tables are those of `tiltframe.store.testing.MemoryBackend`, rows are *tokens* (which commit, which finest window), and
every call of the backend is a point at which a scheduler decides who goes on. What the finest level
went through, commit by commit, is the truth; a reader of any level must see a state of it: every change that was there
when it began, none that came after it ended, and each in between wholly or not at all.

Longer, by hand:  python -m tests.store.test_layers 600 7     # seconds, first seed
"""

from __future__ import annotations

import itertools
import random
import re
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tiltframe.store.core import (
    catching_up,
    commits,
    compaction,
    evolution,
    generations,
    merging,
    retention,
    retry,
    snapshots,
)
from tiltframe.store.core import replacement as replacing
from tiltframe.store.core.backend import Conflict, Part, Range, StoreError
from tiltframe.store.core.content import NOTHING
from tiltframe.store.core.generations import Evolved
from tiltframe.store.core.read_plan import held_from, read_plan
from tiltframe.store.core.writers import OWN
from tiltframe.store.testing import MemoryBackend, memory

SECOND = 1_000_000
END = 8  # finest windows: 0 … 7
EVERY: Range = (-(2**62), 2**62)
Token = tuple[str, int]  # who brought it, its finest window


@dataclass(frozen=True)
class Fixed:
    """A window of whole seconds, without the calendar."""

    name: str
    sort_key: int

    def starts(self, at: np.ndarray) -> np.ndarray:
        return at // self.sort_key * self.sort_key

    def ends(self, at: np.ndarray) -> np.ndarray:
        return self.starts(at) + self.sort_key

    def between(self, start: int, end: int) -> np.ndarray:
        return np.arange(-(-start // self.sort_key) * self.sort_key, end, self.sort_key)


LEVELS = tuple(Fixed(f"{size}s", size * SECOND) for size in (1, 2, 4))
NAMES = [level.name for level in LEVELS]
BUCKET = Fixed("4s", 4 * SECOND)


@dataclass(frozen=True)
class Frame:
    """Levels, and measures, which have a column each."""

    levels: tuple[Fixed, ...]
    measures: tuple[str, ...]

    def difference(self, other: Frame) -> str | None:
        return None if self == other else f"{self.measures} of {len(self.levels)} levels here"


@dataclass(frozen=True)
class Description:
    """What a store says of itself: a manifest with as little in it as the rule of layers needs."""

    count: int = 3  # of levels
    measures: tuple[str, ...] = ("m0",)
    had: tuple[str, ...] = ("m0",)  # all measures that there were
    generation: int = 0
    unfilled: tuple[str, ...] = ()
    earlier: tuple[()] = ()

    @property
    def frame(self) -> Frame:
        return Frame(LEVELS[: self.count], self.measures)

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.measures)

    @property
    def columns(self) -> pa.Schema:
        return _schema(self.had)

    @property
    def retention(self) -> dict[str, str]:
        return {"1s": "1s", "2s": "3s"} if self.count > 1 else {"1s": "1s"}

    def to_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def _schema(measures: Iterable[str]) -> pa.Schema:
    return pa.schema(
        [("window_start", pa.int64()), ("who", pa.string()), ("at", pa.int64()), *((m, pa.int64()) for m in measures)]
    )


def described(backend: Any) -> Description:
    """Open the store."""
    return Descriptions.from_dict(backend.describe())


class Descriptions:
    """What stands for `Manifest` where one is read."""

    @staticmethod
    def from_dict(held: dict[str, Any], place: str = "") -> Description:
        return Description(**{name: tuple(value) if isinstance(value, list) else value for name, value in held.items()})


def evolved(now: Description, frame: Frame, rows: None = None) -> Description:
    new = [level.name for level in frame.levels[now.count :]]
    had = tuple(dict.fromkeys([*now.had, *frame.measures]))
    unfilled = (*now.unfilled, *new)
    return Description(len(frame.levels), frame.measures, had, now.generation + 1, unfilled)


def rows_of(tokens: Iterable[Token], measures: Iterable[str]) -> pa.Table:
    """Make states of the finest level: a row for each token, whose measures are its window."""
    rows = [
        {"window_start": at * SECOND, "who": who, "at": at, **dict.fromkeys(measures, at)} for who, at in sorted(tokens)
    ]
    return pa.Table.from_pylist(rows, _schema(measures))


def tokens_of(rows: pa.Table) -> list[Token]:
    return list(zip(rows.column("who").to_pylist(), rows.column("at").to_pylist(), strict=True))


def merge_level(rows: pa.Table, frame: Any, level: Fixed, unknown: bool = True) -> pa.Table:
    starts = level.starts(rows.column("window_start").to_numpy())
    return rows.set_column(0, "window_start", pa.array(starts, pa.int64()))


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
        self.changes = sorted(self.random.randrange(400) for _ in range(self.random.randrange(1, 9)))
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
            self.now += 1
            self.current = actor
            actor.go()
            if actor.failure is not None:
                break
            waiting = [actor for actor in waiting if not actor.done]
        self.current = None
        failures = [actor.failure for actor in self.actors if actor.failure is not None]
        for actor in self.actors:
            actor.stop()
        if failures:
            raise failures[0]

    def until(self, name: str, what: str = "") -> None:
        """Let one actor go on, to before a call that begins with a text; else to its end."""
        actor = next(actor for actor in self.actors if actor.name == name)
        while not actor.done:
            self.now += 1
            self.current = actor
            actor.go()
            self.current = None
            if what and actor.at.startswith(what):
                return
        if actor.failure is not None:
            raise actor.failure

    def point(self, what: str) -> None:
        """Let others go on; called by an actor before each call of the tables."""
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


@dataclass
class Change:
    """What one commit of the finest level did."""

    at: int
    added: set[Token]
    removed: set[Token]
    measures: tuple[str, ...] = ()  # that the added ones have


@dataclass(frozen=True)
class Memory(MemoryBackend):
    """A backend in memory that lets others go on before each call, and knows the truth."""

    schedule: Schedule = None
    changes: list[Change] = field(default_factory=list)
    kind: dict[str, tuple[str, Any]] = field(default_factory=dict)  # actor -> what it is doing
    spurious: list[float] = field(default_factory=lambda: [0.02])  # how often a commit is refused by chance
    first: Description = Description()
    dropped: set[str] = field(default_factory=set)  # measures that the store has no more

    def __post_init__(self):
        super().__post_init__()
        self.create(self.first.to_dict(), self.first.columns)

    def window(self, level):
        return LEVELS[NAMES.index(level)]

    def describe(self):
        self.schedule.point("describe")
        return super().describe()

    def alter(self, manifest, schema, seen):
        self.schedule.point(f"alter {manifest['generation']} {manifest['measures']} {manifest['unfilled']}")
        super().alter(manifest, schema, seen)
        self.dropped.update(set(manifest["had"]) - set(manifest["measures"]))

    def level_now(self, level):
        self.schedule.point(f"view {level}")
        return super().level_now(level)

    def commit(self, level, add, cut=(), txn_versions=None, seen=None, notes=None):
        told = f"commit {level} +{[_told(p) for p in add]} -{[(_told(p), s) for p, s in cut]} {txn_versions or {}}"
        self.schedule.point(told)
        if self.schedule.current and self.schedule.random.random() < self.spurious[0]:
            raise Conflict("by chance")
        before = self._tokens(level)
        try:
            super().commit(level, add, cut, txn_versions, seen, notes)
        except Conflict as conflict:
            self.schedule.trace.append(f"     … conflict: {conflict}")
            raise
        if level == NAMES[0]:
            self._note(before, self._tokens(level))

    def read(self, parts, columns, where=None):
        self.schedule.point("read")
        return super().read(parts, columns)

    def told(self, token):
        """Name the measures that a token was committed with."""
        return next(change.measures for change in self.changes if token in change.added)

    def number(self, writer):
        return self.tables.txn_versions.get(NAMES[0], {}).get(writer, 0)

    def _tokens(self, level):
        names = self.tables.parts.get(level, {})
        tokens = Counter(token for name in names for token in tokens_of(self.tables.rows[name]))
        if double := [token for token, count in tokens.items() if count > 1]:
            raise AssertionError(f"{level} holds {double} twice")
        return set(tokens)

    def _note(self, before, after):
        name = self.schedule.current.name if self.schedule.current else "end"
        what, about = self.kind.get(name, ("", None))
        if what == "expire":
            assert after <= before
        elif what == "replace":
            (low, high), begun = about["span"], about["begun"]
            if about["anew"] and self._is_replacement(about):
                inside = {t for t in self.truth(self.schedule.now) if low <= t[1] * SECOND < high}
                removed = inside - after
                late = {t for c in self.changes if c.at > begun for t in c.added}
                wrong = {t for t in inside & after if t not in late}
                assert not wrong, f"a replacement left {wrong}"
                assert before - after <= inside
                change = Change(self.schedule.now, after - before, removed - about["states"], about["measures"])
                self.changes.append(change)
                about["noted"] = True
            else:
                assert before == after
        elif what == "append":
            if after != before:
                assert after >= before
                new = after - before
                assert not any(new & change.added for change in self.changes), "committed twice"
                self.changes.append(Change(self.schedule.now, new, set(), about))
        else:
            assert before == after, (name, what)

    def _is_replacement(self, about):
        """Whether this commit is the replacement itself: the number of its range has grown."""
        number = self.number(about["writer"])
        if number > about["number"]:
            about["number"] = number
            return True
        return False

    def truth(self, until):
        tokens: set[Token] = set()
        for change in self.changes:
            if change.at <= until:
                tokens = (tokens - change.removed) | change.added
        return tokens


def _told(part: Part) -> str:
    return (
        f"{part.name}:{part.writer.removeprefix(OWN)}:{part.commit}[{part.least // SECOND},{part.greatest // SECOND}]"
    )


class World:
    """One random schedule."""

    def __init__(
        self,
        seed: int,
        *,
        zombies: bool = False,
        replaces: bool = True,
        expires: bool = True,
        evolves: bool = False,
    ) -> None:
        self.schedule = Schedule(seed)
        self.random = self.schedule.random
        first = Description(self.random.choice([1, 2, 2, 3]) if evolves else 3)
        self.backend = Memory(retains=self.random.random() < 0.6, schedule=self.schedule, first=first)
        self.opened: dict[str, Description] = {}
        self.acknowledged: list[tuple[set[Token], str]] = []
        choose = self.random
        self.schedule.crashes = choose.choice([0.0, 0.0, 0.01, 0.04])
        for i in range(choose.randrange(1, 4)):
            self.schedule.add(f"writer{i}", lambda i=i: self.write(f"writer{i}", f"w{i}"))
            if zombies and choose.random() < 0.5:
                self.schedule.add(f"zombie{i}", lambda i=i: self.write(f"zombie{i}", f"w{i}"))
        if replaces:
            for i in range(choose.choice([0, 1, 1, 2])):
                self.schedule.add(f"replace{i}", lambda i=i: self.replace(f"replace{i}"))
        for i in range(choose.choice([0, 1, 1, 2])):
            self.schedule.add(f"compact{i}", lambda i=i: self.compact(f"compact{i}"))
        for i in range(choose.choice([0, 1]) if expires else 0):
            self.schedule.add(f"expire{i}", lambda i=i: self.expire(f"expire{i}"))
        for i in range(choose.choice([1, 1, 2]) if evolves else 0):
            self.schedule.add(f"evolve{i}", lambda i=i: self.evolve(f"evolve{i}"))
        for i in range(choose.choice([1, 2, 3])):
            self.schedule.add(f"reader{i}", lambda i=i: self.reader(f"reader{i}"))

    def by(self, actor):
        """Return the description by which an actor opened the store."""
        return self.opened.setdefault(actor, self.backend.first)

    def works(self, actor, work):
        """Do something by the description that an actor has; open the store again where it has evolved."""
        while True:
            try:
                return work(self.by(actor))
            except Evolved:
                self.opened[actor] = described(self.backend)

    def evolve(self, actor):
        self.backend.kind[actor] = ("evolve", None)
        for _ in range(self.random.randrange(1, 3)):
            self.works(actor, self.evolve_once)

    def evolve_once(self, manifest):
        new = f"m{self.random.randrange(10**6)}"
        measures = list(manifest.measures)
        if self.random.random() < 0.6:
            measures.append(new)
        if len(measures) > 1 and self.random.random() < 0.4:
            measures.remove(self.random.choice(measures))
        count = manifest.count + (manifest.count < 3 and self.random.random() < 0.7)
        evolution.evolve(self.backend, manifest, Frame(LEVELS[:count], tuple(measures)))

    def write(self, actor, writer):
        number = 0
        for _ in range(self.random.randrange(1, 4)):
            number += self.random.choice([1, 1, 1, 2])
            starts = self.random.sample(range(END), self.random.choice([1, 1, 2, 3]))
            tokens = {(f"{actor}.{number}", at) for at in starts}
            finest_only = self.random.random() < 0.15
            for _ in range(3):
                try:
                    new = self.append(actor, writer, number, tokens, finest_only)
                except Crash:
                    if self.random.random() < 0.3 or self.schedule.current.stopped:
                        break  # someone else goes on with the next number, or nobody
                    continue
                if new:
                    seen = any(tokens == change.added for change in self.backend.changes)
                    assert seen, f"{writer} {number} was acknowledged and is not there"
                break

    def append(self, actor, writer, number, tokens, finest_only):
        try:
            return self.commit(actor, writer, number, tokens, finest_only)
        except StoreError as error:
            if "none of the last" not in str(error):
                raise
            return False  # a number below the last, which nobody has committed

    def commit(self, actor, writer, number, tokens, finest_only):
        return self.works(actor, lambda manifest: self.commit_by(manifest, actor, writer, number, tokens, finest_only))

    def commit_by(self, manifest, actor, writer, number, tokens, finest_only):
        self.backend.kind[actor] = ("append", manifest.measures)
        if self.backend.view(NAMES[:1], [writer])[0].txn_versions.get(writer, -1) >= number:
            return commits.commit_parts(self.backend, manifest, [], writer, number, NOTHING)
        rows = rows_of(tokens, manifest.measures)
        parts = []
        for level in LEVELS[: 1 if finest_only else manifest.count]:
            parts += self.backend.write(level.name, merge_level(rows, None, level), writer, number)
        return retry.retry_on_conflict(
            lambda: commits.commit_parts(self.backend, manifest, parts, writer, number, NOTHING)
        )

    def replace(self, actor):
        for number in range(self.random.randrange(1, 3)):
            low = self.random.randrange(END)
            high = self.random.randrange(low + 1, END + 1)
            if self.random.random() < 0.3:
                low, high = low // 2 * 2, -(-high // 2) * 2
            tokens: set[Token] | None = None
            if self.random.random() < 0.8:
                starts = self.random.sample(range(low, high), self.random.randrange(0, min(3, high - low) + 1))
                tokens = {(f"{actor}.{number}", at) for at in starts}
            self.replace_one(actor, low, high, tokens)

    def replace_one(self, actor, low, high, tokens):
        span = (low * SECOND, high * SECOND)
        self.works(actor, lambda manifest: self.replace_by(manifest, actor, span, tokens))

    def replace_by(self, manifest, actor, span, tokens):
        states = None if tokens is None else rows_of(tokens, manifest.measures)
        about = {"span": span, "begun": self.schedule.now, "states": tokens or set(), "anew": states is not None}
        about["measures"] = manifest.measures
        about["writer"] = replacing.replaced_by(span)
        about["number"] = self.backend.number(about["writer"])
        self.backend.kind[actor] = ("replace", about)
        try:
            replacing.replace_range(self.backend, manifest, states, span)
        except Evolved:
            assert not about.get("noted")
            raise
        except ValueError as error:
            assert "expired" in str(error) or "is held from" in str(error), error  # noqa: PT017
        else:
            assert states is None or about.get("noted")

    def compact(self, actor):
        for _ in range(self.random.randrange(1, 3)):
            self.works(actor, lambda manifest: catching_up.catch_up(self.backend, manifest))
            until = self.random.randrange(END + 1) * SECOND
            self.works(actor, lambda manifest: compaction.merge_parts(self.backend, manifest, until))  # noqa: B023

    def expire(self, actor):
        self.backend.kind[actor] = ("expire", None)
        for now in sorted(self.random.choices(range(2, END + 2), k=self.random.randrange(1, 3))):
            self.works(actor, lambda manifest: retention.expire(self.backend, manifest, now * SECOND))  # noqa: B023

    def reader(self, actor):
        for _ in range(self.random.randrange(1, 6)):
            if self.random.random() < 0.3:
                self.opened[actor] = described(self.backend)
            at = self.random.randrange(self.by(actor).count)
            low, high = EVERY
            if self.random.random() < 0.2:
                size = LEVELS[at].sort_key
                low = self.random.randrange(END * SECOND // size) * size
                high = low + size
            self.read(at, low, high, self.by(actor))

    def read(self, at, low, high, manifest=None):
        manifest = manifest or self.backend.first

        def attempt():
            begun = self.schedule.now
            views = snapshots.snapshot(self.backend, manifest, at + 1)
            ended = self.schedule.now
            held = max(low, held_from(views, LEVELS[: at + 1]))
            part_ranges = read_plan(views, LEVELS[: at + 1], [(held, high)] if held < high else []).part_ranges
            return begun, ended, held, self.backend.read(part_ranges, manifest.schema.names[1:])

        begun, ended, held, rows = retry.retry_on_conflict(attempt)
        seen = Counter(tokens_of(rows))
        self.check(at, begun, ended, seen, held, high)
        self.check_measures(at, manifest, rows)
        for start, window in zip(rows["window_start"].to_pylist(), rows["at"].to_pylist(), strict=True):
            size = LEVELS[at].sort_key
            assert start // size == window * SECOND // size, "a row of another window"
        return seen

    def check_measures(self, at, manifest, rows):
        """What a commit brought is there, unless the store has dropped it; what it did not bring is null."""
        for row in rows.to_pylist():
            told = self.backend.told((row["who"], row["at"]))
            for name in manifest.measures:
                wanted = [row["at"] if name in told else None, *([None] if name in self.backend.dropped else [])]
                assert row[name] in wanted, f"{NAMES[at]}: {name} of {row} is not one of {wanted}"

    def check(self, at, begun, ended, seen, low, high):
        where = f"a reader of {NAMES[at]} in [{low / SECOND},{high / SECOND}) from {begun} to {ended}"
        assert max(seen.values(), default=0) <= 1, f"{where} sees twice {[t for t, n in seen.items() if n > 1]}"

        def inside(tokens):
            return {token for token in tokens if low <= token[1] * SECOND < high}

        sure = [change for change in self.backend.changes if change.at <= begun]
        maybe = [change for change in self.backend.changes if begun < change.at <= ended]
        allowed = []
        for chosen in itertools.product([True, False], repeat=len(maybe)):
            tokens: set[Token] = set()
            for change in sure + [change for change, is_there in zip(maybe, chosen, strict=True) if is_there]:
                tokens = (tokens - change.removed) | change.added
            # what one replacement removes, and another that is not seen had brought or removed, may differ
            if inside(tokens) == set(seen):
                return
            allowed.append(sorted(inside(tokens)))
        least, most = set.intersection(*map(set, allowed)), set.union(*map(set, allowed))
        raise AssertionError(
            f"{where} sees {sorted(seen)}: lost {sorted(least - set(seen))}, too much {sorted(set(seen) - most)}; "
            f"allowed {allowed}"
        )

    def run(self):
        try:
            self.schedule.run()
            self.backend.spurious[0] = 0
            self.backend.kind.clear()
            last = described(self.backend)
            for _ in range(2):
                for manifest in (self.backend.first, last):
                    for at in range(manifest.count):
                        self.read(at, *EVERY, manifest)  # lagging
            catching_up.catch_up(self.backend, last)
            for at in range(last.count):
                self.read(at, *EVERY, last)
            last = evolution.settle(self.backend, last)
            assert not last.unfilled
            compaction.merge_parts(self.backend, last, 2**62)
            for at in range(last.count):
                self.read(at, *EVERY, last)
            assert catching_up.catch_up(self.backend, last) == 0
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
        for module in (merging, compaction, memory):
            self.patch.setattr(module, "bucket_of", lambda level: BUCKET)
        self.patch.setattr(merging, "merge_level", merge_level)
        self.patch.setattr(generations, "Manifest", Descriptions)
        self.patch.setattr(evolution, "evolved", evolved)
        self.patch.setattr(merging, "ROWS_AT_ONCE", 2)
        self.patch.setattr(retry.time, "sleep", lambda seconds: None)

    def __exit__(self, *_):
        self.patch.undo()


@pytest.fixture
def patched():
    with Patches():
        yield


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 10_000, 20_000, 30_000])
def test_whoever_comes_between_readers_see_whole_commits(patched, first):
    for seed in range(first, first + 300):
        World(seed, zombies=seed % 3 == 0).run()


@pytest.mark.slow
@pytest.mark.parametrize("first", [40_000, 50_000])
def test_whoever_comes_between_evolutions_nothing_is_lost(patched, first):
    for seed in range(first, first + 300):
        World(seed, zombies=seed % 3 == 0, evolves=True).run()


class Play(World):
    """A schedule by hand."""

    def __init__(self) -> None:
        self.schedule = Schedule(0)
        self.random = self.schedule.random
        self.backend = Memory(retains=True, schedule=self.schedule, spurious=[0])
        self.opened = {}
        self.until = self.schedule.until
        self.seen: list[set[Token]] = []

    def appends(self, name, writer, number, starts, finest_only=False):
        tokens = {(f"{writer}.{number}", at) for at in starts}
        self.schedule.add(name, lambda: self.append(name, writer, number, tokens, finest_only))

    def replaces(self, name, low, high, starts):
        self.schedule.add(name, lambda: self.replace_one(name, low, high, {(name, at) for at in starts}))

    def catches_up(self, name):
        self.schedule.add(name, lambda: catching_up.catch_up(self.backend, Description()))

    def compacts(self, name):
        self.schedule.add(name, lambda: compaction.merge_parts(self.backend, Description(), 2**62))

    def expires(self, name, now):
        def work():
            self.backend.kind[name] = ("expire", None)
            retention.expire(self.backend, Description(), now * SECOND)

        self.schedule.add(name, work)

    def reads(self, name, at):
        self.schedule.add(name, lambda: self.seen.append(set(self.read(at, *EVERY))))


def played(script):
    """Run a script: a list of what to add, and of (who, before what it stops)."""
    with Patches():
        play = Play()
        script(play)
        for actor in play.schedule.actors:
            play.until(actor.name)
        play.run()
        return play


def test_two_that_catch_up_at_once_take_a_commit_over_once():
    def script(play):
        play.appends("first", "w", 1, [0], finest_only=True)
        play.until("first")
        play.catches_up("one")
        play.until("one", "commit 4s")
        play.appends("second", "w", 2, [1], finest_only=True)
        play.until("second")
        play.catches_up("two")
        play.until("two", "commit 4s")
        play.until("one", "commit 2s")
        play.until("two")

    played(script)


def test_a_writer_that_was_thought_dead_is_not_passed_over():
    def script(play):
        play.appends("new", "w", 2, [0])
        play.until("new", "commit 1s")
        play.appends("old", "w", 1, [0])
        play.until("old", "commit 2s")  # and stops
        play.until("new")

    played(script)


def test_a_commit_between_levels_is_replaced_in_all_of_them():
    def script(play):
        play.appends("append", "w", 1, [0, 1])
        play.until("append", "commit 2s")
        play.replaces("replace", 0, 2, [0])
        play.until("replace")
        play.until("append")

    played(script)


def test_a_commit_to_a_range_that_is_being_replaced_counts_once():
    def script(play):
        play.replaces("replace", 0, 4, [0])
        play.until("replace", "commit 1s")
        play.until("replace", "view 2s")  # which has looked at 1s
        play.appends("append", "w", 1, [3])
        play.until("append", "commit 4s")
        play.until("replace", "commit 4s")
        play.until("append")
        play.until("replace")

    played(script)


def test_of_two_replacements_that_overlap_the_later_one_stands():
    def script(play):
        play.replaces("one", 0, 2, [1])
        play.replaces("two", 1, 3, [1])
        play.until("one", "commit 1s")
        play.until("two", "commit 1s")
        play.until("one")

    play = played(script)
    assert set(play.read(0, *EVERY)) == {("two", 1)}


@pytest.mark.parametrize(("at", "low", "stop"), [("1s", 1, "commit 1s"), ("2s", 3, "commit 2s")])
def test_nothing_expires_that_a_replacement_is_about_to_need(at, low, stop):
    def script(play):
        play.appends("append", "w", 1, [0, 5])
        play.until("append")
        play.expires("expire", 7)
        play.until("expire", f"commit {at} +[] -[(")
        play.replaces("replace", low, low + 1, [low])
        play.until("replace", "view 4s")
        play.until("replace", "commit 1s")
        play.until("replace", "view 1s")
        play.until("expire")

    played(script)


def test_nothing_expires_that_a_replacement_is_not_done_with():
    def script(play):
        play.appends("append", "w", 1, [0, 5])
        play.until("append")
        play.replaces("replace", 1, 2, [1])
        play.until("replace", "commit 1s")
        play.expires("expire", 7)
        play.until("expire")

    played(script)


def test_a_reader_sees_a_commit_wholly_where_a_range_is_being_replaced():
    def script(play):
        play.replaces("replace", 4, 5, [4])
        play.until("replace", "commit 1s")
        play.until("replace", "view 1s")
        play.reads("reader", 2)
        play.until("reader", "view 2s")
        play.appends("append", "w", 1, [3, 6])
        play.until("append", "commit 4s")
        play.until("reader")

    played(script)


def explore(seconds: float, seed: int, **options: bool) -> tuple[int, dict[int, str]]:
    begun, found, runs = time.monotonic(), {}, 0
    with Patches():
        while time.monotonic() - begun < seconds:
            try:
                World(seed, **options).run()
            except AssertionError as failure:
                found[seed] = str(failure)
            seed, runs = seed + 1, runs + 1
    return runs, found


if __name__ == "__main__":
    flags = {name: True for name in sys.argv[3:] if name in ("zombies", "evolves")}
    flags |= {name[2:]: False for name in sys.argv[3:] if name.startswith("no")}
    count, failures = explore(float(sys.argv[1]), int(sys.argv[2]), **flags)
    print(f"{count} schedules, {len(failures)} failures")
    kinds = Counter(re.sub(r"[^a-z ]+", "", text.splitlines()[0].split(": ", 1)[1][:90]) for text in failures.values())
    for kind, often in kinds.most_common(12):
        print(f"{often:5} {kind}")
    if failures:
        shortest = min(failures, key=lambda seed: len(failures[seed]))
        print("seeds", sorted(failures)[:20], "\nshortest", shortest)
        print(failures[shortest])
