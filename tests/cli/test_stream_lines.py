"""Lines on the standard input of `tiltframe stream`: their length, their encoding, and one object in each."""

import json

import pytest

OPTIONS = ["stream", "--time", "ts", "--key", "k", "--measure", "n=count()", "--levels", "1m"]
TIME = "2024-05-01T10:00:00Z"


def line(key: str) -> str:
    return json.dumps({"ts": TIME, "k": key}, ensure_ascii=False) + "\n"


def counts(out: str) -> dict[str, int]:
    return {row["k"]: row["n"] for row in map(json.loads, out.splitlines())}


@pytest.mark.slow
@pytest.mark.parametrize("length", [(1 << 20) - 50, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_a_line_may_be_longer_than_a_batch(length, forked):
    text = line("a") + line("x" * length) + line("a") + line("b") * 3
    status, out, err = forked.run(OPTIONS, text=text)
    assert status == 0, err
    assert counts(out) == {"a": 2, "x" * length: 1, "b": 3}


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252"])
def test_lines_are_read_in_their_encoding(encoding, forked):
    text = line("größe") + line("a") + line("größe")
    status, out, err = forked.run([*OPTIONS, "--encoding", encoding], text=text.encode(encoding))
    assert status == 0, err
    assert counts(out) == {"größe": 2, "a": 1}


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_encodings_with_longer_line_ends_are_refused(encoding, forked):
    status, _, err = forked.run([*OPTIONS, "--encoding", encoding], text=line("a").encode(encoding))
    assert status == 2
    assert "convert it, as by iconv" in err


@pytest.mark.slow
@pytest.mark.parametrize("column", ["k", "other"])
def test_bytes_that_are_no_text_are_refused(column, forked, tmp_path):
    bad_line = line("a").encode().replace(b'"k"', b'"' + column.encode() + b'"').replace(b'"a"', b'"x\xff"')
    text = line("a").encode() + bad_line + line("a").encode()
    status, _, err = forked.run([*OPTIONS, "--store", tmp_path / "store"], text=text)
    assert status == 2
    assert "line 2 of standard input: standard input is not in utf-8: there is the byte 0xff" in err
    bad = tmp_path / "bad.jsonl"
    status, out, err = forked.run([*OPTIONS, "--bad-rows", bad], text=text)
    assert status == 0, err
    assert counts(out) == {"a": 2}
    assert json.loads(bad.read_text())["line"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("bad_line", [line("a").strip() + line("b"), '{"ts":\n' + f'"{TIME}"}}\n'], ids=["two", "half"])
@pytest.mark.parametrize("condition", [[], ["--where", "k <> 'z'"]], ids=["all rows", "with a condition"])
@pytest.mark.parametrize("other_bad_line", ["", "oops\n"], ids=["alone", "with another"])
def test_a_line_is_one_object(bad_line, condition, other_bad_line, forked):
    text = line("c") + bad_line + line("c") + other_bad_line
    status, _, err = forked.run([*OPTIONS, *condition], text=text)
    assert status == 2
    assert "line 2 of standard input" in err
    status, out, err = forked.run([*OPTIONS, *condition, "--bad-rows", "skip"], text=text)
    assert status == 0, err
    assert counts(out) == {"c": 2}
