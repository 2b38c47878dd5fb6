"""Bad inputs of tiltframe: TiltFrame and its methods, rollup, finish."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

import aggr
from tests.bad_inputs.check import NOTHING, Bad, cases_of
from tests.bad_inputs.values import LONE, Thing, bad_words, nameless, not_names, not_tables, not_text
from tests.bad_inputs.windows_api import BAD_SIZES, BAD_TEXTS, BAD_ZONES
from tests.bad_inputs.world import FRAME, ROWS
from tiltframe import TiltFrame, finish, rollup
from windows import AllTime, hopping, session, window

MEASURES = {"n": aggr.count()}
BAD_LEVELS = {
    "none": None,
    "text": "1h",
    "int": 5,
    "true": True,
    "bytes": b"1h",
    "set": {"1m", "1h"},
    "dict": {"1m": 1},
    "thing": Thing(),
    "one window": window("1h"),
    "empty": [],
    "numbers": [60, 3600],
    "none in it": [None],
    "nested": [["1m"], ["1h"]],
    "bytes in it": [b"1m"],
    "twice": ["1m", "1m"],
    "twice by other names": ["60s", "1m"],
    "from coarse to fine": ["1h", "1m"],
    "not nesting": ["7m", "1h"],
    "weeks in months": ["1w", "1mo"],
    "hopping between the starts of finer ones": ["10m", hopping("1h", "25m")],
    "finer than a hopping's panes": [hopping("1h", "10m"), "15m"],
    "hopping of another zone": ["1m", hopping("1h", "10m", "Europe/Paris")],
    "an offset between the starts of finer ones": ["1h", "tumbling(1d, offset=90m)"],
    "an offset of the finer alone": ["tumbling(1h, offset=5m)", "1d"],
    "a session behind": ["1m", session("30m")],
    "a session before": ["session(30m)", "1h"],
    "two sessions": ["session(30m)", "session(1h)"],
    "a session below all": ["session(30m)", "all"],
    "all before": ["all", "1h"],
    "all twice": ["all", AllTime()],
    "class of a window": [AllTime],
    **{f"a level {label}": ["1s", text] for label, text in BAD_SIZES.items() if label not in ("hopping", "all")},
    **{f"a level of {label}": [text] for label, text in BAD_TEXTS.items()},
}
BAD_MEASURES = {
    "none": None,
    "int": 5,
    "true": True,
    "text": "count",
    "list": [aggr.count()],
    "list of pairs": [("n", aggr.count())],
    "set": {"n"},
    "a measure": aggr.count(),
    "thing": Thing(),
    "text in it": {"n": "count()"},
    "none in it": {"n": None},
    "a function": {"n": aggr.Sum()},
    "a class": {"n": aggr.Sum},
    "the call": {"n": aggr.count},
    "thing in it": {"n": Thing()},
    "name of int": {5: aggr.count()},
    "name of none": {None: aggr.count()},
    "name of bytes": {b"n": aggr.count()},
    "empty name": {"": aggr.count()},
    "blank name": {" ": aggr.count()},
    "nul in name": {"a\0b": aggr.count()},
    "surrogate in name": {"a" + LONE: aggr.count()},
    "a key's name": {"host": aggr.count()},
    "our name": {"level": aggr.count()},
    "our other name": {"window_start": aggr.count()},
}
NOT_DESCRIBED = {
    "none": None,
    "int": 5,
    "text": "frame",
    "list": [1],
    "half": {"levels": ["1m"], "time": "ts"},
    "measures of text": {"levels": ["1m"], "time": "ts", "measures": "x", "keys": [], "timezone": "UTC"},
    "measure of text": {"levels": ["1m"], "time": "ts", "measures": {"n": "x"}, "keys": [], "timezone": "UTC"},
    "measure of nothing": {"levels": ["1m"], "time": "ts", "measures": {"n": {}}, "keys": [], "timezone": "UTC"},
    "unknown function": {
        "levels": ["1m"],
        "time": "ts",
        "measures": {"n": {"function": "cuont"}},
        "keys": [],
        "timezone": "UTC",
    },
    "unknown parameter": {
        "levels": ["1m"],
        "time": "ts",
        "keys": [],
        "timezone": "UTC",
        "measures": {"n": {"function": "var", "column": "x", "parameters": {"dof": 1}}},
    },
    "parameters of text": {
        "levels": ["1m"],
        "time": "ts",
        "keys": [],
        "timezone": "UTC",
        "measures": {"n": {"function": "var", "column": "x", "parameters": "ddof"}},
    },
}
NOT_SCHEMAS = {**not_text("class"), "table": ROWS, "names": ["ts", "host"]}
NOT_FRAMES = {**not_text(), "described": FRAME.describe(), "the class": TiltFrame, "table": ROWS}

BAD_ROWS = {
    "no time": ROWS.drop_columns(["ts"]),
    "no key": ROWS.drop_columns(["host"]),
    "no column of a measure": ROWS.drop_columns(["ms"]),
    "times of truth": ROWS.set_column(0, "ts", pa.array([True] * 3)),
    "times of floats": ROWS.set_column(0, "ts", pa.array([1.5] * 3)),
    "times missing": ROWS.set_column(0, "ts", pa.array([None, 1, 2])),
    "times of words": ROWS.set_column(0, "ts", pa.array(["yesterday"] * 3)),
    "times of wide digits": ROWS.set_column(0, "ts", pa.array(["２０２４-05-01"] * 3)),
    "times of lists": ROWS.set_column(0, "ts", pa.array([[1]] * 3)),
    "times beyond": ROWS.set_column(0, "ts", pa.array([2**62] * 3)),
    "times before year 2": ROWS.set_column(0, "ts", pa.array([-(10**14)] * 3)),
    "keys of lists": ROWS.set_column(1, "host", pa.array([[1]] * 3)),
    "keys of structs with lists": ROWS.set_column(1, "host", pa.array([{"a": [1]}] * 3)),
    "text to be summed": ROWS.set_column(2, "bytes", pa.array(["a"] * 3)),
    "a column twice": pa.table([*ROWS.columns, ROWS.column("ms")], names=["ts", "host", "bytes", "ms", "ms"]),
    "the time twice": pa.table([*ROWS.columns, ROWS.column("ts")], names=["ts", "host", "bytes", "ms", "ts"]),
}
OF_KINDS = {kind: TiltFrame([level], "ts", MEASURES, ["host"]) for kind, level in {"sessions": "session(30m)", "hopping windows": "hopping(1h, 10m)", "all": "all"}.items()}  # fmt: skip

CASES = [
    *(
        replace(bad, given=NOTHING) if "level of" in bad.name else bad
        for bad in cases_of("TiltFrame(levels)", BAD_LEVELS, lambda w, v: TiltFrame(v, "ts", MEASURES))
    ),
    *cases_of("TiltFrame(keys)", {name: [name] for name in ("bucket", "Level", "PARTIAL", "reason", "__coarse")}, lambda w, v: TiltFrame(["1m"], "ts", MEASURES, v), "reserved"),
    *(
        Bad(f"rollup(data) into {kind} = {k}", lambda w, v=v, f=f: rollup(v, f))
        for kind, f in OF_KINDS.items()
        for k, v in BAD_ROWS.items()
        if k not in ("no column of a measure", "text to be summed", "a column twice")
        if (kind, k) != ("all", "times before year 2")  # it follows no clock
    ),
    *(Bad(f"finish(states) of {kind} = of another frame", lambda w, f=f: finish(w.states, f), ("frame|states",)) for kind, f in OF_KINDS.items()),
    *cases_of("TiltFrame(time)", {**not_text(), **nameless()}, lambda w, v: TiltFrame(["1m"], v, MEASURES), "time"),
    *cases_of("TiltFrame(measures)", BAD_MEASURES, lambda w, v: TiltFrame(["1m"], "ts", v, ["host"]), "measure|name"),
    Bad("TiltFrame(measures) = empty", lambda w: TiltFrame(["1m"], "ts", {}), ("at least one measure",)),
    Bad("from_dict(described) = empty", lambda w: TiltFrame.from_dict({}), ("levels",)),
    *cases_of("TiltFrame(keys)", not_names(), lambda w, v: TiltFrame(["1m"], "ts", MEASURES, v), "key|name"),
    Bad("TiltFrame(keys) = None", lambda w: TiltFrame(["1m"], "ts", MEASURES, None), ("keys", "list"), None),
    *cases_of("TiltFrame(keys)", {"our name": ["level"], "a measure's": ["n"]}, lambda w, v: TiltFrame(["1m"], "ts", MEASURES, v), "reserved|used twice"),
    *cases_of("TiltFrame(timezone)", {**not_text(), **BAD_ZONES}, lambda w, v: TiltFrame(["1m"], "ts", MEASURES, [], v), "zone"),
    *cases_of("level(name)", {**not_text(), **BAD_SIZES, "another": "5m", "hopping": hopping("1h", "1m")}, lambda w, v: w.frame.level(v), "level|window"),
    *cases_of("state_of(measure)", {**not_text(), **bad_words(), "near miss": "request"}, lambda w, v: w.frame.state_of(v), "measure"),
    *cases_of("check(schema)", NOT_SCHEMAS, lambda w, v: w.frame.check(v), "schema"),
    *cases_of("states_schema(schema)", NOT_SCHEMAS, lambda w, v: w.frame.states_schema(v), "schema"),
    *cases_of("results_schema(states)", NOT_SCHEMAS, lambda w, v: w.frame.results_schema(v), "schema"),
    *cases_of("check_states(schema)", NOT_SCHEMAS, lambda w, v: w.frame.check_states(v), "schema"),
    *cases_of("difference(other)", NOT_FRAMES, lambda w, v: w.frame.difference(v), "frame"),
    *cases_of("from_dict(described)", NOT_DESCRIBED, lambda w, v: TiltFrame.from_dict(v)),
    *cases_of("rollup(data)", not_tables("no columns", "other columns"), lambda w, v: rollup(v, w.frame), "data", "Table"),
    *(Bad(f"rollup(data) = {k}", lambda w, v=v: rollup(v, w.frame)) for k, v in BAD_ROWS.items()),
    *cases_of("rollup(frame)", NOT_FRAMES, lambda w, v: rollup(w.rows, v), "frame", "TiltFrame"),
    *cases_of("finish(states)", not_tables("no columns", "other columns"), lambda w, v: finish(v, w.frame), "states", "Table"),
    *(Bad(f"finish(states) = {k}", lambda w, v=v: finish(v, w.frame), ("states",)) for k, v in {"no columns": pa.table({}), "rows": ROWS}.items()),
    *cases_of("finish(frame)", NOT_FRAMES, lambda w, v: finish(w.states, v), "frame", "TiltFrame"),
]  # fmt: skip
