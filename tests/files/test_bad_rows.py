"""Bad rows are skipped and written to a file with their line and reason; otherwise, rows before the first bad row are
saved.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.command_line import call
from tiltframe import FrameStore
from tiltframe.cli import main
from tiltframe.files import bad_rows
from tiltframe.files.bad_rows import Line, before_first_bad

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
KILLS = int(os.environ.get("KILLS", "3"))
FRAME = ["--time", "ts", "--key", "host", "--measure", "n=count()", "--measure", "total=sum(ms)", "--levels", "10s,1m"]
AFTER = '{"ts": "2024-05-02T00:00:00Z", "host": "a", "ms": 0}'
BAD_JSON = [
    "nonsense",
    '{"ts": "2024-05-01T10:00:00Z", "host": "a", "ms": ',
    '{"ts": null, "host": "a", "ms": 1}',
    '{"host": "a", "ms": 1}',
    '{"ts": "yesterday", "host": "a", "ms": 1}',
    '{"ts": "2024-05-01T10:00:00Z", "host": "a", "ms": "x"}',
    '{"ts": "2024-05-01T10:00:00Z", "host": ["a"], "ms": 1}',
    '["2024-05-01T10:00:00Z"]',
    "17",
]
BAD_CSV = ["yesterday,a,1", ",a,1", "2024-05-01T10:00:00Z,a,x", "2024-05-01T10:00:00Z,a", "2024-05-01T10:00:00Z,a,1,2"]


def drawn(draws: random.Random, rows: int, form: str) -> tuple[list[str], dict[int, str], int]:
    """Draw lines of which each tenth is bad: the lines, the bad ones by number, and the sum of the good ones."""
    lines, bad, total = [], {}, 0
    first = 2 if form == "csv" else 1
    for number in range(first, rows + first):
        at = dt.datetime(2024, 5, 1, 10) + dt.timedelta(seconds=(number - first) // 10)
        if number % 10 == 3:
            line = bad[number] = draws.choice(BAD_CSV if form == "csv" else BAD_JSON)
        else:
            ms, host = draws.randrange(1000), draws.choice("abc")
            total += ms
            row = {"ts": f"{at.isoformat()}Z", "host": host, "ms": ms}
            line = f"{row['ts']},{host},{ms}" if form == "csv" else json.dumps(row)
        lines.append(line)
    return lines, bad, total


def stream(text: str, *options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tiltframe.cli import main; main()", "stream", *options]
    return subprocess.run(command, input=text, capture_output=True, text=True, cwd=cwd, check=False)


def counted(out: str) -> tuple[int, int]:
    rows = [json.loads(line) for line in out.splitlines()]
    minutes = [row for row in rows if row["level"] == "1m"]
    return sum(row["n"] for row in minutes), sum(row["total"] or 0 for row in minutes)


@pytest.mark.slow
@pytest.mark.long
def test_a_stream_of_which_each_tenth_line_is_bad_counts_all_others(tmp_path):
    lines, bad, total = drawn(random.Random(SEED), 10_000, "json")
    done = stream("\n".join(lines) + "\n", *FRAME, "--bad-rows", "bad.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert counted(done.stdout) == (10_000 - len(bad), total), SEED
    assert "1,000 bad rows were left out, and kept in bad.jsonl" in done.stderr
    bad_rows = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert {row["line"]: row["text"] for row in bad_rows} == bad, SEED
    assert len(bad_rows) == len(bad)
    assert all(row["source"] == "standard input" and 0 < len(row["reason"]) <= 300 for row in bad_rows)
    assert not any("/" in row["reason"].split()[0] for row in bad_rows)


@pytest.mark.slow
@pytest.mark.store
@pytest.mark.long
def test_it_is_the_same_wherever_it_is_killed(tmp_path):
    draws = random.Random(SEED)
    lines, bad, total = drawn(draws, 10_000, "json")
    (tmp_path / "in").mkdir()
    lines += [AFTER]  # closes all windows before
    for number in range(41):
        part = lines[number * 250 : number * 250 + 250]
        (tmp_path / "in" / f"{number:02}.jsonl").write_text("\n".join(part) + "\n")
    options = ["stream", "in", *FRAME, "--store", "st", "--state", "s", "--bad-rows", "bad.jsonl", "--once"]
    command = [sys.executable, "-c", "from tiltframe.cli import main; main()", *options]
    kills = 0
    for _ in range(3 * KILLS):
        with (tmp_path / "said").open("w") as output:
            process = subprocess.Popen(command, cwd=tmp_path, stderr=output, stdout=output)
        if kills < KILLS:
            known_bytes = (tmp_path / "bad.jsonl").stat().st_size if (tmp_path / "bad.jsonl").exists() else 0
            while process.poll() is None:  # until it has read on a little
                now = (tmp_path / "bad.jsonl").stat().st_size if (tmp_path / "bad.jsonl").exists() else 0
                if now > known_bytes + 2000 * draws.random():
                    process.kill()
                time.sleep(0.001)
            kills += process.wait() == -signal.SIGKILL
        if process.wait() == 0:
            break
        assert process.returncode == -signal.SIGKILL, (tmp_path / "said").read_text()
    assert process.returncode == 0
    assert kills >= 1  # all files may have been read before the last one
    results = FrameStore(str(tmp_path / "st")).query(within="2024-05-01", keys=[]).to_pylist()
    assert [(row["n"], row["total"]) for row in results] == [(10_000 - len(bad), total)], SEED
    bad_rows = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    numbers = sorted(int(Path(row["source"]).stem) * 250 + row["line"] for row in bad_rows)
    assert numbers == sorted(bad), SEED


@pytest.mark.long
@pytest.mark.slow
def test_what_came_before_a_bad_line_is_saved(tmp_path):
    lines, bad, total = drawn(random.Random(SEED), 100, "json")
    done = stream("\n".join(lines) + "\n", *FRAME, "--state", "s", cwd=tmp_path)
    assert done.returncode == 2
    assert "line 3 of standard input: " in done.stderr
    assert "saved in s" in done.stderr
    remaining = [line for number, line in enumerate(lines, 1) if number > 3 and number not in bad]
    done = stream("\n".join([*remaining, AFTER]) + "\n", *FRAME, "--state", "s", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert counted(done.stdout) == (100 - len(bad), total), SEED


@pytest.mark.parametrize("bad", [0, 1, 36, 99])
def test_the_first_bad_line_is_found_in_few_looks(bad):
    looked = []

    def read(lines_read):
        looked.append(lines_read)
        if any(line.number >= bad for line in lines_read):
            raise ValueError("bad")

    assert before_first_bad([Line(number, b"") for number in range(100)], read) == bad
    assert len(looked) <= 7  # the logarithm of 100


@pytest.mark.store
@pytest.mark.long
def test_files_before_a_bad_one_are_in_the_state_and_the_bad_one_is_not(tmp_path):
    (tmp_path / "in").mkdir()
    good = '{"ts": "2024-05-01T10:00:00Z", "host": "a", "ms": 1}\n'
    (tmp_path / "in" / "1.jsonl").write_text(good * 3)
    (tmp_path / "in" / "2.jsonl").write_text(good * 5 + "nonsense\n")
    os.utime(tmp_path / "in" / "1.jsonl", (1, 1))
    options = ["in", *FRAME, "--store", "st", "--state", "s", "--once"]
    assert stream("", *options, cwd=tmp_path).returncode == 2
    (tmp_path / "in" / "2.jsonl").write_text(good * 5)
    later = '{"ts": "2024-05-01T11:00:00Z", "host": "a", "ms": 1}\n'
    (tmp_path / "in" / "3.jsonl").write_text(later)
    done = stream("", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [row["n"] for row in FrameStore(str(tmp_path / "st")).query("1m").to_pylist()] == [8]


@pytest.mark.store
@pytest.mark.parametrize("form", ["csv", "jsonl", "csv.gz"])
@pytest.mark.long
def test_rollup_leaves_bad_rows_out_and_keeps_them_once(form, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines, bad, total = drawn(random.Random(SEED), 2000, form[:3] if form != "jsonl" else "json")
    text = "\n".join((["ts,host,ms"] if "csv" in form else []) + lines) + "\n"
    if form.endswith(".gz"):
        import gzip

        Path(f"rows.{form}").write_bytes(gzip.compress(text.encode()))
    else:
        Path(f"rows.{form}").write_text(text)
    arguments = ["rollup", f"rows.{form}", *FRAME, "--bad-rows", "bad.jsonl"]
    main([*arguments, "--store", "st"])
    assert f"{len(bad)} bad rows were left out, and kept in bad.jsonl" in capsys.readouterr().err
    main([*arguments, "--store", "other"])
    for store in ("st", "other"):
        results = FrameStore(store).query(keys=[]).to_pylist()
        assert [(row["n"], row["total"]) for row in results] == [(2000 - len(bad), total)], SEED
    bad_rows = [json.loads(line) for line in Path("bad.jsonl").read_text().splitlines()]
    assert {row["line"]: row["text"] for row in bad_rows} == bad, SEED
    assert len(bad_rows) == len(bad)


@pytest.mark.store
def test_what_begins_with_bad_rows_and_values_that_functions_refuse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["x,1", "2024-05-01,n/a", "2024-05-01,-5", *["2024-05-01,7"] * 30, '"open,1']
    Path("rows.csv").write_text("\n".join(["ts,ms", *rows]) + "\n")
    arguments = ["rollup", "rows.csv", "--time", "ts", "--measure", "p=hdr(ms)", "--levels", "1d", "--store", "st"]
    main([*arguments, "--bad-rows", "bad.jsonl"])
    assert FrameStore("st").query("1d", flat=True)["p_count"].to_pylist() == [30]
    bad_rows = [json.loads(line) for line in Path("bad.jsonl").read_text().splitlines()]
    assert sorted((row["line"], row["text"]) for row in bad_rows) == [
        (2, "x,1"),
        (3, "2024-05-01,n/a"),
        (4, "2024-05-01,-5"),
        (35, '"open,1'),
    ]
    assert not any(
        re.search(r"line [0-9]", row["reason"]) for row in bad_rows
    )  # of a piece: the file's stands next to it


@pytest.mark.store
def test_rows_of_parquet_without_a_time_are_kept_with_all_of_their_values(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bad_rows, "_BATCH_ROWS", 7)  # many pieces, of several row groups
    draws = random.Random(SEED)
    times = [None if draws.random() < 0.1 else dt.datetime(2024, 5, 1, 10, minute % 60) for minute in range(300)]
    notes = [draws.choice(["ü", 'say "x"', None]) for _ in times]
    rows = pa.table({"note": notes, "ts": pa.array(times, pa.timestamp("ms")), "ms": range(300)})
    pq.write_table(rows, "rows.parquet", row_group_size=40)
    arguments = ["rollup", "rows.parquet", "--time", "ts", "--measure", "s=sum(ms)", "--levels", "1d", "--store", "st"]
    main([*arguments, "--bad-rows", "bad.jsonl"])
    assert FrameStore("st").query("1d")["s"].to_pylist() == [sum(n for n, at in enumerate(times) if at)], SEED
    bad_rows_written = [json.loads(line) for line in Path("bad.jsonl").read_text().splitlines()]
    expected = [(n + 1, {"note": notes[n], "ts": None, "ms": n}) for n, at in enumerate(times) if at is None]
    assert [(row["line"], json.loads(row["text"])) for row in bad_rows_written] == expected, SEED


@pytest.mark.store
@pytest.mark.parametrize(
    ("name", "text"),
    [  # what the first thousand rows are is not what all are
        ("a.csv", "ts,ms\n" + "2024-05-01,1\n" * 1500 + "2024-05-01,2.5\n"),
        ("b.csv", "ts,ms,k\n" + "2024-05-01,1,7\n" * 1500 + "2024-05-01,3,A7\n"),
        ("c.jsonl", '{"ts": "2024-05-01", "ms": 1}\n' * 1500 + '{"ts": "2024-05-01 10:00:00.5", "ms": 2.5}\n'),
        ("d.csv", "\nts,ms,t\n" + '2024-05-01,1,"a\nb"\n' * 90_000 + '2024-05-01,2,"a ""b"""\n'),
    ],
)
def test_of_a_clean_file_every_row_counts_and_none_is_looked_at_alone(name, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bad_rows, "_BLOCK_BYTES", 1 << 16)
    Path(name).write_text(text)
    keys = [["--key", "k"], []][",k" not in text]
    arguments = ["rollup", name, "--time", "ts", "--measure", "s=sum(ms)", "--levels", "1d", *keys]
    main([*arguments, "--store", "plain"])
    monkeypatch.setattr(bad_rows, "separate_bad_lines", lambda *_: pytest.fail("rows are tried one by one"))
    main([*arguments, "--store", "st", "--bad-rows", "bad.jsonl"])
    assert FrameStore("st").query("1d") == FrameStore("plain").query("1d")
    assert not Path("bad.jsonl").exists()


@pytest.mark.store
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_lines_have_the_same_numbers_with_every_line_end(line_end, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bad_rows, "_BLOCK_BYTES", 64)
    lines = [
        "ts,ms",
        "2024-05-01,1",
        "soon,2",
        *["2024-05-01,4"] * 20,
        '2024-05-01,"8',
        "2024-05-01,16",
        "2024-05-01,x",
    ]
    Path("rows.csv").write_bytes(line_end.join([*lines, ""]).encode())
    arguments = ["rollup", "rows.csv", "--time", "ts", "--measure", "s=sum(ms)", "--levels", "1d", "--store", "st"]
    main([*arguments, "--bad-rows", "bad.jsonl"])
    assert FrameStore("st").query("1d")["s"].to_pylist() == [97]
    written = [json.loads(line) for line in Path("bad.jsonl").read_text().splitlines()]
    assert {row["line"]: row["text"] for row in written} == {3: "soon,2", 24: '2024-05-01,"8', 26: "2024-05-01,x"}


@pytest.mark.store
@pytest.mark.long
def test_quotes_across_pieces_and_a_stray_one_among_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draws = random.Random(SEED)
    lines, bad, total, number = ["ts,ms,note"], {}, 0, 2
    for ms in range(3000):
        note = draws.choice(["plain", 'a "b', '"two\nlines"', '"a ""quote"""', '"three\n\nlines, and a comma"'])
        wrong = draws.random() < 0.02
        line = f"2024-05-01,{ms},{note}"
        if wrong:
            line = bad[number] = draws.choice(
                ["soon,1,plain", "2024-05-01,1", '2024-05-01,1,"open', '2024-05-01,1,"a"b']
            )
        total += 0 if wrong else ms
        lines.append(line)
        number += line.count("\n") + 1
    Path("rows.csv").write_text("\n".join(lines) + "\n")
    arguments = ["rollup", "rows.csv", "--time", "ts", "--measure", "s=sum(ms)", "--measure", "n=count(note)"]
    for place, block in enumerate((1000, 7777, 1 << 23)):
        monkeypatch.setattr(bad_rows, "_BLOCK_BYTES", block)
        main([*arguments, "--levels", "1d", "--store", f"st{place}", "--bad-rows", f"{place}.jsonl"])
        bad_rows_written = [json.loads(line) for line in Path(f"{place}.jsonl").read_text().splitlines()]
        assert {row["line"]: row["text"] for row in bad_rows_written} == bad, (SEED, block)
        assert FrameStore(f"st{place}").query("1d")["s"].to_pylist() == [total], (SEED, block)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("ts,ms\n" + "no,1\n" * 20, ["--bad-rows", "skip"], "none of 20 rows can be read"),
        ("ts,ms\n2024-05-01,1\n", ["--bad-rows", "nowhere/bad"], "cannot write bad rows to 'nowhere/bad'"),
        ("ts,ms\n2024-05-01,1\n", ["--bad-rows", "."], "which is a folder"),
        ("ts,ms\n2024-05-01,1\n", ["--bad-rows", ""], "cannot write bad rows to ''"),
        ("ts,ms\n2024-05-01,1\n", ["--bad-rows", "skip", "--encoding", "utf-16"], "utf-16"),
    ],
)
def test_what_is_read_in_the_wrong_way_is_said(text, options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text(text)
    arguments = ["rollup", "rows.csv", "--time", "ts", "--measure", "s=sum(ms)", "--levels", "1d", "--store", "st"]
    with pytest.raises(SystemExit) as end:
        main([*arguments, *options])
    assert end.value.code == 2
    assert message in capsys.readouterr().err
    assert not Path("st").exists()


NOTATIONS = {
    "decimal comma": (["1,5", "2,5", "3"] * 60, 420.0, ["--decimal-comma"]),
    "decimal comma, thousands": (["1.000,5", "2.500", "3"] * 60, 60 * 3503.5, ["--decimal-comma", "--thousands", "."]),
    "thousands": (["1,000", "2,000", "3,000.5"] * 60, 60 * 6000.5, ["--thousands", ","]),
    "null": (["1.5", "-", "-", "-"] * 60, 90.0, ["--null", "-"]),
}


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("place", [0, 100])
def test_numbers_in_the_declared_notation_are_not_bad(notation, place, tmp_path, capfd):
    texts, total, options = NOTATIONS[notation]
    texts = [*texts[:place], "oops", *texts[place:]]
    file, bad, store = tmp_path / "rows.csv", tmp_path / "bad.jsonl", str(tmp_path / "store")
    file.write_text("ts;ms\n" + "".join(f"2024-05-01;{text}\n" for text in texts))
    arguments = ["rollup", str(file), "--time", "ts", "--measure", "s=sum(ms)", "--levels", "1d", "--delimiter", ";"]
    status, _, err = call(capfd, *arguments, *options, "--bad-rows", str(bad), "--store", store)
    assert status == 0, err
    assert FrameStore(store).query("1d")["s"].to_pylist() == [total]
    assert [json.loads(line)["line"] for line in bad.read_text().splitlines()] == [place + 2]


@pytest.mark.parametrize("text", [".5", "1.23", "−5", "1,5,5", "0x10", "oops", "n/a"])
def test_the_advice_for_a_number_in_another_notation_does_not_change_the_other_numbers(text, tmp_path, capfd):
    file = tmp_path / "rows.csv"
    file.write_text("ts;ms\n2024-05-01;1,5\n2024-05-01;2,5\n" + f"2024-05-01;{text}\n")
    arguments = ["--time", "ts", "--measure", "s=sum(ms)", "--levels", "1d", "--delimiter", ";", "--decimal-comma"]
    status, _, err = call(capfd, "rollup", str(file), *arguments, "--store", str(tmp_path / "store"))
    assert status == 2
    assert "correct it, or leave out the row with --bad-rows skip" in err
    assert "CAST" not in err
    assert ("--null n/a" in err) == (text == "n/a")


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\u0085", "\x1c", "\x0b", "é"])
def test_a_row_with_any_sign_is_kept_once(tmp_path, sign):
    rows = bad_rows.BadRows(tmp_path / "bad.jsonl", True)
    line = Line(1, f"a{sign}b".encode())
    for _ in range(3):
        rows.restart()
        rows.put("in.csv", line, ValueError("bad"))
    assert len((tmp_path / "bad.jsonl").read_bytes().split(b"\n")) == 2
