"""With CI=true, a skipped test or file fails, except for the reasons that `conftest.py` lists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = {
    "test_tool.py": """
import pytest

@pytest.mark.skipif(True, reason="no Chromium is installed")
def test_needs_a_tool(): pass

@pytest.fixture
def tool(): pytest.skip("no tool is installed")

def test_needs_a_fixture(tool): pass

@pytest.mark.xfail(reason="known")
def test_fails_as_expected(): assert False
""",
    "test_root.py": """
import pytest

@pytest.mark.skipif(True, reason="root may write everywhere")
def test_needs_a_user(): pass

def test_passes(): pass
""",
    "test_package.py": """
import pytest

pytest.importorskip("a_package_that_does_not_exist")
""",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ci", "counts"),
    [("true", "1 passed, 1 skipped, 1 xfailed, 3 errors"), ("", "1 passed, 4 skipped, 1 xfailed")],
)
def test_skipped_tests_fail_in_ci(tmp_path, ci, counts):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors", tmp_path]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "CI": ci}, capture_output=True, text=True)
    assert f" {counts} in " in done.stdout.splitlines()[-1]
    assert ("no Chromium is installed\nWith CI=true" in done.stdout) is (ci == "true")
