"""Names that tests and benchmarks use exist. Type checkers do not read tests, and some tests take long."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("aggr", "windows", "tiltframe", "spark_udaf")
FILES = [
    file
    for folder in ("tests", "benchmarks")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if "bad_inputs" not in file.parts
]


def module_named(name: str) -> ModuleType | None:
    """Return a module of the packages, or None if there is no such module or a package that it needs is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def imports_of(tree: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Yield the module, the name and the local name of each name that a file imports from the packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in PACKAGES:
            for alias in node.names:
                yield node.module, alias.name, alias.asname or alias.name


def assigned_attributes(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the variable and the attribute of each assignment such as ``copying._SECONDS = 0.0``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            yield node.value.id, node.attr


def missing_names(tree: ast.AST) -> list[str]:
    """Return the names that a file imports from the packages, or assigns in their modules, and that do not exist."""
    missing = []
    modules: dict[str, ModuleType] = {}
    for module_name, name, local_name in imports_of(tree):
        module = module_named(module_name)
        submodule = module_named(f"{module_name}.{name}") if module is None or not hasattr(module, name) else None
        if module is not None and submodule is None and not hasattr(module, name):
            missing.append(f"{module_name}.{name}")
        value = submodule or getattr(module, name, None)
        if isinstance(value, ModuleType):
            modules[local_name] = value
    missing += [
        f"{modules[variable].__name__}.{attribute}"
        for variable, attribute in assigned_attributes(tree)
        if variable in modules and not hasattr(modules[variable], attribute)
    ]
    return missing


def test_names_that_tests_and_benchmarks_use_exist():
    missing = {
        str(file.relative_to(ROOT)): names
        for file in FILES
        if (names := missing_names(ast.parse(file.read_text(encoding="utf-8"))))
    }
    assert not missing, f"use the present names instead of {missing}"


@pytest.mark.parametrize(
    "text",
    [
        "from tiltframe.store.changes.copying import copied",
        "def test():\n    from aggr.groups.groups import group",
        "from tiltframe.store.changes import copying\ncopying._SECONDS = 0.0",
    ],
)
def test_a_missing_name_is_seen(text):
    assert missing_names(ast.parse(text))
    assert not missing_names(ast.parse("from tiltframe.store.changes import copying\ncopying._PROGRESS_SECONDS = 0.0"))
