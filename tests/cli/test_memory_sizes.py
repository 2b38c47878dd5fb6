"""Amounts of memory as text."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tiltframe.cli.app import cli
from tiltframe.extend import memory_size


@pytest.mark.parametrize("value", [5, None, b"1GB"])
def test_only_texts_are_amounts_of_memory(value):
    with pytest.raises(TypeError, match="an amount of memory must be a text with a unit, such as '512MiB'; got "):
        memory_size(value)


@pytest.mark.parametrize("arguments", [["serve", "web"], ["rollup", "events.csv"]], ids=["serve", "rollup"])
def test_a_wrong_amount_is_an_error_that_names_the_option(arguments):
    done = CliRunner().invoke(cli, [*arguments, "--memory", "12 apples"])
    assert done.exit_code == 2
    assert "'--memory'" in done.output
    assert "'12 apples' is not an amount of memory; write an amount such as 500MB, 2GB or 4GiB" in done.output
