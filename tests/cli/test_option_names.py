"""Error messages name the options of a running command, and otherwise the parameters in Python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from click.testing import CliRunner

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.cli.app import cli, main


def run_as_a_program(arguments):
    with pytest.raises(SystemExit):
        main(arguments)


def run_inside_a_program(arguments):
    assert "--points" in str(CliRunner().invoke(cli, arguments).exception)


@pytest.mark.store
@pytest.mark.parametrize("run", [run_as_a_program, run_inside_a_program])
def test_python_has_its_own_names_after_a_command(run, tmp_path):
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()})
    store = FrameStore(tmp_path / "store", frame)
    store.append(rollup(pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC"))}), frame), "w", 0)
    run(["query", str(tmp_path / "store"), "--per", "1h", "--points", "0"])
    with pytest.raises(ValueError, match=r"^measures is empty"):
        store.query("1h", measures=[])
