"""docs/functions.md describes every function: it is written from the registry, with the sizes of states and an example.

python -m tests.docs.test_functions_page        writes the page
"""

from __future__ import annotations

import doctest
import inspect
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.catalogue import catalogue
from aggr.groups.groups import Groups
from aggr.measure import Measure

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"
SIZES = (1, 100, 1_000_000)
# the arguments of a function's example; the other functions are called with the column ``ms`` alone
ARGUMENTS = {
    **dict.fromkeys(("bool_and", "bool_or", "duration_in"), '"up"'),
    **dict.fromkeys(("bit_and", "bit_or", "bit_xor"), '"flags"'),
    **dict.fromkeys(("arg_min", "arg_max"), '"host", by="ms"'),
    **dict.fromkeys(("top_k", "bottom_k"), '"host", by="ms", k=2'),
    **dict.fromkeys(("covar", "corr", "slope", "intercept", "r2"), '"ms", x="size"'),
    **dict.fromkeys(("value_counts", "mode", "entropy", "collect_set", "count_distinct"), '"host"'),
    **dict.fromkeys(("rate", "increase", "delta", "resets"), '"total"'),
    **dict.fromkeys(("decayed_sum", "decayed_avg", "decayed_count"), '"ms", half_life="1m"'),
    **dict.fromkeys(("dds", "hdr", "exact_quantiles"), '"ms", quantiles=[0.5, 0.9]'),
    "weighted_avg": '"ms", weight="size"',
    "candlestick": '"ms", volume="size"',
    "histogram": '"ms", edges=[0, 10, 100]',
    "per": '"host", of={"n": aggr.count()}',
    "funnel": '"page", ["view", "buy"]',
    "lttb": '"ms", 3',
}
HEAD = """# Functions

This page is written by `python -m tests.docs.test_functions_page` from the declarations of the functions.

- Every function merges exactly: any split of the rows, any order and any tree of merges gives the same bits.
- Null is skipped. NaN is greater than all numbers, and a sum or mean with a NaN is NaN, as in Spark. Sketches count NaN
  separately.
- Other quantiles can be read from old states, because a state does not contain them.
- Every call takes `where="…"`, [a condition in SQL](conditions.md). `sum`, `avg` and `count` take `distinct=True`.
- A column may be an expression: `aggr.sum("price * quantity")`.
- `aggr.each_column(["a", "b"], aggr.avg)` returns one measure for each column.
- Functions marked *weights* take [`weight="n"`](weights.md): one row then stands for `n` rows.
- `aggr.subtract` removes rows from states, bit for bit, for the functions marked *subtracts*. `dds` and `hdr` refuse to
  subtract a minimum or a maximum.
- `mean`, `variance` and `stddev` are other names of `avg`, `var` and `stdev`.
- [A function of your own](how-to/your-own-function.md) works like these once it is registered.

Functions in the same row of the table share a state if column, condition and parameters are equal.

- *bytes* is the size of one state in Arrow's memory after 1, 100 and 1,000,000 rows. The rows contain whole
  milliseconds of a lognormal distribution, one row per second.
- *ns per row* (of `reduce`) and *error* (the largest relative error) are from the last run of
  `python -m benchmarks.functions` with 1,000 groups, for the first function of the row. `tiltframe functions --format
  json` lists the figures of all functions.
- *fields* describes the fields of a state. A merge combines each field of the states.

![Nanoseconds a row of each function](../benchmarks/results/functions.svg)

"""
EXAMPLE = """
## Examples

```python
>>> import aggr, pyarrow as pa
>>> from tiltframe import TiltFrame, finish, rollup
>>> rows = pa.table({
...     "ts": pa.array([0, 20, 40, 50], pa.timestamp("s", "UTC")), "host": ["a", "b", "a", "a"],
...     "page": ["view", "view", "buy", "view"], "ms": [12, 340, 9, 15], "size": [1, 2, 4, 2],
...     "total": [5, 9, 2, 8], "flags": [1, 3, 5, 1], "up": [True, False, True, True]})
>>> def read(measure):
...     frame = TiltFrame(["1m"], time="ts", measures={"result": measure})
...     return finish(rollup(rows, frame), frame)["result"].to_pylist()[0]

```

"""


def rows(size: int) -> pa.Table:
    """Make rows for the sizes of states."""
    rng = np.random.default_rng(1)
    ms = rng.lognormal(3, 1, size).astype(np.int64)
    hosts = pa.DictionaryArray.from_arrays(pa.array(ms % 9, pa.int8()), pa.array([f"host-{i}" for i in range(9)]))
    columns = {"ts": pa.array(np.arange(size)).cast(pa.timestamp("s", "UTC")), "ms": ms, "size": ms % 7, "flags": ms}
    return pa.table({**columns, "total": np.cumsum(ms), "up": ms > 20, "host": hosts, "page": hosts})


def call(name: str) -> str:
    """Write the call of an example."""
    arguments = ARGUMENTS.get(name, '"ms"')
    return f"aggr.{name}({arguments})"


def measure(name: str) -> Measure:
    call_measure: Measure = eval(call(name), {"aggr": aggr})
    return call_measure


def own() -> list[str]:
    return [name for name in aggr.names() if aggr.get(name).__module__.startswith("aggr.")]


@cache
def sized(size: int) -> pa.Table:
    return rows(size)


def weight(name: str, size: int) -> str:
    """Measure a state, or say that there is none of so many rows."""
    table, call_measure = sized(size), measure(name)
    try:
        states = call_measure.reduce(table, Groups.single(size), table["ts"].combine_chunks())
    except ValueError as error:
        if "at most max=" not in str(error):
            raise
        return 'an error beyond `max`, or null by `beyond="null"`'
    return f"{states.nbytes:,}"


def describe_fields(name: str) -> str:
    """Describe the fields of the state of a function; fields with the same description are listed together."""
    fields: dict[str, list[str]] = {}
    for field_name, field in measure(name).function.own_state.fields.items():
        fields.setdefault(field.description, []).append(field_name)
    return "; ".join(f"{', '.join(names)}: {words}" for words, names in fields.items())


def speed(name: str) -> str:
    """Write the nanoseconds per row and the error of the last benchmark of all functions."""
    [entry] = catalogue(name)
    if entry.figures is None:
        return "not measured | not measured"
    error = entry.figures.worst_relative_error
    return f"{entry.figures.reduce_ns_per_row:,.0f} | {'not measured' if error is None else f'{error:.1g}'}"


def table() -> str:
    """Write the table: a row for each state."""
    states: dict[str, list[str]] = {}
    for name in own():
        states.setdefault(aggr.get(name)().own_state.name, []).append(name)
    lines = [
        "| functions | keeps | bytes of 1 | of 100 | of 1,000,000 "
        "| ns per row | error | fields | weights | subtracts |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for names in states.values():
        function = aggr.get(names[0])
        counted_by = measure(names[0]).function.own_state.counted_by
        yes_or_no = ("yes" if holds else "no" for holds in (function.takes_weights, counted_by))
        bytes_of_sizes = (weight(names[0], size) for size in SIZES)
        cells = [function.keeps, *bytes_of_sizes, speed(names[0]), describe_fields(names[0]), *yes_or_no]
        lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def examples() -> str:
    """Write each function with its call, its result, its guarantee and an example."""
    namespace: dict[str, object] = {}
    exec("\n".join(line[4:] for line in EXAMPLE.split("\n") if line[:4] in (">>> ", "... ")), namespace)
    parts = []
    for name in own():
        function = aggr.get(name)
        parameters = inspect.signature(aggr.caller(name)).parameters.values()
        signature = inspect.Signature(
            [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
        )
        summary = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        shown = repr(eval(f"read({call(name)})", namespace))
        parts.append(
            f"### {name}\n\n`{name}{signature}`\n\n{summary}\n\n"
            f"Result: {function.returns}. Guarantee: {function.guarantee}.\n\n"
            f"```python\n>>> read({call(name)})\n{shown}\n\n```\n"
        )
    return "\n".join(parts)


def test_the_page_has_every_function_and_what_it_declares():
    """But for the bytes, which are those of the release that wrote it: a million rows take a while."""
    page_text = PAGE.read_text()
    assert page_text.startswith(HEAD)
    assert EXAMPLE.strip() in page_text
    assert page_text.endswith(examples())


@pytest.mark.parametrize("name", ["sum", "dds", "collect", "candlestick", "decayed_sum"])
def test_bytes_of_small_states_are_those_on_the_page(name):
    (line,) = [line for line in PAGE.read_text().split("\n") if line.startswith("|") and f"`{name}`" in line]
    assert [cell.strip() for cell in line.split("|")[3:5]] == [weight(name, size) for size in SIZES[:2]]


if __name__ == "__main__":
    PAGE.write_text(HEAD + table() + EXAMPLE + examples())
    print(doctest.testfile(str(PAGE), module_relative=False))
