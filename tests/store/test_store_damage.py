"""Bad input to a store in a folder: one clear message, no lost or partial data, and no wrong result."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

import aggr
from aggr.arrow.bit_equality import digest
from tests.bad_inputs.check import ACCIDENTS
from tests.crash_processes import BEGIN, FRAME, rows
from tests.fuzzing import inputs
from tiltframe import FrameStore, StoreError, TiltFrame, rollup
from tiltframe.store.backends import Transaction
from tiltframe.store.backends.delta.log import one_line_message

pytestmark = [pytest.mark.store, pytest.mark.filterwarnings("ignore::tiltframe.store.Expired")]

LEVELS = ("10s", "1m", "10m")
PART = (BEGIN + 60_000, BEGIN + 240_000)
ROOT = str(Path(__file__).parents[2])


def make_store(path: Path, commits: int = 3) -> FrameStore:
    store = FrameStore(path, FRAME)
    for number in range(commits):
        store.append(rollup(rows("w", number), FRAME), "w", number)
    return store


def answers(path) -> list[str]:
    """Everything that can be asked, as bits; opened again."""
    store, results = FrameStore(path), []
    for level in LEVELS:
        for within in (None, PART):
            result = store.query(level, within=within)
            results += [digest(result.column(name)) for name in result.column_names if name != "partial"]
    return results


def files(path: Path, kind: str) -> list[Path]:
    return sorted(path.rglob(f"*.{kind}"))


def one_sentence(error: BaseException) -> None:
    text = str(error)
    assert text
    assert ACCIDENTS.search(text) is None, text
    assert len(text) <= 300, text


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("damage", ["half", "empty", "missing", "zeros", "garbage"])
def test_a_damaged_file_is_noticed(tmp_path, level, damage, compacted):
    store = make_store(tmp_path / "s")
    if compacted:
        store.compact()
        shutil.rmtree(tmp_path / "s" / "gone", ignore_errors=True)
    file = tmp_path / "s" / "tiltframe" / store.backend.snapshot().of(level)[0].name
    content = file.read_bytes()
    before = answers(tmp_path / "s")
    if damage == "missing":
        file.unlink()
    else:
        middle = len(content) // 2
        file.write_bytes(
            {
                "half": content[:middle],
                "empty": b"",
                "zeros": bytes(len(content)),
                "garbage": b"PAR1" + content[4:middle],
            }[damage]
        )
    with pytest.raises(StoreError, match=r"damaged|cannot be read") as caught:
        FrameStore(tmp_path / "s").query(level)
    one_sentence(caught.value)
    file.write_bytes(content)
    assert answers(tmp_path / "s") == before


def test_a_file_that_changes_while_it_is_open_is_opened_anew(tmp_path):
    store = make_store(tmp_path / "s")
    before = store.query("1m").to_pylist()
    contents = {file: file.read_bytes() for file in files(tmp_path / "s", "parquet") if "level=1m" in str(file)}
    for change in (lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:], lambda data: None):
        for file, data in contents.items():
            file.unlink()
            if (changed := change(data)) is not None:
                file.write_bytes(changed)
        with pytest.raises(StoreError) as error:
            store.query("1m")
        one_sentence(error.value)
        for file, data in contents.items():
            file.write_bytes(data)
        assert store.query("1m").to_pylist() == before


@pytest.mark.long
@pytest.mark.slow
def test_flipped_bits_of_files_never_give_a_wrong_answer(tmp_path):
    store, chance = make_store(tmp_path / "s"), random.Random(int(os.environ.get("TILTFRAME_SEED", "3")))
    store.compact()
    before, noticed, wrong = answers(tmp_path / "s"), 0, []
    data_files = [tmp_path / "s" / "tiltframe" / part.name for part in store.backend.snapshot().parts]
    for _ in inputs("bits of data files", 100):
        file = chance.choice(data_files)
        content = file.read_bytes()
        at, bit = chance.randrange(len(content)), 1 << chance.randrange(8)
        file.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
        try:
            if answers(tmp_path / "s") != before:
                wrong.append((file.name, at, len(content), bit))
        except StoreError as error:
            one_sentence(error)
            noticed += 1
        file.write_bytes(content)
    print(f"\nflips of data files: {noticed} noticed, {len(wrong)} wrong: {wrong}")
    assert not wrong
    assert answers(tmp_path / "s") == before


def test_coarser_levels_are_derived_anew(tmp_path):
    """Whatever they hold: here nothing any more, as if a commit of another tool had removed it."""
    store = make_store(tmp_path / "s")
    store.compact()
    before = answers(tmp_path / "s")
    snapshot = store.backend.snapshot()
    transaction = Transaction(snapshot)
    transaction.removes([*snapshot.of("1m"), *snapshot.of("10m")])
    store.backend.commit(transaction)
    assert len(store.verify().problems) == 1
    FrameStore(tmp_path / "s").rebuild()
    assert answers(tmp_path / "s") == before


@pytest.mark.parametrize("damage", ["half", "empty", "missing", "garbage", "no JSON", "all missing"])
@pytest.mark.parametrize("which", [0, 2, -1])
def test_a_damaged_log_is_noticed(tmp_path, damage, which):
    make_store(tmp_path / "s")
    before = answers(tmp_path / "s")
    entries = files(tmp_path / "s" / "tiltframe" / "_delta_log", "json")
    entry = entries[which]
    contents = {file: file.read_bytes() for file in entries}
    if damage == "all missing":
        for file in entries:
            file.unlink()
    elif damage == "missing":
        entry.unlink()
    else:
        text = contents[entry]
        damaged = {
            "half": text[: len(text) // 2],
            "empty": b"",
            "garbage": b"\xff\xfe" + text[2:],
            "no JSON": b"[1,2}\n",
        }
        entry.write_bytes(damaged[damage])
    with pytest.raises(StoreError) as caught:
        answers(tmp_path / "s")
    one_sentence(caught.value)
    for file, text in contents.items():
        file.write_bytes(text)
    assert answers(tmp_path / "s") == before


@pytest.mark.slow
def test_flipped_bits_of_the_log_are_noticed(tmp_path):
    make_store(tmp_path / "s")
    before, chance = answers(tmp_path / "s"), random.Random(4)
    entries = files(tmp_path / "s" / "tiltframe" / "_delta_log", "json")
    for _ in inputs("bits of logs", 100):
        file = chance.choice(entries)
        content = file.read_bytes()
        at = chance.randrange(len(content))
        file.write_bytes(content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :])
        with pytest.raises(StoreError) as caught:
            answers(tmp_path / "s")
        one_sentence(caught.value)
        file.write_bytes(content)
    assert answers(tmp_path / "s") == before


def describe(path: Path, change: Callable[[str], str | None]) -> None:
    """Change the manifest where a store of one commit has it; without a head, nobody notices that it is another."""
    file = files(path / "tiltframe" / "_delta_log", "json")[0]
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    meta = next(action["metaData"] for action in actions if "metaData" in action)
    schema = json.loads(meta["schemaString"])
    metadata = next(column["metadata"] for column in schema["fields"] if column["name"] == "level")
    text = change(metadata.pop("tiltframe"))
    metadata |= {} if text is None else {"tiltframe": text}
    meta["schemaString"] = json.dumps(schema)
    file.write_text("\n".join(json.dumps(action) for action in actions))
    (path / "tiltframe" / "_head").unlink()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"format": 99}, "newer than this release; upgrade"),
        ({"format": 2}, "has format 2, which is older than the first release"),
        ({"functions": {"count": 99, "sum": 99}}, "of a newer release; upgrade"),
        ({"format": "x"}, "damaged"),
        ({"format": None}, "damaged"),
        ({"schema": "!"}, "damaged"),
        ({"schema": "AAAA"}, "damaged"),
        ({"schema": 7}, "damaged"),
        ({"frame": {}}, "damaged"),
        ({"frame": None}, "damaged"),
        ({"functions": None}, "damaged"),
        ({"retention": 3}, "damaged"),
        ({"retention": {"10s": "soon"}}, "damaged"),
        ({"name": None}, "damaged"),
        ({"name": "../x"}, "damaged"),
    ],
)
def test_a_description_that_cannot_be_used(tmp_path, change, match):
    make_store(tmp_path / "s", 1)
    describe(tmp_path / "s", lambda text: json.dumps({**json.loads(text), **change}))
    for frame in (None, FRAME):
        with pytest.raises(StoreError, match=match) as caught:
            FrameStore(tmp_path / "s", frame)
        one_sentence(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", None])
def test_a_description_that_is_none(tmp_path, text):
    make_store(tmp_path / "s", 1)
    describe(tmp_path / "s", lambda _: text)
    with pytest.raises(StoreError, match="damaged") as caught:
        FrameStore(tmp_path / "s", FRAME)
    one_sentence(caught.value)


def run(script: str, *arguments: str) -> str:
    """Run a script in a process of its own; give what it printed."""
    begin = f"import sys; sys.path.insert(0, {ROOT!r})\nfrom tests.store.test_store_damage import *\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


TRY = """
def attempt(work):
    try:
        print("done", work())
    except (StoreError, ValueError) as error:
        one_sentence(error)
        print("refused:", error)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as another user")
@pytest.mark.long
def test_no_permission():
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to other users
        os.chmod(folder, 0o755)
        check_permissions(Path(folder))


def check_permissions(folder: Path) -> None:
    path = folder / "s"
    make_store(path)
    before = answers(path)
    script = TRY + (
        "warm = rollup(rows('w', 4), FRAME)\n"
        "make_store(Path(sys.argv[2]), 1).compact()  # loads what is loaded late\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "path = sys.argv[1]\n"
        "attempt(lambda: len(answers(path)))\n"
        "attempt(lambda: FrameStore(path).append(warm, 'w', 4))\n"
        "attempt(lambda: FrameStore(path).compact(now := '2100-01-01'))\n"
        "attempt(lambda: FrameStore(path).replace(warm, (BEGIN, BEGIN + 600_000)))\n"
        "attempt(lambda: FrameStore(path + '/new', FRAME).append(warm, 'w', 4))\n"
        "attempt(lambda: FrameStore(path, retention={'10s': '1d'}))\n"
    )
    output_lines = run(script, str(path), str(folder / "warm0")).splitlines()
    assert output_lines[0].startswith("done")
    assert [line.split(":")[0] for line in output_lines[1:]] == ["refused"] * 5, output_lines
    assert all("ermission denied" in line or "not empty" in line for line in output_lines[1:]), output_lines
    assert answers(path) == before
    os.chmod(path / "tiltframe" / "_delta_log", 0o700)
    output_lines = run(script, str(path), str(folder / "warm1")).splitlines()
    assert output_lines[0].startswith("refused"), output_lines
    os.chmod(path, 0o700)
    output_lines = run(script, str(path), str(folder / "warm2")).splitlines()
    assert all(line.startswith("refused") and "ermission denied" in line for line in output_lines), output_lines
    assert answers(path) == before


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 100, 1500, 2500, 5000])
@pytest.mark.long
def test_no_space_left(tmp_path, limit):
    """A limit of the size of files stands for a full disk: writes fail in the middle."""
    path = tmp_path / "s"
    make_store(path)
    before = answers(path)
    script = TRY + (
        "import resource, signal\n"
        "warm = rollup(rows('w', 3), FRAME)\n"
        "path, limit = sys.argv[1], int(sys.argv[2])\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))\n"
        "attempt(lambda: FrameStore(path).append(warm, 'w', 3))\n"
        "attempt(lambda: FrameStore(path).compact())\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
    )
    output_lines = run(script, str(path), str(limit)).splitlines()
    assert len(output_lines) == 2
    store = FrameStore(path)
    last_commit = store.last_commit("w")
    assert last_commit in (2, 3)
    assert last_commit == 3 or output_lines[0].startswith("refused")
    if last_commit == 2:
        assert answers(path) == before
    assert store.append(rollup(rows("w", 3), FRAME), "w", 3) == (last_commit == 2)
    store.compact()
    complete = make_store(tmp_path / "whole", 4)
    assert answers(path) == answers(complete.uri)


def test_what_is_no_store(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thing").write_text("x")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "tiltframe.json").write_text("{}")
    (tmp_path / "delta" / "tiltframe").mkdir(parents=True)
    (tmp_path / "delta" / "tiltframe" / "x").write_text("x")
    (tmp_path / "tablefile").mkdir()
    (tmp_path / "tablefile" / "tiltframe").write_text("x")
    states = rollup(rows("w", 0), FRAME)
    for name in ("file", "other", "old", "file/below", "tablefile"):
        with pytest.raises((StoreError, ValueError)) as caught:
            FrameStore(tmp_path / name, FRAME).append(states, "w", 0)
        one_sentence(caught.value)
        assert not list(tmp_path.rglob("*.parquet"))
    for name in ("none", "delta"):
        with pytest.raises(StoreError, match="there is no store"):
            FrameStore(tmp_path / name)
    for uri in ("", " ", "a\0b"):
        with pytest.raises(ValueError, match="the location of a store must be a folder"):
            FrameStore(uri, FRAME)
    for name in ("", "a-b", "a/b", "../x", "a b", "é", "1a", "a" * 32, "a;drop", 7):
        with pytest.raises(ValueError, match="the name of a store must begin with a letter"):
            FrameStore(tmp_path / "n", FRAME, name=name)
    assert not (tmp_path / "n").exists()


UGLY = [
    *(
        "'",
        '"',
        ";",
        "a/b",
        "../../x",
        "é\u202e\U0001f600",
        "line\nbreak",
        "\r",
        "\t",
        "%2F",
        "a%b",
        " ",
        "",
        "\\",
        "`",
    ),
    *("{}", "NaN", "a.b", "a,b", "=", "__HIVE_DEFAULT_PARTITION__", "'; drop table x; --", "\0", None),
]


def test_ugly_values_of_keys_come_back(tmp_path):
    data = pa.table({"ts": [BEGIN] * len(UGLY), "x": [1.0] * len(UGLY), "k": UGLY})
    store = FrameStore(tmp_path / "s", FRAME)
    for number in range(2):
        store.append(rollup(data, FRAME), "w", number)
    for _ in range(2):
        for level in LEVELS:
            results = FrameStore(tmp_path / "s").query(level)
            assert sorted(map(str, results.column("k").to_pylist())) == sorted(map(str, UGLY))
            assert results.column("n").to_pylist() == [2] * len(UGLY)
            for value in UGLY:
                if value:
                    quoted = value.replace("'", "''")
                    if "\0" not in value and "\\" not in value:  # as in Spark, it begins an escape
                        assert store.query(level, where=f"k = '{quoted}'").column("k").to_pylist() == [value]
        store.compact()


@pytest.mark.parametrize("name", [name for name in UGLY if name])
@pytest.mark.parametrize("what", ["key", "measure", "writer"])
@pytest.mark.long
def test_ugly_names_are_kept_or_refused_whole(tmp_path, name, what):
    """Names of keys, measures, writers: either all works, or one sentence and nothing written."""
    path = tmp_path / "s"
    key, measure = (name if what == "key" else "k"), (name if what == "measure" else "n")
    writer = name if what == "writer" else "w"
    data = pa.table({"ts": [BEGIN, BEGIN + 20_000], "x": [1.5, 2.5], key: ["a", "b"]})
    try:
        frame = TiltFrame(["10s", "1m"], "ts", {measure: aggr.sum("x"), "p": aggr.dds("x", [0.5])}, [key])
        states = rollup(data, frame)
        store = FrameStore(path, frame)
        assert store.append(states, writer, 0)
    except (ValueError, StoreError) as error:
        one_sentence(error)
        assert not list(tmp_path.rglob("*.parquet"))
        return
    assert not FrameStore(path).append(states, writer, 0)
    assert store.append(states, writer, 1)
    for _ in range(2):
        results = FrameStore(path).query("1m")
        assert results.column(measure).to_pylist() == [3.0, 5.0]
        assert results.column(key).to_pylist() == ["a", "b"]
        assert store.query("10s", within=(BEGIN + 10_000, BEGIN + 30_000)).column(measure).to_pylist() == [5.0]
        store.compact()
    store.replace(rollup(data.slice(0, 1), frame), (BEGIN, BEGIN + 10_000))
    assert FrameStore(path).query("1m").column(measure).to_pylist() == [1.5, 5.0]


@pytest.mark.parametrize("name", ["_record", "_RECORDED", "Bucket", "window_start"])
def test_names_that_a_store_needs_itself_are_refused_before_anything_is_written(tmp_path, name):
    def attempt():
        frame = TiltFrame(["10s", "1m"], "ts", {"n": aggr.count()}, ["k", name])
        data = pa.table({"ts": [BEGIN], "k": ["a"], name: ["b"]})
        FrameStore(tmp_path / "s", frame).append(rollup(data, frame), "w", 0)

    with pytest.raises(ValueError, match=re.escape(name)):
        attempt()
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("writer", "commit"),
    [
        ("", 0),
        (None, 0),
        (7, 0),
        ("tiltframe:expired", 0),
        ("w", -1),
        ("w", 2**63),
        ("w", 1.0),
        ("w", True),
        ("w", None),
    ],
)
def test_numbers_that_are_none_are_refused(tmp_path, writer, commit):
    with pytest.raises(ValueError, match=r"the name of a writer|a commit number, which grows") as caught:
        FrameStore(tmp_path / "s", FRAME).append(rollup(rows("w", 0), FRAME), writer, commit)
    one_sentence(caught.value)
    assert not (tmp_path / "s").exists()


def test_the_greatest_number_is_one(tmp_path):
    store = FrameStore(tmp_path / "s", FRAME)
    assert store.append(rollup(rows("w", 0), FRAME), "w", 2**63 - 1)
    assert not FrameStore(tmp_path / "s").append(rollup(rows("w", 0), FRAME), "w", 2**63 - 1)
    store.compact()
    assert sum(store.query("10m").column("n").to_pylist()) == 4


def test_an_empty_commit_counts_as_committed(tmp_path):
    store = FrameStore(tmp_path / "s", FRAME)
    nothing = rollup(rows("w", 0).slice(0, 0), FRAME)
    assert store.append(nothing, "w", 0)
    assert not FrameStore(tmp_path / "s").append(nothing, "w", 0)
    assert store.query("1m").num_rows == 0
    assert store.append(rollup(rows("w", 1), FRAME), "w", 1)
    assert sum(store.query("10m").column("n").to_pylist()) == 4


@pytest.mark.long
@pytest.mark.slow
def test_more_commits_than_a_checkpoint_of_delta_takes(tmp_path):
    """Delta sums its log up every hundred commits; numbers of writers outlive that."""
    frame = TiltFrame(["10s"], "ts", {"n": aggr.count()})
    store = FrameStore(tmp_path / "s", frame)
    states = rollup(rows("w", 0), frame)
    assert store.append(states, "first", 7)
    for number in range(105):
        assert store.append(states, "w", number)
    assert files(tmp_path / "s" / "tiltframe" / "_delta_log", "parquet")
    again = FrameStore(tmp_path / "s")
    assert not again.append(states, "first", 7)
    assert not again.append(states, "w", 104)
    assert sum(again.query("10s").column("n").to_pylist()) == 106 * 4


def test_a_place_that_refuses_is_said_in_its_own_words():
    """As S3 does without credentials, though not in its log."""
    assert one_line_message(DeltaError("Kernel error -> Operation not supported: no credentials")) == (
        "Operation not supported: no credentials"
    )
