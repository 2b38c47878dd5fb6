"""Bad inputs of aggr: weights, methods of quantiles, histogram logs, and columns of states."""

from __future__ import annotations

import pyarrow as pa

import aggr
from aggr import Groups, Hdr
from aggr.interchange.hdr_v2 import from_hdr_v2
from aggr.interchange.histogram_log import read_histogram_log, write_histogram_log
from tests.bad_inputs.check import Bad, cases_of
from tests.bad_inputs.values import nameless, not_tables, not_text
from tests.bad_inputs.world import ROWS
from tiltframe import TiltFrame, rollup, rollup_states

STATES = Hdr().reduce(pa.array([5]), Groups.single(1))
AT = pa.array([1_000_000], pa.timestamp("us", "UTC"))
INTERVALS = pa.table({"start": AT, "end": AT, "tag": ["A"], "histogram": STATES})
FRAME = TiltFrame(["1m"], "start", {"histogram": aggr.hdr("x")}, ["tag"])
QUANTILES = (aggr.hdr, aggr.dds, aggr.exponential, aggr.exact_quantiles)
WEIGHTED = {call: getattr(aggr, call) for call in ("count", "sum", "avg", "hdr", "dds")}

BAD_WEIGHTS = {
    "negative": [1, -1, 1],
    "fractions": [1.0, 1.5, 1.0],
    "shares": [0.25, 0.5, 0.25],
    "nan": [1.0, float("nan"), 1.0],
    "infinite": [1.0, float("inf"), 1.0],
    "truths": [True, False, True],
    "words": ["one", "2", "3"],
    "a number and words": ["1.5 rows", "2", "3"],
    "texts of fractions": ["1", "1.5", "1"],
    "texts of negative numbers": ["1", "-1", "1"],
    "lists": [[1], [2], [3]],
    "beyond int64": pa.array([1, 2**63, 1], pa.uint64()),
    "beyond int64 together": [2**62, 2**62, 1],
    "huge": [1e300, 1.0, 1.0],
}
BAD_COLUMNS = {
    "no start": INTERVALS.drop_columns(["start"]),
    "no histogram": INTERVALS.drop_columns(["histogram"]),
    "a start that is null": INTERVALS.set_column(0, "start", pa.nulls(1, AT.type)),
    "a start that is a number": INTERVALS.set_column(0, "start", pa.array([1])),
    "a start in the far future": INTERVALS.set_column(0, "start", pa.array([2**62], pa.timestamp("s"))),
    "a histogram that is null": INTERVALS.set_column(3, "histogram", pa.nulls(1, STATES.type)),
    "a histogram that is a number": INTERVALS.set_column(3, "histogram", pa.array([1])),
    "a histogram of other digits": INTERVALS.set_column(3, "histogram", Hdr(digits=2).reduce(pa.array([5]), Groups.single(1))),
    "a tag with a comma": INTERVALS.set_column(2, "tag", pa.array(["a,b"])),
    "a tag with a line break": INTERVALS.set_column(2, "tag", pa.array(["a\nb"])),
    "a tag of a list": INTERVALS.set_column(2, "tag", pa.array([["a"]])),
}  # fmt: skip
BAD_STATES = {
    "no time": INTERVALS.drop_columns(["start"]),
    "no key": INTERVALS.drop_columns(["tag"]),
    "no states": INTERVALS.drop_columns(["histogram"]),
    "states of numbers": BAD_COLUMNS["a histogram that is a number"],
    "states of other digits": BAD_COLUMNS["a histogram of other digits"],
    "states of another function": INTERVALS.set_column(3, "histogram", aggr.Count().reduce(pa.array([5]), Groups.single(1))),
    "times missing": BAD_COLUMNS["a start that is null"],
    "keys of lists": BAD_COLUMNS["a tag of a list"],
    "a column twice": pa.table([*INTERVALS.columns, AT], names=[*INTERVALS.column_names, "start"]),
}  # fmt: skip
BAD_METHODS = {**not_text(), "empty": "", "upper case": "LOWER", "the rule of Java": "java", "a misspelt one": "neares"}
PATHS = {**not_text("function", "class"), **nameless()}

DESCRIPTIONS = {
    "nothing": {}, "none": None, "a number": 5, "a list": ["sum"], "another name for the function": {"name": "sum"},
    "no column": {"function": "sum"}, "a number as column": {"function": "sum", "column": 5}, "a dict as function": {"function": {}},
    "parameters of a number": {"function": "dds", "column": "x", "parameters": 5},
}  # fmt: skip


def weighed(values):
    rows = ROWS.append_column("w", pa.array(values))
    rollup(rows, TiltFrame(["1m", "1h", "all"], "ts", {"n": aggr.count(weight="w")}))


def log_of(world, line):
    path = world.root / "x.hlog"
    path.write_text(line + "\n")
    try:
        return read_histogram_log(path, Hdr())
    finally:
        path.unlink()


CASES = [
    *(bad for call, make in WEIGHTED.items() for bad in cases_of(f"{call}(weight)", {**not_text("none"), **nameless()}, lambda w, v, make=make: make("x", weight=v), "weight", "name")),
    *(Bad(f"count(weight) = {k}", lambda w, v=v: weighed(v), ("weight|int64",)) for k, v in BAD_WEIGHTS.items() if k != "beyond int64 together"),
    *(bad for call in QUANTILES for bad in cases_of(f"{call.__name__}(method)", BAD_METHODS, lambda w, v, call=call: call("x", method=v), "method", "nearest", "inverted_cdf")),
    Bad("hdr(rank), the old name of method", lambda w: aggr.hdr("x", rank="java"), ("no parameter 'rank'", "method")),
    Bad("from_hdr_v2(texts) = numbers", lambda w: from_hdr_v2(pa.array([1]), Hdr()), ("strings; got int64",)),
    *cases_of("read_histogram_log(path)", PATHS, lambda w, v: read_histogram_log(v, Hdr()), "path|file"),
    *(Bad(f"read_histogram_log(path) = {k}", lambda w, k=k: read_histogram_log(w.root / k, Hdr()), (k,)) for k in ("gone.hlog", "things", "pipe.csv", "dangling.csv", "round.csv", "events.parquet", "notes.txt")),
    *cases_of("read_histogram_log(function)", {"none": None, "a name": "hdr", "another": aggr.Dds(), "a class": Hdr}, lambda w, v: read_histogram_log(w.root / "notes.txt", v), "function"),
    *(Bad(f"read_histogram_log(line) = {k}", lambda w, v=v: log_of(w, v), ("line 1 of",)) for k, v in {"words": "what?", "numbers": "1,2,3", "no histogram": "1,2,3,what?", "no time": "now,2,3,HISTFAAA", "a long time": "1e999999999,2,3,HISTFAAA", "a tag alone": "Tag=A", "a start": "#[StartTime: now (seconds)]", "backwards": "1,-2,3,HISTFAAA"}.items()),
    *cases_of("write_histogram_log(path)", PATHS, lambda w, v: write_histogram_log(v, INTERVALS, Hdr()), "path|file"),
    *(Bad(f"write_histogram_log(path) = {k}", lambda w, k=k: write_histogram_log(w.root / k, INTERVALS, Hdr()), (k.split("/")[0],)) for k in ("things", "pipe.csv", "round.csv", "not/there.hlog", "notes.txt/x.hlog")),
    *cases_of("write_histogram_log(intervals)", not_tables("no columns", "other columns"), lambda w, v: write_histogram_log(w.new, v, Hdr()), "intervals"),
    *(Bad(f"write_histogram_log(intervals) = {k}", lambda w, v=v: write_histogram_log(w.new, v, Hdr()), ("column|states|tag|digits",)) for k, v in BAD_COLUMNS.items()),
    *cases_of("write_histogram_log(ratio)", {"none": None, "text": "1", "true": True, "zero": 0, "negative": -1.5, "nan": float("nan")}, lambda w, v: write_histogram_log(w.new, INTERVALS, Hdr(), v), "max_value_unit_ratio"),
    *cases_of("from_description(described)", DESCRIPTIONS, lambda w, v: aggr.from_description(v)),
    *cases_of("subtract(states)", not_tables("no columns", "other columns"), lambda w, v: aggr.subtract(v, INTERVALS), "states"),
    *cases_of("subtract(gone)", not_tables("no columns", "other columns"), lambda w, v: aggr.subtract(INTERVALS, v), "gone|columns"),
    *cases_of("rollup_states(data)", not_tables("no columns", "other columns"), lambda w, v: rollup_states(v, FRAME), "data", "Table"),
    *(Bad(f"rollup_states(data) = {k}", lambda w, v=v: rollup_states(v, FRAME)) for k, v in BAD_STATES.items()),
    *cases_of("rollup_states(frame)", {"none": None, "text": "frame", "a measure": aggr.count()}, lambda w, v: rollup_states(INTERVALS, v), "frame", "TiltFrame"),
]  # fmt: skip
