"""The core does not name its extensions, and extensions use public names of the core. Exceptions are counted, with
reasons.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.core.export import core_environment, export_core
from tests.core.extensions import EXTENSIONS, ROOT, entry_points, extension_of, imported_names, is_of_an_extension

PACKAGES = ("aggr", "windows", "tiltframe", "spark_udaf")
# Their ``__all__`` is what a stranger's plug-in may import.
PUBLIC = (
    *("aggr", "aggr.extend", "aggr.extend.arguments", "aggr.extend.columns", "aggr.extend.exact", "aggr.extend.hashes"),
    *("aggr.extend.histograms", "aggr.extend.lists", "aggr.extend.states", "aggr.extend.tables", "aggr.sql"),
    *(
        "aggr.contrib",
        "aggr.interchange.otlp_metrics",
        "aggr.interchange.prometheus",
        "windows",
        "windows.ordered",
        "tiltframe",
        "tiltframe.extend",
        "tiltframe.streaming",
    ),
    *("tiltframe.streaming.policies", "tiltframe.store", "tiltframe.store.backends", "spark_udaf", "spark_udaf.extend"),
)
# How many other names of the core each extension imports. These numbers only fall.
CEILING = {
    # It converts the bytes of states, so it reads the layout of their buckets and registers.
    "interchange": 10,
    # It measures the steps of a rollup and of a commit one by one.
    "capacity": 8,
}


def modules() -> dict[str, Path]:
    """Return the modules of all packages by their full names."""
    files = [file.relative_to(ROOT) for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    return {".".join(file.with_suffix("").parts).removesuffix(".__init__"): ROOT / file for file in files}


MODULES = modules()


# Modules of the core that name an extension, each with what it may name.
KNOWN = {"aggr": {"aggr.contrib", "aggr.contrib.*"}}  # type checkers do not read entry points


def names_of_extensions(tree: ast.AST) -> set[str]:
    """Return the modules of extensions that a file imports, or that a text in it names."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    dotted = {text for text in texts if re.fullmatch(r"\w+(\.\w+)+(:\w+)?", text)}
    return {name for name in imported_names(tree) | dotted if extension_of(name.partition(":")[0])}


def test_the_core_names_no_extension():
    for module, file in MODULES.items():
        if extension_of(module) is None:
            named = names_of_extensions(ast.parse(file.read_text(encoding="utf-8"))) - KNOWN.get(module, set())
            assert not named, f"{module} of the core names {sorted(named)}"


@pytest.mark.parametrize(
    "text",
    [
        "from tiltframe.serve.command import serve",
        "from tiltframe import serve",
        "from aggr import contrib",
        "import aggr.interchange.hdr_v2",
        "_POSTGRES = ('tiltframe.store.backends.postgres.backend', 'PostgresBackend')",
        "load('tiltframe.capacity:explain')",
    ],
)
def test_naming_an_extension_is_seen(text):
    assert names_of_extensions(ast.parse(text))
    core = re.sub("serve|interchange|postgres|capacity|contrib", "store", text)
    assert not names_of_extensions(ast.parse(core))


@cache
def public_names(module: str) -> frozenset[str]:
    """Return the names that a public module exports."""
    return frozenset(importlib.import_module(module).__all__)


def private_imports(module: str, tree: ast.AST) -> set[str]:
    """Return what a module of an extension imports from the core or from other extensions, but for public names."""
    private = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            private |= {alias.name for alias in node.names if alias.name.split(".")[0] in PACKAGES}
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in PACKAGES:
            source = str(node.module)
            if extension_of(source) != extension_of(module):
                public = public_names(source) if source in PUBLIC else frozenset()
                private |= {f"{source}.{alias.name}" for alias in node.names if alias.name not in public}
    return private - set(PUBLIC)


def test_extensions_use_public_names():
    private: dict[str, set[str]] = {extension: set() for extension in EXTENSIONS}
    for module, file in MODULES.items():
        extension = extension_of(module)
        if extension is not None:
            private[extension] |= private_imports(module, ast.parse(file.read_text(encoding="utf-8")))
    counts = {extension: len(names) for extension, names in private.items()}
    above = {
        extension: sorted(private[extension]) for extension in counts if counts[extension] > CEILING.get(extension, 0)
    }
    assert not above, f"use public names, such as those of aggr.extend, instead of some of {above}"


@pytest.mark.parametrize("text", ["from aggr.arguments import shown", "import aggr.exact", "from aggr import exact"])
def test_private_names_are_seen(text):
    assert private_imports("aggr.interchange.hdr_v2", ast.parse(text))
    assert not private_imports("aggr.interchange.hdr_v2", ast.parse("from aggr.extend import Groups\nimport aggr"))


def test_entry_points_refer_to_objects_of_this_tree():
    points = Counter(value.partition(":")[0] for group in entry_points().values() for value in group.values())
    assert points.keys() <= MODULES.keys()
    registered = {extension_of(module) for module in points} - {None}
    assert registered == EXTENSIONS.keys()


IN_THE_CORE = """
import importlib, pkgutil, sys
from importlib.metadata import entry_points

import aggr, pyarrow as pa, tiltframe, windows
from tiltframe import FrameStore, TiltFrame, finish, rollup
from tiltframe.cli.app import cli
from tiltframe.store import StoreError

for package in (aggr, windows, tiltframe):
    assert package.__file__.startswith(sys.argv[1]), package
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
folder = sys.argv[1] + "/store"
frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "p": aggr.dds("ms")})
rows = pa.table({"ts": [0, 500, 61_000], "ms": [1.0, 2.0, 4.0]})
FrameStore(folder, frame).append(rollup(rows, frame), "first", 1)
assert FrameStore(folder).query(per="1m").column("n").to_pylist() == [2, 1]
assert "sum" in aggr.names() and "rate" not in aggr.names()
assert not hasattr(aggr, "rate") and not hasattr(aggr, "Rate")
assert not {"serve", "explain"} & set(cli.list_commands(None))
assert {"rollup", "query"} <= set(cli.list_commands(None))
assert not hasattr(tiltframe, "explain")
try:
    FrameStore("postgresql://user@host/database")
except StoreError as error:
    print(error)
print("the core stands alone")
"""


@pytest.mark.long
@pytest.mark.slow
def test_the_core_works_without_extensions(tmp_path):
    export_core(tmp_path)
    for folders in EXTENSIONS.values():
        assert not any((tmp_path / folder).exists() for folder in folders)
    assert not any(is_of_an_extension(line) for line in (tmp_path / "pyproject.toml").read_text().split('"'))
    command = [sys.executable, "-c", IN_THE_CORE, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=core_environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "the core stands alone"
