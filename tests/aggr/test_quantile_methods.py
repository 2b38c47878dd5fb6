"""Methods of quantiles: numpy's results within the promised error of each sketch. The method is chosen when a state is
read.
"""

from __future__ import annotations

import os
import random

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.quantile_methods import METHODS, interpolates, ranks_of
from aggr.tables.accessors import rank

TRIALS = int(os.environ.get("TRIALS", "60"))
OF_NUMPY = [method for method in METHODS if method != "hdrhistogram"]
QUANTILES = (0.0, 0.07, 0.25, 0.29, 0.5, 0.9, 0.99, 1.0)


def read(function: aggr.Function, values: pa.Array, weights: pa.Array | None = None) -> list[float]:
    """Read the quantiles of one group, the others that the function may have left at their defaults."""
    states = aggr.Measure(function, "x").of_states().function.reduce(values, Groups.single(len(values)), weights)
    result = function.finish(states)[0].as_py()
    return list(result.get("quantiles", result).values())


def test_there_are_all_methods_of_numpy():
    import numpy.lib

    # numpy 2 renamed the module
    internal = getattr(numpy.lib, "_function_base_impl", None) or numpy.lib.function_base
    assert set(OF_NUMPY) == set(internal._QuantileMethods)


@pytest.mark.parametrize("method", OF_NUMPY)
def test_exact_quantiles_are_those_of_numpy(method):
    draws = random.Random(method)
    for _ in range(TRIALS):
        values = [float(draws.randint(-50, 50)) for _ in range(draws.randint(1, 60))]
        quantiles = sorted({*QUANTILES, draws.random(), round(draws.random(), 2)})
        result = read(aggr.ExactQuantiles(quantiles, method=method), pa.array(values))
        expected = np.quantile(values, quantiles, method=method)
        assert np.allclose(result, expected, rtol=1e-12, atol=1e-12), (values, quantiles)
        if not interpolates(method):
            assert result == expected.tolist()


@pytest.mark.parametrize("method", METHODS)
def test_sketches_are_within_their_error_of_the_same_neighbours(method):
    draws = random.Random(method)
    for _ in range(TRIALS // 4):
        n = draws.randint(1, 80)
        integers = sorted(draws.randint(0, 10 ** draws.randint(1, 7)) for _ in range(n))
        weights = pa.array([draws.randint(1, 3) for _ in integers])
        for weighted in (None, weights):
            repeated = np.repeat(integers, weighted.to_numpy() if weighted is not None else 1)
            exact = []
            for q in QUANTILES:
                (low,), (high,), (share,) = ranks_of(q, np.array([len(repeated)]), method)
                exact.append((repeated[low], repeated[high], share))
            values = pa.array(integers)
            _assert_within(read(aggr.Dds(QUANTILES, method=method), values, weighted), exact, 0.01)
            _assert_within(read(aggr.Exponential(QUANTILES, method=method), values, weighted), exact, 0.2)
            _assert_within(read(aggr.Hdr(QUANTILES, method=method), values, weighted), exact, 0.001)


def _assert_within(estimates: list[float], exact: list[tuple[int, int, float]], error: float) -> None:
    for value, (low, high, share) in zip(estimates, exact, strict=True):
        true = low * (1 - share) + high * share
        assert abs(value - true) <= error * (low * (1 - share) + high * share) + 1e-9


def test_p99_of_few_values_by_every_function():
    values = pa.array([1.0] * 15 + [1000.0])
    functions = (aggr.Dds, aggr.Hdr, aggr.ExactQuantiles)
    for method, expected in (("lower", 1), ("inverted_cdf", 1000), ("hdrhistogram", 1000), ("linear", 850.15)):
        assert [read(f([0.99], method=method), values) for f in functions] == [[pytest.approx(expected)]] * 3
    assert [read(f([0.99]), values) for f in functions] == [[1.0], [1000], [1.0]]


def test_the_method_only_reads():
    values, rows = pa.array([1, 2, 3]), Groups.single(3)
    for function in (aggr.Dds, aggr.Exponential, aggr.Hdr, aggr.ExactQuantiles):
        assert function().reduce(values, rows).equals(function(method="linear").reduce(values, rows))
        assert aggr.Measure(function(method="linear"), "x").of_states().function == function()


def test_quantiles_come_second():
    assert aggr.exact_quantiles("x", [0.99]) == aggr.exact_quantiles("x", quantiles=[0.99])
    assert aggr.exact_quantiles("x", [0.99], 50).function.max == 50


def test_text_has_no_value_between_two_values():
    words = pa.array(["a", "b"])
    assert read(aggr.ExactQuantiles([0.5], method="higher"), words) == ["b"]
    with pytest.raises(TypeError, match="cannot interpolate between two values of type string"):
        read(aggr.ExactQuantiles([0.5], method="linear"), words)


def test_infinities_are_interpolated_without_inventing_nan():
    inf = float("inf")
    for sketch in (aggr.Dds, aggr.Exponential):
        function = sketch([0.25, 0.5, 0.75], method="linear")
        assert read(function, pa.array([-inf, -inf, inf, inf, inf])) == [-inf, inf, inf]
        assert read(function, pa.array([1.0, inf])) == [inf, inf, inf]


@pytest.mark.parametrize(
    ("unit", "values", "quantile", "share"),
    [
        (None, [1, 2, 3], 1.6, 1 / 3),
        (None, [1, 2, 3], 0.6, 0.0),
        (None, [1, 2, 3], -0.1, 0.0),
        (None, [2**62 + 5 * 2**50, 2**63 - 1, 7], float("inf"), 1.0),
        (None, [2**62 + 5 * 2**50, 2**63 - 1, 7], 2.0**62, 1 / 3),
        (0.1, [0.1, 0.3, 0.5], 0.3, 2 / 3),
        (0.1, [0.1, 0.3, 0.5], 0.29, 1 / 3),
        (0.25, [0.25, 0.5], 0.49, 1 / 2),
    ],
)
def test_the_rank_of_a_number_between_two_units(unit, values, quantile, share):
    states = aggr.Hdr(unit=unit).reduce(pa.array(values), Groups.single(len(values)))
    assert rank(states, quantile).to_pylist() == [share]
