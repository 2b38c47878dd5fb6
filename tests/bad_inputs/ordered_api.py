"""Bad inputs of ordered windows: creating and parsing them, `running`, chains, and calls that need a time window."""

from __future__ import annotations

import pyarrow as pa

import aggr
from tests.bad_inputs.check import Bad, cases_of
from tests.bad_inputs.values import HUGE, Thing, nameless, not_text, not_whole
from tests.bad_inputs.windows_api import BAD_GAPS, BAD_ZONES
from tests.bad_inputs.world import FRAME, ROWS
from tiltframe import (
    FrameStore,
    OrderedFrame,
    OrderedRollup,
    TiltFrame,
    finish,
    finish_ordered,
    ordered_rollup,
    rollup,
    running,
)
from windows import AllTime, hopping, ordered, read_window, session, window

MEASURES = {"total": aggr.sum("bytes")}
CHAIN = OrderedFrame(["count(2)", "count(3)"], "ts", MEASURES)
TIMES = {"tumbling": window("1h"), "hopping": hopping("1h", "10m"), "session": session("30m"), "whole": AllTime()}
TIME_TEXTS = {
    "size": "1h",
    "tumbling text": "tumbling(1d, offset=6h)",
    "hopping text": "hopping(1h, 10m)",
    "all": "all",
}
ORDERED = {
    "count": ordered.count(2),
    "running": ordered.running(),
    "since": ordered.since(ordered.daily("UTC")),
    "sliding": ordered.sliding(3),
    "interval": ordered.interval("3s"),
    "session": ordered.session("3s"),
    "emit_when": ordered.emit_when("bytes > 5"),
    "weighted": ordered.weighted_count(3, "bytes"),
}
ORDERED_TEXTS = {
    f"{label} text": str(window) for label, window in ORDERED.items() if label != "session"
}  # of either family
SIZES = {**not_whole("huge"), "zero": 0, "far too many": 2**63, "huge": HUGE}
LENGTHS = {**not_text(), **{k: v for k, v in BAD_GAPS.items() if k not in ("zero", "session")}}
NO_CONDITIONS = {**not_text("list"), **nameless()}
BAD_TEXTS = {
    "empty": "",
    "blank": " ",
    "name alone": "count",
    "open": "count(",
    "closed": "count)",
    "two": "count(2), count(3)",
    "star": "count(*[2])",
    "stars": "count(**{'n': 2})",
    "arithmetic": "count(1 + 1)",
    "call": "count(open('x'))",
    "nul": "count(2)\0",
    "unknown": "lately(3)",
    "near miss": "slidng(3)",
    "too many": "count(1, 2)",
    "too few": "weighted_count(3)",
    "unknown word": "count(m=2)",
    "twice": "count(2, n=2)",
    "zero": "count(0)",
    "negative": "count(-1)",
    "text": "count('2')",
    "truth": "count(True)",
    "tick": "hourly()",
    "attribute": "ordered.count(2)",
    "lambda": "lambda: 2",
    "number": "5",
    "list text": "[2]",
    "long": "x" * 10_000,
    "deep": "count(" * 200 + "2" + ")" * 200,
    "daily without a zone": "since(daily())",
    "monthly without a zone": "sliding(2, monthly())",
    "an unknown zone": "since(daily('Europe/Pariss'))",
    "a negative gap": "session('-30m')",
    "no gap": "session('0s')",
    "a gap of months": "session('1mo')",
    "no length": "interval('0s')",
    "a longest of nothing": "session('30m', max='0s')",
    "other bounds": "session('30m', bounds='[[')",
    "nothing to go by": "since()",
    "two conditions": "since('a', 'b')",
    "an empty condition": "since('')",
    "a window in a window": "since(count(2))",
}
BAD_TICKS = {
    "int": 5,
    "true": True,
    "none": None,
    "function": ordered.daily,
    "window": ordered.count(2),
    "numbers": [5],
    "nothing": [None],
    "text": "weekly()",
    "word": "hourly",
    "size": "1h",
    "window text": "count(2)",
    "without a zone": "daily()",
    "of an unknown zone": "monthly('Europe/Pariss')",
    "empty": "",
    "in a set": {"hourly()"},
}
BAD_CONDITIONS = {  # known once the data's columns are: what each says
    "of numbers": ("bytes", "true or false"),
    "of text": ("host", "true or false"),
    "of arithmetic": ("bytes + 1", "true or false"),
    "of no column": ("sizes > 3", "column 'sizes'"),
    "of a near miss": ("byte > 3", "column 'byte'"),
    "open": ("bytes > ", "cannot read"),
    "of two types": ("host > 3", "cannot compare"),
    "of nothing known": ("frobnicate(bytes)", "cannot use"),
    "unclosed": ("host = 'a", "not closed"),
}
OF_CONDITIONS = {
    "since": lambda text: ordered.since(text),
    "sliding": lambda text: ordered.sliding(2, text),
    "emit_when": lambda text: ordered.emit_when(text),
    "session start": lambda text: ordered.session("1h", start=text),
    "session end": lambda text: ordered.session("1h", end=text),
}
BAD_WEIGHTS = {
    "text": ("host", "type string"),
    "fractions": ("ms", "type double"),
    "no column": ("sizes", "no column 'sizes'"),
}
NOT_ROWS = {
    "none": None,
    "int": 5,
    "text": "rows",
    "list of rows": [{"ts": 0}],
    "array": pa.array([1]),
    "thing": Thing(),
    "class": pa.Table,
    "dict": {"ts": [0]},
}
NOT_MEASURES = {
    "none": None,
    "text": "sum",
    "list": [aggr.count()],
    "empty": {},
    "a function": {"n": aggr.Sum()},
    "a text": {"n": "count()"},
    "nameless": {"": aggr.count()},
    "number": {5: aggr.count()},
}
BAD_KEYS = {
    "text": "host",
    "number": 5,
    "numbers": [5],
    "blank": [" "],
    "twice": ["host", "host"],
    "the time": ["ts"],
    "a number": {"k": 5},
    "no text": {"k": ""},
    "number named": {5: "host"},
    "set": {"host"},
}
BAD_LEVELS = {
    "none": None,
    "text": "count(2)",
    "empty": [],
    "nothing in it": [None],
    "int": 5,
    "numbers": [5],
    "class": [ordered.count],
    "set": {"count(2)"},
    "twice": ["count(2)", "count(2)"],
    "overlapping below": ["running()", "count(2)"],
    "sliding below": ["sliding(3)", "count(2)"],
    "conditions above": ["count(2)", "emit_when('bytes > 5')"],
    "weights above": ["count(2)", "weighted_count(3, 'bytes')"],
    "ticks above": ["count(2)", "since(daily('UTC'))"],
    "ticks": ["since(daily('UTC'))"],
    "nameless": {"": "count(2)"},
    "number named": {5: "count(2)"},
    **{f"a time window, {label}": ["count(2)", time_window] for label, time_window in {**TIMES, **TIME_TEXTS}.items()},
}
NOT_CHAINS = {"none": None, "tilt frame": FRAME, "text": "count(2)", "class": OrderedFrame, "window": ordered.count(2)}


def run(window=None, measures=MEASURES, **options):
    return running(ROWS, measures, window, **{"time": "ts", **options})


CASES = [
    *cases_of("ordered.count(n)", SIZES, lambda w, v: ordered.count(v), "the argument n of count must be a whole number from 1"),
    *cases_of("ordered.sliding(n)", SIZES, lambda w, v: ordered.sliding(v), "the argument n of sliding must be a whole number from 1"),
    *cases_of("ordered.weighted_count(n)", SIZES, lambda w, v: ordered.weighted_count(v, "bytes"), "the argument n of weighted_count must be a whole number from 1"),
    *cases_of("ordered.weighted_count(weight)", {**not_text(), **nameless()}, lambda w, v: ordered.weighted_count(3, v), "name of a column"),
    *cases_of("ordered.interval(length)", LENGTHS, lambda w, v: ordered.interval(v), "length", "such as|at most"),
    *cases_of("ordered.session(gap)", LENGTHS, lambda w, v: ordered.session(v), "gap", "such as|at most"),
    *cases_of("ordered.session(max)", {k: v for k, v in LENGTHS.items() if k != "none"}, lambda w, v: ordered.session("1h", max=v), *("maximum length", "such as|at most")),
    *(Bad(f"ordered.{name} = zero", make, ("at least one microsecond",)) for name, make in {
        "interval(length)": lambda w: ordered.interval("0s"), "session(gap)": lambda w: ordered.session("0us"), "session(max)": lambda w: ordered.session("1h", max="0s")}.items()),
    *cases_of("ordered.session(bounds)", {**not_text(), "other": "[[", "words": "closed", "empty": ""}, lambda w, v: ordered.session("1h", bounds=v), "bounds"),
    *cases_of("ordered.session(start)", {k: v for k, v in NO_CONDITIONS.items() if k != "none"}, lambda w, v: ordered.session("1h", start=v), "condition must be text in SQL"),
    *cases_of("ordered.since(reset)", NO_CONDITIONS, lambda w, v: ordered.since(v), "condition must be text in SQL"),
    *cases_of("ordered.emit_when(condition)", NO_CONDITIONS, lambda w, v: ordered.emit_when(v), "condition must be text in SQL"),
    *cases_of("ordered.emit_when(include)", {**not_text("true"), "text": "yes", "one": 1}, lambda w, v: ordered.emit_when("a", v), "True or False"),
    Bad("ordered.since = nothing", lambda w: ordered.since(), ("needs a condition or a tick",)),
    Bad("ordered.since = two conditions", lambda w: ordered.since("a", "b"), ("one condition and one tick",)),
    Bad("ordered.sliding = two ticks", lambda w: ordered.sliding(2, ordered.hourly(), ordered.minutely()), ("one condition and one tick",)),
    *(case for name in ("daily", "monthly", "yearly") for case in [
        Bad(f"ordered.{name} = without a zone", lambda w, name=name: getattr(ordered, name)(), (f"{name}\\(\\) needs the time zone", "Europe/Paris")),
        *cases_of(f"ordered.{name}(zone)", BAD_ZONES, lambda w, v, name=name: getattr(ordered, name)(v), "time zone")]),
    *cases_of("ordered.Tick(name)", {**not_text(), "fortnightly": "fortnightly", "empty": ""}, lambda w, v: ordered.Tick(v, "UTC"), "name of a tick must be one of"),
    *(Bad(f"ordered.read_ordered(text) = {label}", lambda w, text=text: ordered.read_ordered(text)) for label, text in BAD_TEXTS.items()),
    *cases_of("ordered.read_ordered(text)", TIME_TEXTS, lambda w, v: ordered.read_ordered(v), "time windows follow the clock"),
    *cases_of("ordered.read_tick(text)", {**not_text(), "window": "count(2)", "word": "daily", "size": "1h", "empty": ""}, lambda w, v: ordered.read_tick(v), "cannot read"),
    *(Bad(f"running(window) = {label}", lambda w, text=text: run(text)) for label, text in BAD_TEXTS.items()),
    *cases_of("running(window)", not_text("none", "dict"), lambda w, v: run(v), "must be an ordered window"),
    *cases_of("running(window)", TIMES, lambda w, v: run(v), "must be an ordered window", "time window"),
    *cases_of("running(window)", TIME_TEXTS, lambda w, v: run(v), "time windows follow the clock"),
    *cases_of("running(window of a measure)", {**TIMES, "int": 5}, lambda w, v: run({"total": v}), "must be an ordered window"),
    Bad("running(window) = of no measure", lambda w: run({"other": "running()"}), ("'other'", "not a measure")),
    *(Bad(f"running, {name} = {label}", lambda w, make_window=make_window, text=text: run(make_window(text)), (says,)) for name, make_window in OF_CONDITIONS.items() for label, (text, says) in BAD_CONDITIONS.items()),
    *(Bad(f"running, weighted_count = {label}", lambda w, name=name: run(ordered.weighted_count(3, name)), (says,)) for label, (name, says) in BAD_WEIGHTS.items()),
    *(Bad(f"running(ticks) = {label}", lambda w, v=v: run(ticks=v), ("tick|hourly|time zone",)) for label, v in BAD_TICKS.items()),
    *cases_of("running(emit)", {**not_text(), "other": "row", "empty": ""}, lambda w, v: run(emit=v), "emit must be one of rows, ticks, final"),
    Bad("running(emit) = ticks without any", lambda w: run(emit="ticks"), ("needs ticks",)),
    Bad("running(ticks) = of windows one by one", lambda w: run("count(2)", ticks="hourly()"), ("leave out ticks",)),
    *cases_of("running(time)", {**not_text(), **nameless()}, lambda w, v: run(time=v), "column of event times"),
    *(Bad(f"running(keys) = {label}", lambda w, v=v: run(keys=v), ("key|time",)) for label, v in BAD_KEYS.items()),
    *cases_of("running(order)", {"text": "host", "int": 5, "numbers": [5], "blank": [" "], "twice": ["host", "host"]}, lambda w, v: run(order=v), "order must be a list"),
    *(Bad(f"running(measures) = {label}", lambda w, v=v: run(measures=v), ("measure",)) for label, v in NOT_MEASURES.items()),
    *cases_of("running(data)", NOT_ROWS, lambda w, v: running(v, MEASURES, time="ts"), "pyarrow.Table"),
    Bad("running(data) = no batches", lambda w: running([], MEASURES, time="ts"), ("no batch was passed",)),
    *(Bad(f"OrderedFrame(levels) = {label}", lambda w, v=v: OrderedFrame(v, "ts", MEASURES)) for label, v in BAD_LEVELS.items()),
    *(Bad(f"OrderedFrame(keys) = {label}", lambda w, v=v: OrderedFrame(["count(2)"], "ts", MEASURES, v), ("key|time",)) for label, v in BAD_KEYS.items()),
    *cases_of("ordered_rollup(data)", NOT_ROWS, lambda w, v: ordered_rollup(v, CHAIN), "pyarrow.Table"),
    *cases_of("ordered_rollup(frame)", NOT_CHAINS, lambda w, v: ordered_rollup(ROWS, v), "OrderedFrame"),
    *cases_of("OrderedRollup(frame)", NOT_CHAINS, lambda w, v: OrderedRollup(v), "OrderedFrame"),
    *cases_of("finish_ordered(frame)", NOT_CHAINS, lambda w, v: finish_ordered(ROWS, v), "OrderedFrame"),
    *cases_of("finish_ordered(states)", {"none": None, "int": 5}, lambda w, v: finish_ordered(v, CHAIN), "states"),
    Bad("finish_ordered(states) = rows", lambda w: finish_ordered(ROWS, CHAIN), ("not states of this frame", "level")),
    # an ordered window where a time window is needed
    *cases_of("TiltFrame(levels), one", {**ORDERED, **ORDERED_TEXTS}, lambda w, v: TiltFrame([v], "ts", MEASURES), "ordered windows, such as .* can be used only in"),
    *cases_of("TiltFrame(levels), above", {**ORDERED, **ORDERED_TEXTS}, lambda w, v: TiltFrame(["1m", v], "ts", MEASURES), "ordered windows, such as .* can be used only in"),
    *cases_of("read_window(text), ordered", ORDERED_TEXTS, lambda w, v: read_window(v), "ordered windows, such as .* can be used only in"),
    Bad("FrameStore(frame) = a chain", lambda w: FrameStore(w.new, CHAIN), ("frame must be a TiltFrame", "OrderedFrame")),
    Bad("rollup(frame) = a chain", lambda w: rollup(ROWS, CHAIN), ("frame must be a TiltFrame", "OrderedFrame")),
    Bad("finish(frame) = a chain", lambda w: finish(ROWS, CHAIN), ("frame must be a TiltFrame", "OrderedFrame")),
    Bad("FrameStore.query(per) = ordered", lambda w: w.store.query("count(2)"), ("ordered windows, such as .* can be used only in",)),
]  # fmt: skip
