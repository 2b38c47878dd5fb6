"""Copy the core without its extensions to a folder, and run its tests there.

python -m tests.core.export [PYTEST ARGUMENT…]    by default, the fast tests of `FAST`
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.core.extensions import FOLDERS, ROOT, is_of_an_extension, tests_of_extensions

FAST = (
    *("-n", "2", "--dist", "worksteal", "-m", "not spark and not slow and not long", "--few", "3"),
    *("tests/aggr", "tests/windows", "tests/frame", "tests/files", "tests/ordered", "tests/streaming"),
    *("tests/store", "tests/cli", "aggr", "windows", "tiltframe"),
)
FOLDER = ROOT / "build" / "core"
_PLACES = (*(f"{folder}/" for folder in FOLDERS), "tests/serve/")
# An editable installation finds modules of the complete tree that the export does not contain.
_ISOLATION = """import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if "_EditableFinder" not in str(finder)]
"""


def export_core(folder: Path) -> None:
    """Write the core into a folder: the files under version control, or not ignored, without extensions.

    Tests that import an extension belong to it, and stay behind.
    """
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    left_out = tests_of_extensions()
    for name in sorted(set(filter(None, names))):
        source, target = ROOT / name, folder / name
        if source.is_file() and source not in left_out and not name.startswith(_PLACES):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    _write_metadata(folder)
    (folder / "sitecustomize.py").write_text(_ISOLATION)


def core_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of processes that run the exported core in place of the installed packages."""
    return os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def _write_metadata(folder: Path) -> None:
    """Remove the entry points of extensions from pyproject.toml, and write those that remain as metadata."""
    project = folder / "pyproject.toml"
    lines = project.read_text(encoding="utf-8").splitlines(keepends=True)
    points = [re.fullmatch(r'[\w-]+ = "([\w.]+:.*)"\n', line) for line in lines]
    remaining = [
        line for line, point in zip(lines, points, strict=True) if not (point and is_of_an_extension(point[1]))
    ]
    project.write_text("".join(remaining), encoding="utf-8")
    declared = tomllib.loads("".join(remaining))["project"]
    info = folder / "tiltframe.egg-info"
    info.mkdir(exist_ok=True)
    (info / "PKG-INFO").write_text("\n".join(_metadata(declared)) + "\n")
    sections = [
        f"[{group}]\n" + "".join(f"{name} = {point}\n" for name, point in group_points.items())
        for group, group_points in declared["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(sections))


def _metadata(declared: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the metadata that an installation of the project has."""
    yield from ("Metadata-Version: 2.1", "Name: tiltframe", f"Version: {declared['version']}")
    yield from (f"Requires-Dist: {requirement}" for requirement in declared["dependencies"])
    for extra, requirements in declared["optional-dependencies"].items():
        yield f"Provides-Extra: {extra}"
        for requirement in requirements:
            text, semicolon, marker = requirement.partition(";")
            condition = f"({marker.strip()}) and " if semicolon else ""
            yield f"Requires-Dist: {text.strip()}; {condition}extra == '{extra}'"


def main(arguments: list[str]) -> int:
    """Export the core into `FOLDER`, and run pytest there; return its exit status.

    The code that numba has compiled stays in this folder for the next run.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file in FOLDER.rglob("*"):
        if file.is_file() and file.parent.name != "__pycache__":
            file.unlink()
    export_core(FOLDER)
    command = [sys.executable, "-m", "pytest", *(arguments or FAST)]
    return subprocess.run(command, cwd=FOLDER, env=core_environment(FOLDER), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
