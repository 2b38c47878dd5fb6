"""Both functions obey the laws, and agree with `statistics.geometric_mean` and with a prefix found by brute force."""

from __future__ import annotations

import statistics

import numpy as np
import pyarrow as pa
import pytest
from aggr_geomean import Geomean, Prefix

from aggr import Groups
from aggr.testing.laws import check


def positive_numbers(n: int, seed: int) -> pa.Array:
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(0, 40, n))
    return pa.array(values, mask=rng.random(n) < 0.1)


def texts(n: int, seed: int) -> pa.Array:
    rng = np.random.default_rng(seed)
    words = ["", "/", "/var/log/a", "/var/log/b", "/var/lib", "/värld", "/var/log/a/x"]
    return pa.array([None if rng.random() < 0.1 else words[k] for k in rng.integers(0, len(words), n)], pa.string())


def test_geomean_obeys_the_laws_and_agrees_with_statistics():
    def oracle(values: list[float]) -> float | None:
        return statistics.geometric_mean(values) if values else None

    function = Geomean()
    check(function, pa.float64(), source=positive_numbers)
    for seed in range(50):
        values = positive_numbers(seed, seed)
        result = function.finish(function.reduce(values, Groups.single(len(values))))[0].as_py()
        expected = oracle(values.drop_null().to_pylist())
        assert result == expected or result == pytest.approx(expected, rel=1e-13)


def test_geomean_takes_every_kind_of_number_and_refuses_other_values():
    function = Geomean()
    for dtype in (pa.int32(), pa.uint64(), pa.float32(), pa.decimal128(21, 2)):
        states = function.reduce(pa.array([2, 8]).cast(dtype), Groups.single(2))
        assert function.finish(states)[0].as_py() == pytest.approx(4)
    for invalid in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="geomean takes positive finite numbers"):
            function.reduce(pa.array([1.0, invalid]), Groups.single(2))
    with pytest.raises(TypeError, match="cannot take a column of type string"):
        function.reduce(pa.array(["a"]), Groups.single(1))


def test_prefix_obeys_the_laws_and_agrees_with_brute_force():
    check(Prefix(), pa.string(), source=texts)
    for seed in range(50):
        values = texts(seed % 5, seed)
        words = values.drop_null().to_pylist()
        starts = (word[:k] for word in words for k in range(len(word) + 1))
        longest = max((start for start in starts if all(w.startswith(start) for w in words)), key=len, default=None)
        states = Prefix().reduce(values, Groups.single(len(values)))
        assert Prefix().finish(states)[0].as_py() == longest
