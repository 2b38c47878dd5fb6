"""tests/mutation.toml names files, tests and code that exist."""

from __future__ import annotations

import tomllib

import pytest

from tests.docs.pages import ROOT

LIST = ROOT / "tests" / "mutation.toml"


@pytest.mark.skipif(not LIST.exists(), reason="this is not the repository")
def test_files_tests_and_survivors_exist():
    listed = tomllib.loads(LIST.read_text())
    files = {file for code in listed["code"] for file in code["files"]}
    tests = {f"tests/{test}.py" for code in listed["code"] for test in code["tests"]}
    assert sorted(path for path in files | tests if not (ROOT / path).is_file()) == []
    survivors = listed["survivors"]
    assert [entry for entry in survivors if entry["before"] not in (ROOT / entry["file"]).read_text()] == []
    assert {entry["file"] for entry in survivors} <= files
