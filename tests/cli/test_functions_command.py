"""tiltframe functions: the catalogue as a table and as JSON, which agrees with what the functions declare."""

from __future__ import annotations

import inspect
import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import aggr
from aggr.catalogue import MEASURED, catalogue
from aggr.groups.groups import Groups
from tiltframe.cli.app import cli


def objects(*arguments: str) -> list[dict]:
    done = CliRunner().invoke(cli, ["functions", *arguments, "--format", "json"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.output.splitlines()]


def test_json_has_every_function_with_what_it_declares():
    found = {entry["name"]: entry for entry in objects()}
    assert list(found) == list(aggr.names())
    for name, entry in found.items():
        function = aggr.get(name)
        assert (entry["keeps"], entry["returns"], entry["guarantee"]) == (
            function.keeps, function.returns, function.guarantee,
        )  # fmt: skip
        assert list(entry["inputs"]) == list(function.inputs)
        assert entry["takes_weights"] == ("weight" in inspect.signature(aggr.caller(name)).parameters) or (
            "weight" in function.inputs
        )
        state = function().own_state
        shaping = {*state.parameters, *state.optional_parameters}
        assert set(entry["state_parameters"]) == shaping & set(entry["parameters"])
        assert set(entry["state"]) == set(function().own_state.fields)


def test_a_function_that_is_said_to_be_subtractable_is():
    table = pa.array([1.0, 2.0, 4.0])
    for entry in catalogue("sum", "var", "dds", "min", "approx_count_distinct"):
        function = aggr.get(entry.name)()
        states = function.reduce(table, Groups.each(3))
        if entry.is_subtractable:
            assert function.subtract(states, states).equals(function.zero(3, table.type))
        else:
            with pytest.raises(TypeError, match="rows cannot be subtracted"):
                function.subtract(states, states)


def test_names_and_aliases_choose_functions():
    [mean, var] = objects("mean", "var")
    assert (mean["name"], mean["aliases"], var["name"]) == ("avg", ["mean"], "var")
    assert mean["spark_sql"] == "aggr_avg"
    done = CliRunner().invoke(cli, ["functions", "var"])
    assert done.exit_code == 0
    assert "variance" in done.output
    assert "approx_count_distinct" not in done.output


def test_an_unknown_name_is_refused():
    done = CliRunner().invoke(cli, ["functions", "varr"])
    assert done.exit_code != 0
    assert "varr" in str(done.exception)


def test_figures_are_of_all_built_in_functions_and_plausible():
    assert MEASURED.exists()
    rng = np.random.default_rng(2)
    for entry in catalogue():
        assert entry.figures is not None, entry.name
        assert entry.figures.reduce_ns_per_row > 0
        assert set(entry.figures.bytes) >= {"1", "100"}
    values = rng.lognormal(3, 1, 100)
    [dds] = catalogue("dds")
    assert dds.figures.worst_relative_error <= 0.01
    bytes_of_state = aggr.Dds().reduce(pa.array(values), Groups.single(100)).nbytes
    assert 0.5 < dds.figures.bytes["100"] / bytes_of_state < 2
    assert Fraction(catalogue("sum")[0].figures.worst_relative_error) == 0
