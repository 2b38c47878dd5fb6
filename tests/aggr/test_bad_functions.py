"""Bad inputs to functions, to their calls and to states raise a TypeError or a ValueError at once, with a clear
message.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.interchange.ddsketch_proto import from_dds_proto, to_dds_proto
from aggr.interchange.hdr_v2 import from_hdr_v2, to_hdr_v2
from aggr.tables import accessors

INTERNALS = (
    "object is not", "has no attribute", "object has", "__init__", "positional argument", "not supported between",
    "unsupported operand", "NoneType", "could not convert", "Expected bytes", "Could not convert",
)  # fmt: skip
COLUMNS = [None, 5, 1.5, "", b"x", ["x"], {}, True]
CALLS = ["min", "max", "sum", "avg", "var", "stdev", "dds", "hdr", "first", "last"]
STATES = aggr.Sum().reduce(pa.array([1, 2]), Groups.each(2))

BAD: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = {}


def bad(says: str, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    text = re.sub(r" object at 0x[0-9a-f]+", "", f"{arguments!r} {named!r}")
    BAD[f"{len(BAD)} {getattr(call, '__qualname__', call)} {text}"[:90]] = (call, arguments, named, says)


for name in CALLS:
    for column in COLUMNS:
        bad(name if column is None else f"the column of {name}", getattr(aggr, name), column)
for column in COLUMNS[1:]:
    bad("the column of count", aggr.count, column)
for wrong in (5, 1.5, True, b"y", ["y"], ""):
    bad("by=, the column of event times", aggr.first, "x", by=wrong)
    bad("by=, the column of event times", aggr.last, "x", by=wrong)
for wrong in ("0.5", "x", b"x", [], ["a"], [None], None, -0.1, 1.1, [0.5, 0.5], float("nan"), True, [True], {"a"}, 1j):
    bad("", aggr.dds, "x", wrong)
    bad("", aggr.hdr, "x", wrong)
for wrong in ("x", None, 0, 1, -0.1, float("nan"), True, [0.1], 1e-9, float("inf"), 1j):
    bad("relative_accuracy must be a number", aggr.dds, "x", relative_accuracy=wrong)
for wrong in ("x", 0, -1, 1.5, True, 2**31, [1], float("nan")):
    bad("max_bins must be a whole number", aggr.dds, "x", max_bins=wrong)
for wrong in ("3", None, 0, 6, 2.5, True, [3], float("nan")):
    bad("digits must be a whole number", aggr.hdr, "x", digits=wrong)
for wrong in ("x", 0, -1, True, float("inf"), float("nan"), [1], 1j):
    bad("unit must be a number above 0", aggr.hdr, "x", unit=wrong)
for wrong in ("1", None, -1, 1.5, True, [1], float("nan")):
    bad("ddof must be a whole number", aggr.var, "x", wrong)
    bad("ddof must be a whole number", aggr.stdev, "x", wrong)
for function in (aggr.Count(), aggr.Max(), aggr.Sum(), aggr.Dds(), aggr.Hdr(), aggr.First()):
    for wrong in ([1, 2], (1,), "ab", None, 5, np.array([1, 2]), {"a": 1}):
        bad(f"{function.name}: values must be ", function.reduce, wrong, Groups.each(2))
        bad(f"{function.name}: states must be an Arrow column", function.merge, wrong, Groups.each(2))
        bad(f"{function.name}: states must be an Arrow column", function.finish, wrong)
    for wrong in (None, [0, 0], np.array([0, 0]), 2):
        bad(f"{function.name}: groups must be an aggr.Groups", function.merge, STATES, wrong)
    for other in (pa.array([1, 2]), pa.array(["a", None]), pa.array([{"a": 1}, {"a": 2}])):
        bad(f"these are not states of {function.name}", function.finish, other)
for function in (aggr.Sum(), aggr.Var(), aggr.Dds(), aggr.Hdr()):
    for kind in (pa.array(["a"]), pa.array([True]), pa.array([b"x"]), pa.array([[1]]), pa.array([{"a": 1}])):
        bad(f"{function.name} cannot take a column of type", function.reduce, kind, Groups.each(1))
for wrong in (int, 5, None, "x", object(), aggr.Sum(), [aggr.Sum]):
    bad("register takes a subclass of aggr.Function", aggr.register, wrong)
bad("Function does not define|the name of a function", aggr.register, Function)
for accessor in (accessors.mean, accessors.stdev, accessors.count):
    for wrong in ([1], "x", None, 5):
        bad("states must be an Arrow column", accessor, wrong)
    bad("no registered function has states", accessor, pa.array([1]))
for wrong in ("x", None, True, float("nan"), [1]):
    bad("rank needs a number", accessors.rank, STATES, wrong)
for read, write, function in ((from_hdr_v2, to_hdr_v2, aggr.Hdr()), (from_dds_proto, to_dds_proto, aggr.Dds())):
    bad("", read, pa.array([1]), function)
    bad("these are not states", write, pa.array([{"a": 1}]), function)
bad("keys, the numbering of buckets, must be 'upper'", from_dds_proto, pa.array([b""]), aggr.Dds(), keys="x")


@pytest.mark.parametrize(("call", "arguments", "named", "says"), BAD.values(), ids=BAD)
def test_a_clear_sentence(call, arguments, named, says):
    with pytest.raises((TypeError, ValueError), match=f"^({says})") as caught:
        call(*arguments, **named)
    assert not [word for word in INTERNALS if word in str(caught.value)], str(caught.value)


def test_there_are_enough():
    assert len(BAD) > 300


def test_a_function_that_needs_arguments_is_refused_by_name():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Needy(aggr.Max):
        edge: int

        name = "needy"

    with pytest.raises(ValueError, match=r"^needy cannot be created without arguments .*give each parameter a default"):
        aggr.register(Needy)
    assert "needy" not in aggr.names()
