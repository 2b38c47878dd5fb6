"""What a function of one's own is made of: the contract, fields, exact sums, damaged states, compiled loops.

A function subclasses `Function`, or `ExactSums` where its state is exact sums of its inputs and of their products; what
else it needs is imported from here, and from nowhere else in this package.

>>> from dataclasses import dataclass
>>> from typing import ClassVar
>>> import pyarrow as pa
>>> @dataclass(frozen=True)
... class SumOfSquares(ExactSums):
...     name, keeps, returns = "sum_of_squares", "exact Σx², count", "float64"
...     sums: ClassVar = {"squares": "value·value"}
...     def result(self, sums):
...         return sums["squares"].over_integers()
>>> SumOfSquares().finish(SumOfSquares().reduce(pa.array([3.0, 4.0]), Groups.single(2))).to_pylist()
[25.0]
"""

from aggr.fields import ADD, COUNT, EARLIEST, EXACT, GREATEST, LATEST, LEAST, OR, Exact, Field, MinOrMax, ValueBy
from aggr.function import Function
from aggr.functions.exact_family import ExactSums, Sums
from aggr.functions.python_function import PerGroup
from aggr.input_types import ANY, NUMBERS, ORDERED, SUMMABLE, InputTypes, unsupported_input
from aggr.kernels.damage import DamagedState
from aggr.kernels.exact_number import ExactNumbers
from aggr.kernels.exact_sums import sum_exactly, sum_products, sum_squares
from aggr.kernels.grouped import Numbers
from aggr.kernels.groups import Groups
from aggr.kernels.histogram.field import Buckets
from aggr.kernels.jit import compiled
from aggr.kernels.rounding import quotient
from aggr.kernels.superaccumulator import Limbs
from aggr.kernels.values import Values

__all__ = [
    "ADD",
    "ANY",
    "COUNT",
    "EARLIEST",
    "EXACT",
    "GREATEST",
    "LATEST",
    "LEAST",
    "NUMBERS",
    "OR",
    "ORDERED",
    "SUMMABLE",
    "Buckets",
    "DamagedState",
    "Exact",
    "ExactNumbers",
    "ExactSums",
    "Field",
    "Function",
    "Groups",
    "InputTypes",
    "Limbs",
    "MinOrMax",
    "Numbers",
    "PerGroup",
    "Sums",
    "ValueBy",
    "Values",
    "compiled",
    "quotient",
    "sum_exactly",
    "sum_products",
    "sum_squares",
    "unsupported_input",
]
