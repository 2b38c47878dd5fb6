"""JSON that is nested too deeply is refused before Arrow's parser, which would exhaust the stack, reads it."""

import json
import random

import pytest

from tiltframe import FrameStore
from tiltframe.files.nesting import MAX_DEPTH, DepthLimit

LINE = '{"ts":"2024-05-01T10:00:00Z","v":1}\n'


def nested(depth):
    """Return a line whose value is ``depth`` levels deep; the object of the line is one of them."""
    return '{"ts":"2024-05-01T10:00:00Z","v":1,"x":' + "[" * (depth - 1) + "]" * (depth - 1) + "}\n"


def depth_of(value):
    """Return how deeply a Python value is nested."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max(map(depth_of, parts), default=0)


def random_value(rng, depth):
    """Return a value that is ``depth`` levels deep, with texts and neighbours that contain brackets."""
    if not depth:
        return rng.choice([1, None, "[[[{{", '"]}\\', "é"])
    inner = random_value(rng, depth - 1)
    neighbours = [random_value(rng, 0) for _ in range(rng.randrange(3))]
    return [*neighbours, inner] if rng.random() < 0.5 else {"[" * rng.randrange(3): 1, "b": inner, '"{': neighbours}


@pytest.mark.parametrize("seed", range(20))
def test_the_depth_is_that_of_the_json_module(seed):
    rng = random.Random(seed)
    values = [random_value(rng, rng.choice([1, 5, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1])) for _ in range(5)]
    # more brackets than the limit, next to each other
    values.insert(rng.randrange(5), [[] for _ in range(3 * MAX_DEPTH)])
    data = b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)
    too_deep = [number for number, value in enumerate(values, 1) if depth_of(value) > MAX_DEPTH]
    limit = DepthLimit("f")
    refused_line = None
    try:
        for at in range(0, len(data), 100):
            limit.check(data[at : at + 100])
    except ValueError as error:
        refused_line = str(error).split(" has ")[0]
    assert refused_line == (f"f: line {too_deep[0]}" if too_deep else None)


OPTIONS = ["--time", "ts", "--measure", "n=count()", "--levels", "1m"]


@pytest.fixture
def run(forked, tmp_path):
    """A function that runs `rollup` or `stream` for the lines of a text."""

    def run_command(command, text, *options):
        file = tmp_path / "in" / "events.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        inputs = {
            "rollup": [file, "--store", tmp_path / "store"],
            "stream": [],
            "stream of a folder": [file.parent, "--once"],
        }[command]
        return forked.run([command.split()[0], *inputs, *OPTIONS, *options], text=text)

    return run_command


@pytest.mark.slow
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1000, 20_000])
@pytest.mark.parametrize("command", ["rollup", "stream", "stream of a folder"])
def test_a_line_that_is_nested_too_deeply_is_named(depth, command, run):
    status, _, err = run(command, LINE + nested(depth) + LINE)
    assert status == 2
    assert "line 2" in err
    assert "nested more than 200 levels deep" in err


@pytest.mark.slow
def test_an_array_that_is_nested_too_deeply_is_refused(run):
    text = "[" + ",".join([LINE, nested(20_000), LINE]) + "]"
    status, _, err = run("rollup", text)
    assert status == 2
    assert "nested more than 200 levels deep" in err


@pytest.mark.slow
@pytest.mark.parametrize("command", ["rollup", "stream", "stream of a folder"])
def test_such_a_line_can_be_left_out(command, run, tmp_path):
    bad = tmp_path / "bad.jsonl"
    status, out, err = run(command, LINE + nested(20_000) + LINE, "--bad-rows", bad)
    assert status == 0, err
    assert json.loads(bad.read_text())["line"] == 2
    if command == "rollup":
        assert FrameStore(tmp_path / "store").query("1m")["n"].to_pylist() == [2]
    else:
        assert json.loads(out)["n"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("command", ["rollup", "stream", "stream of a folder"])
def test_the_greatest_depth_is_accepted(command, run):
    assert run(command, LINE + nested(MAX_DEPTH) + LINE)[0] == 0
