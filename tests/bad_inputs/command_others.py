"""Bad inputs of commands other than rollup and query: stream, evolve, warm, doctor, functions; bad kinds of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.bad_inputs.command_rollup import ENCODINGS, GOOD, MEASURES, SIZES, STORE_NAMES, STORES, TYPES, ZONES
from tests.bad_inputs.command_store import WRONG_STORES
from tests.bad_inputs.commands import Line, by_name, options
from tests.bad_inputs.values import LONE
from tests.bad_inputs.windows_api import BAD_TEXTS
from tests.bad_inputs.world import BAD_LINES, ENDINGS, KINDS

STREAM = {"": "{root}/arriving", "--time": "ts", "--key": "host", "--measure": "requests=count()", "--levels": "10s,1m"}
EVOLVE = {"": "{store}", "--levels": "1d"}
STREAMED = ("hopping", "hopping on finer", "session", "all", "all on finer")  # levels that no store keeps
POLICIES = {
    "empty": "", "blank": " ", "unknown": "never", "near miss": "after_clos", "open": "after_close(", "number": "5",
    "closed only": "after_close)", "two": "after_close,periodic(1m)", "two calls": "after_close()()", "surrogate": LONE,
    "nul": "after_close(\\0)", "unknown argument": "after_close(nope=1)", "delay twice": "after_close(1s, delay=1s)",
    "delay of text": "after_close(delay='soon')", "negative": "after_close(delay=-1s)", "huge": "periodic(" + "9" * 5000 + "s)",
    "no interval": "periodic()", "interval of zero": "periodic(0s)", "count of zero": "after_count(0)", "count of text": "after_count(x)",
    "count of a fraction": "after_count(1.5)", "mode of none": "on_update(mode=nope)", "mode of a number": "on_update(mode=5)",
    "having that is no SQL": "on_update(having='n ====')", "having of no result": "on_update(having='nope > 1')",
    "long": "x" * 5000, "deep": "(" * 500 + ")" * 500, "upper case": "AFTER_CLOSE", "a late policy": "true_window",
}  # fmt: skip
LATES = {
    "empty": "", "blank": " ", "unknown": "ignore", "near miss": "dorp", "open": "drop(", "two": "drop,true_window", "surrogate": LONE,
    "buffer of text": "buffer(x)", "buffer of a fraction": "buffer(1.5)", "buffer below zero": "buffer(-1)", "older of none": "buffer(1, older=nope)",
    "time of text": "drop(soon)", "negative time": "drop(-1m)", "time alone": "1h", "an emit policy": "after_close", "number": "5",
    "unknown argument": "drop(nope=1)", "long": "x" * 5000, "huge": "drop(" + "9" * 5000 + "s)",
}  # fmt: skip
SPANS = {
    "empty": "", "blank": " ", "word": "soon", "number": "5", "negative": "-1s", "wide digits": "１s", "huge": "9" * 30 + "s", "month": "1mo",
    "thousands of digits": "1" * 5000 + "s", "surrogate": LONE, "two": "1s,2s", "unit of none": "1x",
}  # fmt: skip
WRITTEN = {"folder": "{root}/nothing", "pipe": "{root}/pipe.csv", "device": "/dev/null"}
KEYS = {"empty": "", "word": "many", "fraction": "1.5", "negative": "-1", "zero": "0", "huge": "9" * 5000}
ADDED = {
    k: v
    for k, v in MEASURES.items()
    if k not in ("name only", "deep list") and "column" not in k and k != "condition that is no truth"
}
ADDED_LEVELS = {k: v for k, v in SIZES.items() if k not in ("twice", "from coarse to fine")}
FILES = {f"{what} as {ending}": f"{{root}}/kinds/{what}{ending}" for what in KINDS for ending in ENDINGS}


def once(good: Mapping[str, str], name: str, values: Mapping[str, str], *says: str) -> list[Line]:
    """Make a row of each wrong value of an option of stream, which would otherwise wait for files."""
    return [replace(line, more=("--once",)) for line in options("stream", good, name, values, *says)]


CASES = [
    *once(STREAM, "--emit", POLICIES),
    *once(STREAM, "--late", LATES),
    *once(STREAM, "--disorder", SPANS),
    *once(STREAM, "--max-keys", KEYS),
    *once(STREAM, "--state", WRITTEN),
    *once(STREAM, "--dropped", {k: v for k, v in WRITTEN.items() if k != "device"}),
    *once(STREAM, "--levels", {k: v for k, v in SIZES.items() if k not in STREAMED}),
    *once(STREAM, "--levels", by_name({f"a level of {label}": text for label, text in BAD_TEXTS.items()})),
    *once(STREAM, "--measure", {k: v for k, v in MEASURES.items() if "that is not there" not in k}),
    *once(STREAM, "--timezone", ZONES, "time zone"),
    *once(STREAM, "--store", {k: v for k, v in STORES.items() if k != "another frame"}),
    *once({**STREAM, "--store": "{new}"}, "--name", STORE_NAMES, "name"),
    *once(STREAM, "", {"not there": "{root}/nope", "a file": "{root}/events.jsonl", "a pipe": "{root}/pipe.csv", "empty": "", "long": "x" * 5000}),
    *once(STREAM, "--type", TYPES),
    *once(STREAM, "--encoding", ENCODINGS),
    *(Line(f"stream {' '.join(more)}", "stream", STREAM, more) for more in (("--name", "x"), ("--durable",), ("--stream", "x"), ("--format", "rate"), ("--option", "a=b"), ("--nope",), ("--emit",))),
    Line("stream --once of standard input", "stream", {k: v for k, v in STREAM.items() if k}, ("--once",), ("--once",)),
    *options("evolve", EVOLVE, "", WRONG_STORES),
    *options("evolve", EVOLVE, "--levels", ADDED_LEVELS),
    *options("evolve", EVOLVE, "--measure", ADDED),
    *options("evolve", EVOLVE, "--drop", {"empty": "", "blank": " ", "unknown": "nope", "near miss": "request", "two": "requests,bytes", "a key": "host", "long": "x" * 5000, "surrogate": LONE}, "measure"),
    *options("evolve", {**EVOLVE, "--measure": "m=max(ms)"}, "--type", TYPES),
    *options("evolve", EVOLVE, "--name", STORE_NAMES),
    Line("evolve of nothing", "evolve", {"": "{store}"}, (), ("nothing to add", "--measure")),
    *options("warm", {}, "", {"empty": "", "unknown": "nope", "near miss": "ddss", "surrogate": LONE, "long": "x" * 5000, "two in one": "dds,hdr"}),
    *options("doctor", {}, "--format", {"unknown": "xml", "empty": "", "long": "x" * 5000}),
    *(Line(f"{command} {more}", command, {}, (more,)) for command in ("doctor", "functions") for more in ("--nope", "x")),
    *options("rollup", GOOD, "", FILES),
    *(Line(f"rollup, a line is {label}", "rollup", {**GOOD, "": f"{{root}}/lines/{number}.jsonl"}) for number, label in enumerate(BAD_LINES)),
    Line("query --per twice", "query", {"": "{store}", "--per": "1m"}, ("--per", "1m"), ("--per|per", "twice")),
]  # fmt: skip
