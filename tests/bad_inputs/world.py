"""The files and folders that bad inputs are tried on: a store, files of events, and folders without a store."""

from __future__ import annotations

import json
import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import aggr
from tiltframe import FrameStore, TiltFrame, rollup

LINES = [
    {"ts": "2024-05-01T10:00:00Z", "host": "a", "bytes": 10, "ms": 1.5},
    {"ts": "2024-05-01T10:00:05Z", "host": "b", "bytes": 20, "ms": 2.5},
    {"ts": "2024-05-01T11:01:05Z", "host": "b", "bytes": None, "ms": 3.5},
]
ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".csv.gz", ".jsonl.gz", ".csv.zst", ".csv.bz2")
KINDS = {"nothing": b"", "noise": random.Random(1).randbytes(3000), "words": b"no data\n", "zeros": bytes(100)}
BAD_LINES = {  # what stands where a line of JSON should
    "a number": "5", "a text": '"x"', "a list": "[]", "null": "null", "true": "true", "half": '{"ts":', "two in a line": "{} {}",
    "words": "no JSON", "a time of words": '{"ts": "soon"}', "a time of null": '{"ts": null}', "a time of a list": '{"ts": []}',
    "a time of a struct": '{"ts": {}}', "a time of truth": '{"ts": true}', "no time": '{"host": "a"}', "a wide brace": "｛｝",
}  # fmt: skip
FRAME = TiltFrame(
    ["10s", "1m", "1h"],
    "ts",
    {"requests": aggr.count(), "bytes": aggr.sum("bytes"), "latency": aggr.dds("ms", quantiles=[0.5])},
    ["host"],
)
ROWS = pa.Table.from_pylist(LINES)
STATES = rollup(ROWS, FRAME)


@dataclass(frozen=True)
class World:
    """A folder of all that; ``restore`` undoes what a call has written."""

    root: Path
    backup: Path

    frame = FRAME
    rows = ROWS
    states = STATES

    @property
    def path(self) -> str:
        """The folder of the store."""
        return str(self.root / "store")

    @property
    def new(self) -> str:
        """A folder that is not there."""
        return str(self.root / "new")

    @property
    def store(self) -> FrameStore:
        """The store, opened again."""
        return FrameStore(self.path)

    @property
    def fresh(self) -> FrameStore:
        """A store that holds nothing yet."""
        return FrameStore(self.new, FRAME)

    def restore(self) -> None:
        """Put everything back as it was."""
        shutil.rmtree(self.root)
        shutil.copytree(self.backup, self.root, symlinks=True)
        _special(self.root)


def make_world(folder: Path) -> World:
    """Make it."""
    backup = folder / "backup"
    backup.mkdir()
    store = FrameStore(backup / "store", FRAME, retention={"10s": "30d"})
    store.append(STATES, "world", 0)
    store.append(STATES, "world", 1)
    lines = "".join(json.dumps(line) + "\n" for line in LINES)
    (backup / "events.jsonl").write_text(lines)
    pq.write_table(ROWS, backup / "events.parquet")
    (backup / "notes.txt").write_text("no data\n")
    (backup / "empty.csv").write_text("")
    (backup / "broken.parquet").write_bytes(b"PAR1 no PAR1")
    (backup / "broken.jsonl").write_text('{"ts": 1, "host":\n')
    (backup / "list.jsonl").write_text("[1, 2]\n")
    (backup / "latin.csv").write_bytes("ts,host\n2024-05-01,é\n".encode("latin-1"))
    (backup / "times.csv").write_text("ts,host,bytes,ms\nyesterday,a,1,1.5\n")
    (backup / "words.csv").write_text("ts,host,bytes,ms\n2024-05-01,a,many,1.5\n")
    (backup / "arriving").mkdir()
    (backup / "arriving" / "events.jsonl").write_text(lines)
    (backup / "kinds").mkdir()
    for name, data in KINDS.items():
        for ending in ENDINGS:
            (backup / "kinds" / f"{name}{ending}").write_bytes(data)
    (backup / "lines").mkdir()
    for number, line in enumerate(BAD_LINES.values()):
        (backup / "lines" / f"{number}.jsonl").write_text(f"{lines}{line}\n")
    (backup / "things").mkdir()
    (backup / "things" / "other.txt").write_text("something\n")
    (backup / "nothing").mkdir()
    (backup / "odd.jsonl").mkdir()
    world = World(folder / "world", backup)
    shutil.copytree(backup, world.root)
    _special(world.root)
    return world


def _special(root: Path) -> None:
    os.symlink(root / "gone.csv", root / "dangling.csv")
    os.symlink(root / "round.csv", root / "round.csv")
    os.mkfifo(root / "pipe.csv")
