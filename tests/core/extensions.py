"""The folders of the extensions in this tree, and the extensions' tests.

The core does not use this list. It is read by the export of the core, and by the tests of its imports.
"""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

EXTENSIONS: dict[str, tuple[str, ...]] = {
    "contrib": ("aggr/contrib",),
    "interchange": ("aggr/interchange", "spark_udaf/interchange"),
    "lookups": ("tiltframe/lookups",),
    "capacity": ("tiltframe/capacity",),
    "serve": ("tiltframe/serve",),
    "postgres": ("tiltframe/store/backends/postgres",),
    "sail": ("spark_udaf/sail",),
}
FOLDERS = tuple(folder for folders in EXTENSIONS.values() for folder in folders)


def extension_of(module: str) -> str | None:
    """Return the extension that contains a module, by the module's full name, or None for a module of the core.

    >>> extension_of("aggr.interchange.hdr_v2"), extension_of("aggr.histograms.column")
    ('interchange', None)
    """
    path = module.replace(".", "/") + "/"
    names = [name for name, folders in EXTENSIONS.items() for folder in folders if path.startswith(f"{folder}/")]
    return names[0] if names else None


def imported_names(tree: ast.AST) -> set[str]:
    """Return the full names of the modules and objects that a file imports or reads as attributes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
    return names


@cache
def entry_points() -> dict[str, dict[str, str]]:
    """Return the entry points of pyproject.toml: the object of each name, by group."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups: dict[str, dict[str, str]] = project["entry-points"]
    return groups


def is_of_an_extension(point: str) -> bool:
    """Return whether an entry point refers to an object of an extension.

    >>> is_of_an_extension("tiltframe.serve.command:serve [serve]"), is_of_an_extension("spark_udaf.demo:demo [demo]")
    (True, False)
    """
    return extension_of(point.partition(":")[0]) is not None


@cache
def added_names() -> frozenset[str]:
    """Return the full names that extensions add to packages: ``tiltframe.explain``, ``aggr.rate``, ``aggr.Rate``."""
    names = set()
    for group, points in entry_points().items():
        package = "aggr" if group == "aggr.functions" else group.removesuffix(".names")
        for name, point in points.items():
            if is_of_an_extension(point):
                names |= {f"{package}.{name}", f"{package}.{point.rpartition(':')[2]}"}
    return frozenset(names)


def tests_of_extensions() -> set[Path]:
    """Return the Python files of tests/ that import an extension, or another such file, and those in its folder."""
    files = list((ROOT / "tests").rglob("*.py"))
    names_of_file = {file: imported_names(ast.parse(file.read_text(encoding="utf-8"))) for file in files}
    chosen = {file for file, names in names_of_file.items() if any(map(_is_added, names)) or _is_in_own_folder(file)}
    while True:
        modules = {".".join(file.relative_to(ROOT).with_suffix("").parts) for file in chosen}
        more = {file for file, names in names_of_file.items() if names & modules} - chosen
        if not more:
            return chosen
        chosen |= more


def _is_added(name: str) -> bool:
    return extension_of(name) is not None or name in added_names()


def _is_in_own_folder(file: Path) -> bool:
    return file.parent.name in EXTENSIONS
