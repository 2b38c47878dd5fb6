"""Importing a package does not load heavy libraries. They are loaded by the first call that needs them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import aggr
from aggr.functions.hdrhistogram import Layout

HEAVY = {
    "adbc_driver_postgresql",
    "concurrent.futures",
    "ddsketch",
    "deltalake",
    "difflib",
    "google.protobuf",
    "http",
    "matplotlib",
    "numba",
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyspark",
    "rich",
    "sqlglot",
}


OF_FUNCTIONS = {"importlib.metadata"}  # to look for those of other packages


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "import aggr",
        "import windows",
        "import tiltframe",
        "import tiltframe.cli",
        "import aggr; aggr.names(), aggr.Hdr(digits=5).own_state.fields",
        "from tiltframe.cli import main\ntry: main(['query', '--help'])\nexcept SystemExit: pass",
    ],
)
def test_heavy_libraries_are_loaded_when_they_are_used(script):
    heavy = HEAVY if "names()" in script or "--help" in script else HEAVY | OF_FUNCTIONS
    script += f"\nimport sys; print('loaded:', *({heavy!r} & set(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert output.splitlines()[-1] == "loaded:"


@pytest.mark.slow
def test_workers_of_spark_do_not_load_what_only_the_driver_uses():
    script = "import sys, spark_udaf.daemon; print(*{'sqlglot', 'matplotlib', 'numba', 'deltalake'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert output.split() == []


def test_functions_of_this_package_pass_the_checks_of_registering():
    for name in aggr.names():
        assert aggr.register(aggr.get(name)) is aggr.get(name)


@pytest.mark.parametrize("digits", range(1, 6))
def test_the_last_index_of_hdr_is_that_of_the_greatest_whole_number(digits):
    layout = Layout(digits)
    assert layout.last_index == layout.index(np.array([2**63 - 1]))[0]


@pytest.mark.slow
def test_a_rollup_without_expressions_loads_neither_the_parser_nor_the_display(tmp_path):
    (tmp_path / "rows.csv").write_text("ts,host,ms\n2024-05-01T00:00:00Z,a,1.5\n")
    options = ["--time", "ts", "--key", "host", "--levels", "1m,1h", "--measure", "p=dds(ms)", "--store", "web"]
    script = (
        f"from tiltframe.cli import main; main({['rollup', 'rows.csv', *options]})\n"
        "import sys; print('loaded:', *({'rich', 'sqlglot'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert output.splitlines()[-1] == "loaded:"


@pytest.mark.slow
def test_a_condition_loads_the_parser():
    script = "import sys, aggr; aggr.sum('x', where='x > 0'); assert 'sqlglot' in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
