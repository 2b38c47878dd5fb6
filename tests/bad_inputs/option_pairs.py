"""Pairs of options: contradicting options, repeated options that accept one value, and two wrong options."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.bad_inputs import command_others, command_rollup, command_store
from tests.bad_inputs.command_others import EVOLVE, STREAM
from tests.bad_inputs.command_rollup import GOOD
from tests.bad_inputs.command_store import EXPIRE, QUERY, STORE_ONLY
from tests.bad_inputs.commands import Line

LINES = [*command_rollup.CASES, *command_store.CASES, *command_others.CASES]
GOOD_LINES = {
    "rollup": GOOD, "stream": STREAM, "query": QUERY, "inspect": STORE_ONLY, "check": STORE_ONLY, "compact": STORE_ONLY, "expire": EXPIRE, "evolve": EVOLVE,
    "doctor": {}, "demo": {},
}  # fmt: skip


def line(command: str, more: str, *says: str) -> Line:
    """Write a good line of a command with more words, which are no good next to it."""
    return Line(f"{command} {more}", command, GOOD_LINES[command], tuple(more.split()), says)


CONTRADICTIONS = [
    line("rollup", "--input-format json", "--input-format", "standard input"),
    line("rollup", "--type host=text --text host", "host", "twice"),
    line("rollup", "--type host=int64 --text host", "host", "twice"),
    line("rollup", "--decimal-comma --thousands ,", "thousands"),
    line("rollup", "--thousands .", "thousands"),
    line("rollup", "--bad-rows {root}/nothing", "bad rows"),
    line("rollup", "--bad-rows {root}/events.parquet", "bad rows"),
    line("rollup", "--key host=upper(host) --key host", "host"),
    line("rollup", "--key requests", "requests"),
    line("rollup", "--ordered count(3)", "--ordered"),
    line("rollup", "--encoding utf-16", "events.jsonl", "utf-16"),
    line("rollup", "--time-format %d.%m.%Y --type ts=seconds", "--time-format", "--type"),
    line("rollup", "--retention 10s=1d --replace-within 2024-05-01T10:00:03,2024-05-02", "window"),
    line("query", "--key host --no-keys", "--key", "--no-keys"),
    line("query", "--points 5", "--per 1h and --points 5"),
    line("query", "--latest --fill", "fill", "latest"),
    line("query", "--edges 1h", "edges", "time_weighted_avg"),
    line("query", "--no-keys --order-by host", "order", "host"),
    line("query", "--no-keys --key host", "--no-keys"),
    line("query", "--format parquet", "--out"),
    line("query", "--per 1h", "twice"),
    line("query", "--measure requests --order-by bytes", "order", "bytes"),
    line("query", "--measure requests --having bytes>1", "bytes"),
    line("query", "--no-keys --having host='a'", "host"),
    line("query", "--name other", "other"),
    line("query", "--format csv --out {store}", "store|folder|directory"),
    line("compact", "--before 2024-05-01 --clean never", "clean|never"),
    line("expire", "--now soon --retention 10s=1d", "time"),
    line("expire", "--retention 10s=7d,1m=1d", "1m|10s"),
    line("evolve", "--measure requests=sum(bytes)", "requests"),
    line("evolve", "--drop requests --measure requests=count()", "requests"),
    line("evolve", "--measure a=count() --measure a=sum(ms)", "a"),
    line("evolve", "--drop requests --drop bytes --drop latency", "measure"),
    line("evolve", "--type nope=text", "nope"),
]
STREAMS = [
    ("--once --ordered count(3)", "--levels", "--ordered"),
    ("--once --arrival", "--arrival"),
    ("--once --format json", "--spark"),
    ("--once --option a=b", "--spark"),
    ("--once --shards 2", "--spark"),
    ("--once --name x", "--store"),
    ("--once --durable", "--store"),
    ("--once --stream x", "--store"),
    ("--once --spark", "--format"),
    ("--once --store {new} --emit on_update", "after_close"),
    ("--once --store {new} --emit periodic(1m)", "after_close"),
    ("--once --state {new} --dropped {new}", "--state", "--dropped"),
    ("--once --state {new} --bad-rows {new}", "--state", "--bad-rows"),
    ("--once --dropped {new} --bad-rows {new}", "--dropped", "--bad-rows"),
    ("--once --state {root}/events.jsonl", "saved state"),
    ("--once --state {root}/nothing", "--state", "folder"),
    ("--once --bad-rows {root}/events.parquet", "bad rows"),
]
CONTRADICTIONS += [line("stream", more, *says) for more, *says in STREAMS]
NO_LEVELS = {name: value for name, value in STREAM.items() if name != "--levels"}
CONTRADICTIONS += [
    Line(f"stream --ordered {more}", "stream", {**NO_LEVELS, "--ordered": "count(3)"}, ("--once", *more.split()), (word,))
    for more, word in (
        ("--store {new}", "--store"), ("--emit on_update", "--emit"), ("--late true_window", "--late"), ("--max-keys 5", "--max-keys"),
        ("--timezone Europe/Berlin", "--timezone"),
    )
]  # fmt: skip

_VALUES = {  # options that take one value, each with two that are right
    "rollup": {
        "--time": "ts ts", "--timezone": "UTC Europe/Berlin", "--levels": "10s 1m", "--encoding": "utf-8 latin-1", "--delimiter": "; |",
        "--thousands": "_ '", "--time-format": "%Y-%m-%d %d.%m.%Y", "--where": "ms>1 ms<9", "--store": "{new} {new}2", "--name": "a b",
        "--retention": "10s=1d 10s=2d", "--replace-within": "2024-05-01,2024-05-02 2024-05-02,2024-05-03", "--bad-rows": "skip fail",
        "--memory": "1GB 2GB", "--input-format": "csv json",
    },
    "stream": {
        "--time": "ts ts", "--timezone": "UTC Europe/Berlin", "--levels": "10s 1m", "--ordered": "count(3) count(4)", "--where": "ms>1 ms<9",
        "--emit": "after_close on_update", "--late": "drop true_window", "--disorder": "1s 2s", "--dropped": "{new} {new}2",
        "--bad-rows": "skip fail", "--max-keys": "5 6", "--state": "{new} {new}2", "--store": "{new} {new}2", "--name": "a b",
        "--stream": "a b", "--format": "json csv", "--shards": "2 3",
    },
    "query": {
        "--points": "5 6", "--within": "2024-05-01 2024-05-02", "--where": "host='a' host='b'", "--having": "requests>1 requests<9",
        "--timezone": "UTC Europe/Berlin", "--now": "2024-05-01 2024-05-02", "--limit": "1 2", "--name": "a b", "--format": "csv json",
        "--out": "{new} {new}2",
    },
    "inspect": {"--name": "a b", "--format": "table json"},
    "check": {"--name": "a b", "--format": "table json"},
    "compact": {"--name": "a b", "--before": "2024-05-01 2024-05-02", "--clean": "1d 2d"},
    "expire": {"--name": "a b", "--retention": "10s=1d 1m=2d", "--now": "2024-05-01 2024-05-02", "--clean": "1d 2d"},
    "evolve": {"--name": "a b", "--levels": "1d 1mo"},
    "doctor": {"--format": "table json"},
    "demo": {"--out": "{new} {new}2"},
}  # fmt: skip
TWICE = [
    Line(
        f"{command} {option} twice",
        command,
        {name: value for name, value in GOOD_LINES[command].items() if name != option},
        (*(word for value in values.split() for word in (option, value)), *["--once"] * (command == "stream")),
        (f"{option} takes one value",),
    )
    for command, options in _VALUES.items()
    for option, values in options.items()
]


def both_wrong(draws: random.Random) -> Line:
    """Draw a wrong line, and make another option of it wrong as well, as another line of the command has it."""
    first = draws.choice(LINES)
    other_lines = [other for other in LINES if other.command == first.command and not other.more]
    if not first.command or not other_lines:
        return first
    second = draws.choice(other_lines)
    good = GOOD_LINES.get(first.command, {})
    changed = {name: value for name, value in second.options.items() if good.get(name) != value}
    if first.options.keys() & changed.keys() - good.keys():
        return first
    return replace(first, name=f"{first.name}, and {second.name}", options={**changed, **first.options})
