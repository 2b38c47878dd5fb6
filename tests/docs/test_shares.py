"""The option ``--share`` divides the long tests: each is in one share, and the other tests are in every share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def collected(*options):
    """Return the names of the tests of a folder that pytest selects."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *options, "tests/streaming"], capture_output=True, text=True, check=True, cwd=ROOT)
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.long
def test_each_long_test_is_in_one_share_and_the_others_are_in_all():
    long_tests = collected("-m", "long")
    not_long = collected("-m", "not long")
    shares = [collected("--share", f"{part}/3") for part in (1, 2, 3)]
    assert len(long_tests) > 10
    assert len(not_long) > 100
    assert sorted(test for share in shares for test in share - not_long) == sorted(long_tests)
    assert all(not_long <= share and len(share) > len(not_long) for share in shares)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "1/3/3"])
def test_other_texts_are_refused(text):
    command = [sys.executable, "-m", "pytest", "--collect-only", "--share", text, "tests/files/test_bad_rows.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 4
    assert f"the share is K/N, such as 1/2, with K from 1 to N; got '{text}'" in done.stderr
