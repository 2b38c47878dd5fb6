"""The interface for user-defined functions: base classes of functions and of states, fields of states, exact sums, and
compiled loops.

A function subclasses `Function`, or `ExactSums` if its state consists of exact sums of its inputs and their products.
The state of a function is a `PlainState` of fields, a `SumsState`, another subclass of `State`, or the state of another
function. Import everything that a function needs from this module and the modules in its folder, not from other modules
of this package: `arguments` (checks and messages), `columns` (plain arrays and their order), `exact` (exact sums as
columns), `lists` (lists, series and maps, with limits), `histograms`, `hashes`, `states` (states to share) and
`tables`.

>>> from dataclasses import dataclass
>>> import pyarrow as pa
>>> from aggr.extend import ExactSums, Groups, SumsState
>>> @dataclass(frozen=True)
... class SumOfSquares(ExactSums):
...     name, keeps, returns = "sum_of_squares", "exact Σx², count", "float64"
...     own_state = SumsState("sum_of_squares", {"squares": "value·value"})
...     def result(self, sums):
...         return sums["squares"].over_integers()
>>> SumOfSquares().finish(SumOfSquares().reduce(pa.array([3.0, 4.0]), Groups.single(2))).to_pylist()
[25.0]
"""

from aggr.accessor import accessor
from aggr.arrow.damaged_state import DamagedState
from aggr.compiling.jit import Int, compiled
from aggr.entry_points import load_group
from aggr.exact.expression import ExactNumbers
from aggr.exact.rounding import quotient
from aggr.exact.row_sums import sum_exactly, sum_products, sum_squares
from aggr.exact.superaccumulator import Limbs
from aggr.excluded_counts import ExcludedCounts
from aggr.fields import ADD, COUNT, EARLIEST, EXACT, GREATEST, LATEST, LEAST, OR, Exact, Field, MinOrMax, ValueBy
from aggr.function import Function, input_rule
from aggr.function_inputs import EVENT_TIME
from aggr.functions.exact_family import ExactSums, Sums, SumsState
from aggr.functions.python_function import PerGroup
from aggr.groups.groups import Groups
from aggr.groups.numbers import Numbers
from aggr.histograms.bucket_state import BucketState
from aggr.histograms.buckets import Buckets
from aggr.histograms.column import Histograms
from aggr.input_types import (
    ANY,
    BOOLEANS,
    INTEGERS,
    NUMBERS,
    ORDERED,
    SUMMABLE,
    TIMES,
    InputTypes,
    unsupported_input,
)
from aggr.measure import Measure, from_description
from aggr.neighbours import Neighbours
from aggr.parameters import repeated
from aggr.plain_state import PlainState
from aggr.sql.number_columns import Use
from aggr.state import State
from aggr.tables.accessors import read_accessor
from aggr.values import Values

__all__ = [
    "ADD", "ANY", "BOOLEANS", "COUNT", "EARLIEST", "EVENT_TIME", "EXACT", "GREATEST", "INTEGERS", "LATEST", "LEAST",
    "NUMBERS", "OR", "ORDERED", "SUMMABLE", "TIMES", "BucketState", "Buckets", "DamagedState", "Exact",
    "ExactNumbers", "ExactSums", "ExcludedCounts", "Field", "Function", "Groups", "Histograms", "InputTypes", "Int",
    "Limbs", "Measure", "MinOrMax", "Neighbours", "Numbers", "PerGroup", "PlainState", "State", "Sums", "SumsState",
    "Use", "ValueBy", "Values", "accessor", "compiled", "from_description", "input_rule", "load_group", "quotient",
    "read_accessor", "repeated", "sum_exactly", "sum_products", "sum_squares", "unsupported_input",
]  # fmt: skip
