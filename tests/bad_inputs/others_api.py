"""Bad inputs of functions of aggr, of open windows and policies, of descriptions, and of the evolution of a store."""

from __future__ import annotations

import inspect

import pyarrow as pa

import aggr
from tests.bad_inputs.check import Bad, cases_of
from tests.bad_inputs.command_others import LATES, POLICIES
from tests.bad_inputs.values import bad_words, nameless, not_tables, not_text, not_whole
from tests.bad_inputs.world import FRAME, ROWS
from tiltframe import TiltFrame, rollup
from tiltframe.streaming import (
    AfterCount,
    AfterKeyExpire,
    Buffer,
    Drop,
    OpenWindows,
    Periodic,
    read_emit,
    read_late,
)

MANY = [*(number / 1000 for number in range(1000)), 1.5]
DEEP = pa.list_(
    pa.struct([(f"field_{number}", pa.list_(pa.struct([("of", pa.list_(pa.int64()))]))) for number in range(40)])
)
QUANTILES = {
    "none": None, "text": "0.5", "bytes": b"x", "true": True, "above 1": 1.5, "negative": -0.1, "nan": float("nan"), "nothing": [], "texts": ["half"],
    "nones": [None], "nested": [[0.5]], "dict": {0.5: 1}, "set": {0.5}, "twice": [0.5, 0.5], "thousands, one of them twice": [*MANY[:-1], 0.5],
    "thousands, one of them above 1": MANY, "a long text": "x" * 5000, "long texts": ["x" * 5000], "a long list in a list": [[0.5] * 5000],
    "a complex number": 1j, "a type": float,
}  # fmt: skip
COLUMNS = {**not_text("none", "list", "function", "class"), **nameless()}
ONE_COLUMN = (
    "sum",
    "avg",
    "min",
    "max",
    "var",
    "stdev",
    "dds",
    "exponential",
    "hdr",
    "first",
    "last",
    "collect",
    "collect_set",
    "count_distinct",
    "skewness",
    "kurtosis",
    "histogram",
    "approx_count_distinct",
    "m4",
    "decayed_avg",
    "per",
    "value_counts",
    "frequent",
    "exact_quantiles",
    "hll",
)
EDGES = {
    "none": None, "text": "0,1", "one": [1], "nothing": [], "twice": [0, 1, 1], "descending": [2, 1], "nan": [0, float("nan")], "infinite": [0, float("inf")],
    "true": [False, True], "texts": ["0", "one"], "texts of another order": ["1", "0"], "texts of NaN": ["0", "nan"], "beyond doubles": [0, 2**53 + 1], "beyond all": [0, 10**400], "set": {0, 1}, "nested": [[0, 1]], "many": [0.5] * 5000,
}  # fmt: skip
BAD_FUNCTIONS = {
    "text": "n", "int": 5, "list": [aggr.count()], "nothing": {}, "a function": {"n": aggr.Count()}, "a call as text": {"n": "count()"},
    "a name of a number": {5: aggr.count()}, "no name": {"": aggr.count()}, "key": {"key": aggr.count()}, "weights": {"n": aggr.count(weight="w")},
    "a function that is not there": {"n": {"function": "nope"}}, "a description of nothing": {"n": {}}, "long": {"x" * 5000: "count()"},
}  # fmt: skip
PARAMETERS = {
    "scale": (lambda v: aggr.exponential("x", scale=v), {"none": None, "text": "3", "finer": 21, "coarser": -12, "float": 3.0, "true": True, "list": [3]}),
    "max_buckets": (lambda v: aggr.exponential("x", max_buckets=v), {"none": None, "text": "160", "one": 1, "negative": -5, "float": 160.0, "true": True, "huge": 2**31}),
    "accuracy": (lambda v: aggr.dds("x", relative_accuracy=v), {"none": None, "text": "1%", "zero": 0, "one": 1, "negative": -0.1, "nan": float("nan"), "infinite": float("inf"), "true": True, "list": [0.01], "long": "x" * 5000}),
    "digits": (lambda v: aggr.hdr("x", digits=v), {**not_whole(), "nine": 9, "minus": -1, "long": "9" * 5000}),
    "ddof": (lambda v: aggr.var("x", ddof=v), {**not_whole("negative"), "long": "1" * 5000}),
    "registers": (lambda v: aggr.hll("x", lg_k=v), {**not_whole("none"), "seven": 7, "long": "9" * 5000}),
    "hashes": (lambda v: aggr.approx_count_distinct("x", k=v), {**not_whole("none"), "fifteen": 15, "long": "9" * 5000}),
    "keep": (lambda v: aggr.collect("x", max=3, keep=v), {**not_text(), **bad_words()}),
    "k": (lambda v: aggr.top_k("x", by="y", k=v), {**not_whole(), "zero": 0, "negative": -1, "huge": 2**31}),
    "of": (lambda v: aggr.per("x", of=v), BAD_FUNCTIONS),
    "beyond": (lambda v: aggr.per("x", beyond=v), {**not_text(), **bad_words()}),
    "top": (lambda v: aggr.per("x", top=v), {**not_whole("none"), "zero": 0}),
    "top without by": (lambda v: aggr.per("x", of={"n": aggr.count(), "m": aggr.max("y")}, top=v), {"two results": 3}),
    "by": (lambda v: aggr.per("x", by=v), {**not_text("none"), **bad_words()}),
    "top of value_counts": (lambda v: aggr.value_counts("x", top=v), {**not_whole("none"), "zero": 0}),
    "share": (lambda v: aggr.frequent("x", share=v), {"none": None, "text": "1%", "zero": 0, "above 1": 1.5, "negative": -0.1, "nan": float("nan"), "true": True, "list": [0.01], "long": "x" * 5000}),
    "edges": (lambda v: aggr.histogram("x", edges=v), EDGES),
    "max": (lambda v: aggr.collect("x", max=v), not_whole("none")),
    "half_life": (lambda v: aggr.decayed_sum("x", v), {**not_text(), **bad_words(), "none of it": "0s", "months": "1mo", "too long": "101 years", "weeks": "9999w"}),
    "extrapolate": (lambda v: aggr.rate("x", extrapolate=v), {**not_text("none"), **bad_words(), "nothing": "0s"}),
    "method": (lambda v: aggr.integral("x", method=v), {**not_text(), **bad_words()}),
    "unit": (lambda v: aggr.integral("x", unit=v), {**not_text(), **bad_words(), "nothing": "0s"}),
    "n": (lambda v: aggr.lttb("x", n=v), {**not_whole(), "two": 2, "huge": 2**31}),
    "steps": (lambda v: aggr.funnel("x", v), {"none": None, "text": "view", "twice": ["a", "a"], "number": 5, "dict": {"a": 1}}),
    "within": (lambda v: aggr.funnel("x", ["a"], v), {**not_text(), **bad_words()}),
    "as_of": (lambda v: aggr.decayed_count("x", as_of=v), {**not_text("none"), **bad_words(), "no such day": "2024-02-30"}),
}  # fmt: skip
DESCRIBED = {
    "nothing": {}, "none": None, "text": "sum", "list": ["sum"], "number": 5, "a function that is not there": {"function": "nope", "column": "x"},
    "no column": {"function": "sum"}, "a function of a number": {"function": 5}, "a column of a number": {"function": "sum", "column": 5},
    "unknown parts": {"function": "sum", "column": "x", "nope": 1}, "parameters of a list": {"function": "dds", "column": "x", "parameters": []},
    "long": {"function": "x" * 5000, "column": "x"}, "long names": {"x" * 5000: 1}, "a long part": {"function": "sum", "column": "x", "x" * 5000: 1},
}  # fmt: skip
WIDE = pa.table({f"a_column_of_a_long_name_{number}": [1] for number in range(500)})


def opened(**options):
    return OpenWindows(FRAME, **options)


def evolved(world, **changes):
    fields = {"levels": FRAME.levels, "time": "ts", "measures": dict(FRAME.measures), "keys": ["host"]}
    world.store.evolve(TiltFrame(**{**fields, **changes}))


def streamed(rows):
    windows = OpenWindows(FRAME)
    windows.add_rows(ROWS)
    windows.add_rows(rows)


CASES = [
    *(bad for call in ONE_COLUMN for bad in cases_of(f"{call}(column)", COLUMNS, lambda w, v, call=call: getattr(aggr, call)(v), "name|column|expression|text")),
    *(bad for call in ("dds", "hdr", "exact_quantiles") for bad in cases_of(f"{call}(quantiles)", QUANTILES, lambda w, v, call=call: getattr(aggr, call)("x", quantiles=v), "quantile")),
    *(bad for name, (make, values) in PARAMETERS.items() for bad in cases_of(f"aggr({name})", values, lambda w, v, make=make: make(v))),
    *(Bad(f"{call}({name}=1)", lambda w, call=call, name=name: getattr(aggr, call)("x", **{name: 1})) for call in ONE_COLUMN for name in ("nope", "quantile") if name not in inspect.signature(getattr(aggr, call)).parameters),
    *(Bad(f"from_description = {k}", lambda w, v=v: aggr.from_description(v)) for k, v in DESCRIBED.items()),
    *cases_of("aggr.get", {**not_text(), **bad_words()}, lambda w, v: aggr.get(v), "function"),
    *(Bad(f"{call} of a deep type", lambda w, call=call: rollup(pa.table({"ts": [0], "x": pa.nulls(1, DEEP)}), TiltFrame(["1m"], "ts", {"m": getattr(aggr, call)("x")}))) for call in ONE_COLUMN if call not in ("first", "last", "frequent", "collect", "collect_set")),
    Bad("rollup, a key of a deep type", lambda w: rollup(pa.table({"ts": [0], "x": pa.nulls(1, DEEP)}), TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["x"])), ("x",)),
    Bad("rollup, a time of a deep type", lambda w: rollup(pa.table({"ts": pa.nulls(1, DEEP)}), TiltFrame(["1m"], "ts", {"n": aggr.count()})), ("ts",)),
    *(Bad(f"rollup of many columns, none the {what}", lambda w, frame=frame: rollup(WIDE, frame), (what,)) for what, frame in {"ts": FRAME, "key": TiltFrame(["1m"], "a_column_of_a_long_name_1", {"n": aggr.count()}, ["key"]), "measured": TiltFrame(["1m"], "a_column_of_a_long_name_1", {"n": aggr.sum("measured")}), "asked": TiltFrame(["1m"], "a_column_of_a_long_name_1", {"n": aggr.count(where="asked > 1")})}.items()),
    *(Bad(f"read_emit = {k}", lambda w, v=v: read_emit(v)) for k, v in {**not_text(), **POLICIES, **bad_words()}.items() if k != "having of no result"),
    *(Bad(f"read_late = {k}", lambda w, v=v: read_late(v)) for k, v in {**not_text(), **LATES, **bad_words()}.items()),
    *cases_of("OpenWindows(frame)", {**not_text(), "text": "frame"}, lambda w, v: OpenWindows(v), "frame", "TiltFrame"),
    *cases_of("OpenWindows(emit)", not_text("none"), lambda w, v: opened(emit=v)),
    *cases_of("OpenWindows(late)", not_text(), lambda w, v: opened(late=v)),
    *cases_of("OpenWindows(max_keys)", {**not_whole("none"), "zero": 0}, lambda w, v: opened(max_keys=v), "max_keys"),
    *cases_of("OpenWindows(beyond)", {**not_text(), **bad_words()}, lambda w, v: opened(beyond=v), "beyond"),
    *(bad for call in (Periodic, AfterKeyExpire) for bad in cases_of(f"{call.__name__}(…)", {**not_text("none", "int"), **nameless()}, lambda w, v, call=call: opened(emit=call(v)))),
    *cases_of("AfterCount(n)", {**not_whole(), "zero": 0}, lambda w, v: AfterCount(v)),
    *cases_of("Buffer(n)", not_whole(), lambda w, v: Buffer(v)),
    *cases_of("Drop(after)", {**not_text("none"), **nameless()}, lambda w, v: Drop(v)),
    *cases_of("add_rows(rows)", not_tables("no columns", "other columns"), lambda w, v: opened().add_rows(v), "rows|Table"),
    *(Bad(f"add_rows(rows) = {k}", lambda w, v=v: streamed(v)) for k, v in {"no columns": pa.table({}), "without times": ROWS.drop_columns(["ts"]), "of another type": ROWS.set_column(2, "bytes", pa.array([1.5] * 3)), "many other columns": WIDE}.items()),
    *(bad for name in ("watermark", "now") for bad in cases_of(f"advance({name})", {"text": "now", "float": 1.5, "true": True, "list": [1], "huge": 10**30}, lambda w, v, name=name: opened().advance(**{"watermark": 0, "now": 0, name: v}), name)),
    *cases_of("from_ipc(data)", {"nothing": b"", "noise": b"abc", "text": "x", "none": None, "list": [1]}, lambda w, v: OpenWindows.from_ipc(v, FRAME)),
    *cases_of("evolve(frame)", {**not_text(), "text": "frame"}, lambda w, v: w.store.evolve(v), "frame", "TiltFrame"),
    *cases_of("evolve(row_schema)", not_text("none"), lambda w, v: w.store.evolve(FRAME, v), "row_schema"),
    *(Bad(f"evolve = {k}", lambda w, v=v: evolved(w, **v)) for k, v in {"other keys": {"keys": []}, "other times": {"time": "at"}, "another zone": {"timezone": "Europe/Berlin", "levels": ["10s", "1m", "1h"]}, "fewer levels": {"levels": ["10s", "1m"]}, "finer levels": {"levels": ["1s", "10s", "1m", "1h"]}, "levels between": {"levels": ["10s", "1m", "10m", "1h"]}, "another measure of a name": {"measures": {"requests": aggr.sum("ms")}}, "a measure without rows": {"measures": {**FRAME.measures, "m": aggr.sum("nope")}}}.items()),
    *(Bad(f"query(per) = {k}", lambda w, v=v: w.store.query(v), ("per", "twice")) for k, v in {"twice": ["1m", "1m"], "twice of three": ["1m", "1h", "1m"]}.items()),
]  # fmt: skip
