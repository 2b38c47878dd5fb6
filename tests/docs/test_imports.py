"""Modules import only from lower layers, without cycles between folders, and three of the four packages need no JVM."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STANDARD = sys.stdlib_module_names

MAY_IMPORT = {
    "aggr": {
        "pyarrow",
        "numpy",
        "numba",
        "sqlglot",
        "ddsketch",
        "google",
        "opentelemetry",
        "prometheus_client",
        "matplotlib",
    },
    "windows": {"pyarrow", "numpy", "aggr"},
    "tiltframe": {
        "pyarrow",
        "numpy",
        "click",
        "packaging",
        "rich",
        "deltalake",
        "adbc_driver_postgresql",
        "matplotlib",
        "prometheus_client",
        "promql_parser",
        "starlette",
        "uvicorn",
        "aggr",
        "windows",
    },
    "spark_udaf": {
        "pyarrow",
        "numpy",
        "click",
        "matplotlib",
        "pysail",
        "pyspark",
        "sqlglot",
        "pandas",
        "google",
        "aggr",
        "windows",
        "tiltframe",
    },
}

# From the bottom to the top: a module imports from its own layer and from those below it. A package alone stands for
# the files directly in it, and for its folders where they are not named themselves.
LAYERS = [
    [
        "aggr.arguments",
        "aggr.arrays",
        "aggr.call_text",
        "aggr.clocks",
        "aggr.duration",
        "aggr.entry_points",
        "aggr.extras",
        "aggr.remembered",
        "aggr.skipped_pandas",
        "aggr.time_zones",
    ],
    ["aggr.compiling"],
    ["aggr.arrow", "aggr.errors"],
    ["aggr.groups"],
    ["aggr.exact"],
    ["aggr.iso8601", "aggr.python_objects", "aggr.workers"],
    ["aggr.sql"],
    ["aggr.neighbours"],
    [
        "aggr.values",
        "aggr.excluded_counts",
        "aggr.fields",
        "aggr.parameters",
        "aggr.quantile_parameters",
        "aggr.quantile_methods",
        "aggr.input_types",
        "aggr.state_checks",
    ],
    ["aggr.state", "aggr.plain_state"],
    ["aggr.histograms", "aggr.distinct"],
    ["aggr.function_inputs"],
    ["aggr.function", "aggr.accessor", "aggr.registry"],
    ["aggr.measure"],
    ["aggr.functions"],
    ["aggr.tables"],
    ["aggr.testing"],
    ["aggr", "aggr.contrib"],
    ["aggr.interchange"],
    ["aggr.catalogue"],
    ["aggr.bench.timing", "aggr.bench.distributions", "aggr.bench.exact_statistics"],
    ["aggr.bench.exact", "aggr.bench.report", "aggr.bench.costs"],
    ["aggr.bench.sizes", "aggr.bench.memory", "aggr.bench.text_tables", "aggr.bench.plots"],
    ["aggr.bench.peers"],
    ["aggr.bench"],
    ["windows.timezone", "windows.period", "windows.contract"],
    ["windows.kinds"],
    ["windows"],
    ["windows.testing"],
    ["windows.ordered"],
    ["tiltframe.parameter_names"],
    [
        "tiltframe.caller_warnings",
        "tiltframe.memory_sizes",
        "tiltframe.metrics_text",
        "tiltframe.names",
        "tiltframe.text",
        "tiltframe.provenance",
        "tiltframe.regular_files",
        "tiltframe.event_time",
        "tiltframe.units_of_numbers",
        "tiltframe.near_in_time",
        "tiltframe.overlapping_windows",
        "tiltframe.ranges",
        "tiltframe.time_range",
    ],
    ["tiltframe.store_folders"],
    ["tiltframe.files"],
    ["tiltframe.tabular"],
    [
        "tiltframe.frame",
        "tiltframe.frame_description",
        "tiltframe.frame_levels",
        "tiltframe.instants",
        "tiltframe.merged_windows",
        "tiltframe.reducing",
        "tiltframe.level_chain",
        "tiltframe.exclusions",
    ],
    ["tiltframe.changed_frames", "tiltframe.rolling_up", "tiltframe.results", "tiltframe.spilled_states"],
    ["tiltframe.ordered"],
    ["tiltframe.streaming.policies"],
    ["tiltframe.streaming"],
    ["tiltframe.streaming.testing"],
    ["tiltframe.store.log"],
    ["tiltframe.store.backends"],
    ["tiltframe.store.backends.delta"],
    ["tiltframe.store.query"],
    ["tiltframe.store"],
    ["tiltframe.store.testing"],
    ["tiltframe"],
    ["tiltframe.cli"],
    ["tiltframe.capacity", "tiltframe.lookups", "tiltframe.serve", "tiltframe.store.backends.postgres"],
    ["tiltframe.command"],
    ["spark_udaf.versions"],
    ["spark_udaf.plan"],
    ["spark_udaf.batch"],
    ["spark_udaf.store"],
    ["spark_udaf.streaming"],
    ["spark_udaf.udaf"],
    ["spark_udaf"],
    ["spark_udaf.bench"],
    ["spark_udaf.demo", "spark_udaf.interchange", "spark_udaf.sail"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def modules() -> dict[str, Path]:
    modules_by_name = {}
    for package in MAY_IMPORT:
        for file in (ROOT / package).rglob("*.py"):
            parts = file.relative_to(ROOT).with_suffix("").parts
            modules_by_name[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return modules_by_name


MODULES = modules()


def imported(file: Path) -> set[str]:
    """Name the modules that a file imports; of our own, the very module that is loaded."""
    imported_modules = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            imported_modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative imports hide where they lead"
            full_names = {f"{node.module}.{alias.name}" for alias in node.names}
            imported_modules |= {name if name in MODULES else str(node.module) for name in full_names}
    return imported_modules


def layer_of(module: str) -> int:
    name = module
    while name not in RANK:
        name = name.rpartition(".")[0]
    return RANK[name]


@pytest.mark.slow
@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_what_they_may(package):
    for module, file in MODULES.items():
        if module.split(".")[0] == package:
            extra = {name.split(".")[0] for name in imported(file)} - STANDARD - MAY_IMPORT[package] - {package}
            assert not extra, f"{file.relative_to(ROOT)} imports {extra}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_run_downwards(module):
    for name in imported(MODULES[module]) & MODULES.keys():
        assert layer_of(name) <= layer_of(module), f"{module} imports {name}, which is above it"


@pytest.mark.slow
def test_no_circles():
    TopologicalSorter({module: imported(file) & MODULES.keys() for module, file in MODULES.items()}).prepare()


def imported_for_types(file: Path) -> set[str]:
    """Name the modules that a file imports for annotations only, in a block ``if TYPE_CHECKING``."""
    blocks = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.If)]
    return {
        str(node.module)
        for block in blocks
        if ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }


@pytest.mark.parametrize(("with_types", "limit"), [(True, 10), (False, 6)])
def test_chains_of_imports_in_the_store_do_not_grow(with_types, limit):
    """Each module of a chain imports the next one. The limits are the longest chains today, with imports for types
    and without them; they may fall, not rise.
    """
    names = {name for name in MODULES if name == "tiltframe.store" or name.startswith("tiltframe.store.")}
    store = {name for name in names if not name.startswith("tiltframe.store.backends.postgres")}  # an extension
    graph = {name: imported(MODULES[name]) & store - {name} for name in store}
    if not with_types:
        graph = {name: below - imported_for_types(MODULES[name]) for name, below in graph.items()}
    chains: dict[str, list[str]] = {}
    for name in TopologicalSorter(graph).static_order():
        chains[name] = [name, *max((chains[below] for below in graph[name]), key=len, default=[])]
    longest = max(chains.values(), key=len)
    assert len(longest) <= limit, " imports ".join(longest)


def folder_of(module: str) -> str:
    return module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]


def nested(first: str, other: str) -> bool:
    return f"{first}.".startswith(f"{other}.") or f"{other}.".startswith(f"{first}.")


@pytest.mark.slow
def test_folders_make_no_circle():
    graph: dict[str, set[str]] = {}
    for module, file in MODULES.items():
        if file.name != "__init__.py":  # a package's front door may lead anywhere below it
            used = {folder_of(name) for name in imported(file) & MODULES.keys()}
            graph.setdefault(folder_of(module), set()).update(u for u in used if not nested(u, folder_of(module)))
    TopologicalSorter(graph).prepare()


def kinds_in(home: str, *bases_of_all: str) -> set[str]:
    """Name the classes below a folder that derive from some, and these."""
    bases = {}
    for file in (ROOT / home).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
    kinds = set(bases_of_all)
    while more := {name for name, above in bases.items() if above & kinds} - kinds:
        kinds |= more
    return kinds


WINDOWS = kinds_in("windows", "TimeWindow")
POLICIES = kinds_in("tiltframe/streaming/policies", "EmitPolicy", "LatePolicy")


def asks_for_class(tree: ast.AST, kinds: set[str]) -> Iterator[int]:
    """Find the lines that tell values apart by class: isinstance, issubclass, type(…) is, match, __class__."""
    for node in ast.walk(tree):
        tested_class: ast.AST | None = None
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            tested_class = node.args[1]
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            of_type = any(isinstance(s, ast.Call) and getattr(s.func, "id", "") == "type" for s in sides)
            tested_class = (
                node if of_type or any(getattr(s, "attr", "") in ("__class__", "__name__") for s in sides) else None
            )
        elif isinstance(node, ast.MatchClass):
            tested_class = node.cls
        names = [] if tested_class is None else list(ast.walk(tested_class))
        names_in_test = {n.id for n in names if isinstance(n, ast.Name)} | {
            n.attr for n in names if isinstance(n, ast.Attribute)
        }
        names_in_test |= {n.value for n in names if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        if names_in_test & kinds:
            yield node.lineno


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted({*MAY_IMPORT, "benchmarks"} - {"windows"}))
def test_nobody_asks_a_window_for_its_class(package):
    assert {"TimeWindow", "Tumbling", "Hopping", "Session", "AllTime"} <= WINDOWS
    for file in (ROOT / package).rglob("*.py"):
        lines = list(asks_for_class(ast.parse(file.read_text()), WINDOWS))
        assert not lines, f"{file.relative_to(ROOT)}:{lines[0]} asks a window for its class"


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted({*MAY_IMPORT, "benchmarks"}))
def test_nobody_asks_a_policy_for_its_class_or_its_optional_parts(package):
    assert {"EmitPolicy", "ByClock", "AfterKeyExpire", "LatePolicy", "Buffer"} <= POLICIES
    home = ROOT / "tiltframe/streaming/policies"
    for file in (ROOT / package).rglob("*.py"):
        tree = ast.parse(file.read_text())
        lines = [] if home in file.parents else list(asks_for_class(tree, POLICIES))
        assert not lines, f"{file.relative_to(ROOT)}:{lines[0]} asks a policy for its class"
        if file.is_relative_to(home.parent):
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
            optional = [c.lineno for c in calls if c.func.id == "hasattr" or (c.func.id == "getattr" and c.args[2:])]
            assert not optional, f"{file.relative_to(ROOT)}:{optional[0]} asks for an optional part"


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(w, Tumbling)",
        "isinstance(w, windows.Hopping | Session)",
        "issubclass(type(w), (int, AllTime))",
        "type(w) is Tumbling",
        "Session == type(w)",
        "w.__class__ is AllTime",
        "type(w).__name__ == 'Session'",
        "match w:\n    case Tumbling(count=1): pass",
        "match w:\n    case windows.Session(): pass",
    ],
)
def test_asking_in_other_words_is_seen(text):
    assert list(asks_for_class(ast.parse(text), WINDOWS))
    assert not list(asks_for_class(ast.parse(re.sub("Tumbling|Hopping|Session|AllTime", "Other", text)), WINDOWS))


BACKENDS = ["tiltframe.store.backends.delta", "tiltframe.store.backends.postgres"]


def inside_of_a_backend(module: str, tree: ast.AST) -> Iterator[int]:
    """Find the lines that import a backend's inside, or ask for its class, in a module outside of it."""
    for node in ast.walk(tree):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for backend in BACKENDS:
            if any(nested(name, backend) and name.startswith(backend) for name in names) and not nested(
                module, backend
            ):
                yield node.lineno
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            class_names = {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(node.args[1])}
            if class_names & {"DeltaBackend", "PostgresBackend", "MemoryBackend"}:
                yield node.lineno


@pytest.mark.slow
def test_nobody_imports_a_backends_inside_or_asks_for_its_class():
    for module, file in MODULES.items():
        lines = list(inside_of_a_backend(module, ast.parse(file.read_text())))
        assert not lines, f"{file.relative_to(ROOT)}:{lines[0]} knows the inside of a backend"


@pytest.mark.parametrize(
    "text",
    [
        "from tiltframe.store.backends.delta.files import write_file",
        "from tiltframe.store.backends.delta import files",
        "import tiltframe.store.backends.postgres.address",
        "isinstance(backend, DeltaBackend)",
        "issubclass(type(backend), (int, postgres.PostgresBackend))",
    ],
)
def test_knowing_the_inside_of_a_backend_is_seen(text):
    assert list(inside_of_a_backend("tiltframe.store.changes.commit", ast.parse(text)))
    if "import" in text:
        inside = f"{BACKENDS['postgres' in text]}.backend"
        assert not list(inside_of_a_backend(inside, ast.parse(text)))


# Modules of the store whose ``__all__`` the reference documents: others enter the store through their names alone.
PUBLIC_OF_STORE = (
    "tiltframe.store",
    "tiltframe.store.backends",
    "tiltframe.store.closed_windows",
    "tiltframe.store.testing",
)


def exported(module: str) -> set[str]:
    """Read the ``__all__`` of a module."""
    for node in ast.parse(MODULES[module].read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{module} has no __all__")


def inside_of_the_store(tree: ast.AST) -> Iterator[str]:
    """Name what is imported of the store, but for names that its public modules export."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if f"{alias.name}.".startswith("tiltframe.store."))
        elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("tiltframe.store."):
            module = str(node.module)
            public = exported(module) if module in PUBLIC_OF_STORE else set()
            yield from (f"{module}.{alias.name}" for alias in node.names if alias.name not in public)
        elif isinstance(node, ast.ImportFrom) and node.module == "tiltframe":
            yield from (f"tiltframe.{alias.name}" for alias in node.names if alias.name == "store")


@pytest.mark.parametrize("package", ["tiltframe.serve", "tiltframe.cli", "spark_udaf"])
def test_a_store_is_entered_through_public_names(package):
    files = {module: file for module, file in MODULES.items() if nested(module, package)}
    assert files
    for module, file in files.items():
        inner = list(inside_of_the_store(ast.parse(file.read_text())))
        assert not inner, f"{module} imports {inner}"


@pytest.mark.parametrize("module", PUBLIC_OF_STORE)
def test_public_modules_of_the_store_stand_in_the_reference(module):
    reference = "".join(page.read_text() for page in (ROOT / "docs" / "reference" / "tiltframe").glob("*.md"))
    is_whole = f"automodule:: {module}\n   :members:" in reference
    assert is_whole or f"{module}." in reference


@pytest.mark.parametrize(
    "text",
    [
        "from tiltframe.store.query.execution import Answer",
        "from tiltframe.store import view",
        "from tiltframe.store.view import StoreView",
        "from tiltframe.store.backends.open import absolute_uri",
        "import tiltframe.store.log.records",
        "import tiltframe.store",
        "from tiltframe import store",
    ],
)
def test_entering_a_store_otherwise_is_seen(text):
    assert list(inside_of_the_store(ast.parse(text)))
    public = "from tiltframe.store import StoreView\nfrom tiltframe.store.backends import absolute_uri"
    assert not list(inside_of_the_store(ast.parse(public)))


@pytest.mark.slow
@pytest.mark.parametrize("package", ["aggr", "windows", "tiltframe", "tiltframe.cli"])
def test_no_pyspark_without_spark(package):
    script = f"import sys, {package}; assert not {{'pyspark', 'py4j'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_only_modules_with_another_way_touch_the_jvm():
    """But for the level of its logs while Ctrl-C is handled, if it is a child of this process."""
    with_another_way = {
        "plan/plain_scan.py",
        "versions/registration.py",
        "versions/data_sources.py",
        "versions/failed_query.py",
        "versions/java_objects.py",
    }
    for file in {*(ROOT / "spark_udaf").rglob("*.py")} - {ROOT / "spark_udaf" / name for name in with_another_way}:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                level_of_logs = file.name == "session.py" and node.attr == "sparkContext"
                assert level_of_logs or node.attr not in ("_jvm", "_jdf", "_jsparkSession", "sparkContext", "rdd"), file


def test_files_are_named_by_a_concept():
    for module in MODULES:
        assert module.rpartition(".")[2] not in ("utils", "util", "common", "helpers", "misc"), module


@pytest.mark.parametrize("package", sorted(name for name, file in MODULES.items() if file.name == "__init__.py"))
def test_nothing_exported_hides_a_module(package):
    tree = ast.parse(MODULES[package].read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names = defined | {alias.asname or alias.name for node in imports for alias in node.names}
    modules = {f"{node.module}.{alias.name}" for node in imports for alias in node.names} & MODULES.keys()
    hidden = {name for name in names if f"{package}.{name}" in MODULES} - {name.rpartition(".")[2] for name in modules}
    assert not hidden, f"{package} exports {hidden}, which are also modules of it"


# PySpark's parts without a promise of stability. spark_udaf.versions alone may know them, and ask for versions.
INTERNALS = (
    *("py4j", "pyspark.cloudpickle", "pyspark.core", "pyspark.errors.exceptions", "pyspark.java_gateway"),
    *("pyspark.serializers", "pyspark.sql.classic", "pyspark.sql.connect", "pyspark.sql.pandas", "pyspark.sql.udf"),
    *("pyspark.sql.utils", "pyspark.util", "pyspark.worker"),
)
JAVA_OBJECTS = re.compile(r"_j(c|conf|df|map|sc|schema|sparkSession|udf|vm)|_gateway|_sc")


def knowledge_of_versions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Find lines that know PySpark's internals, or ask which version or feature it has."""
    of_pyspark = {"pyspark"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("pyspark."):
            of_pyspark |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        if any(f"{name}.".startswith(f"{internal}.") for name in names for internal in INTERNALS):
            yield node.lineno, "knows an internal module of PySpark"
        text = node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else ""
        if isinstance(text, str) and JAVA_OBJECTS.fullmatch(text):
            yield node.lineno, "knows an object of the JVM"
        if isinstance(node, ast.Attribute) and node.attr in ("__version__", "version"):
            owner = getattr(node.value, "id", getattr(node.value, "attr", ""))
            if owner == "pyspark" or (node.attr == "version" and owner in ("spark", "session", "sparkSession")):
                yield node.lineno, "asks for a version"
        is_test = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("hasattr", "getattr")
        if is_test and getattr(node.args[0], "id", "") in of_pyspark:
            yield node.lineno, "asks for a feature"


@pytest.mark.slow
def test_versions_of_pyspark_are_known_in_one_folder():
    for module, file in MODULES.items():
        if module.startswith("spark_udaf") and not module.startswith("spark_udaf.versions"):
            seen = list(knowledge_of_versions(ast.parse(file.read_text())))
            assert not seen, f"{file.relative_to(ROOT)}:{seen[0][0]} {seen[0][1]}"


@pytest.mark.parametrize(
    "text",
    [
        "import pyspark.util",
        "from pyspark.sql.pandas.types import to_arrow_type",
        "from pyspark import cloudpickle",
        "importlib.import_module('pyspark.errors.exceptions.captured')",
        "df._jdf.queryExecution()",
        "getattr(session, '_jsparkSession', None)",
        "pyspark.__version__ < '4'",
        "df.sparkSession.version",
        "from pyspark.sql import functions as F\nhasattr(F, 'arrow_udf')",
        "from pyspark.sql import GroupedData\ngetattr(GroupedData, 'transformWithState', None)",
    ],
)
def test_knowledge_of_versions_is_seen(text):
    assert list(knowledge_of_versions(ast.parse(text)))


def test_public_parts_of_pyspark_are_not_taken_for_internals():
    public = "from pyspark.sql import functions as F, types\nfrom pyspark.errors import PySparkException\nF.max('x')"
    assert not list(knowledge_of_versions(ast.parse(public)))


def functions_for_tasks(tree: ast.AST) -> Iterator[tuple[int, bool]]:
    """Find the lines that send a function to tasks, and whether it is sent with the version of the driver."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("mapInArrow", "mapInPandas"):
            yield node.lineno, getattr(getattr(node.args[0], "func", None), "id", "") == "TaskFunction"


@pytest.mark.slow
def test_functions_for_tasks_are_sent_with_the_version():
    sent = {
        f"{file.relative_to(ROOT)}:{line}": is_versioned
        for module, file in MODULES.items()
        if nested(module, "spark_udaf")
        for line, is_versioned in functions_for_tasks(ast.parse(file.read_text()))
    }
    assert len(sent) > 10
    assert all(sent.values()), [place for place, is_versioned in sent.items() if not is_versioned]


def objects_for_tasks(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Find the classes whose objects Spark sends to tasks, and whether they are sent with the version of the driver."""
    for node in ast.walk(tree):
        bases = {base.id for base in node.bases if isinstance(base, ast.Name)} if isinstance(node, ast.ClassDef) else ()
        if isinstance(node, ast.ClassDef) and {"StatefulProcessor", "DataSourceReader"} & set(bases):
            yield node.name, "SentWithVersion" in bases


def test_objects_for_tasks_are_sent_with_the_version():
    trees = [ast.parse(file.read_text()) for module, file in MODULES.items() if nested(module, "spark_udaf")]
    sent = dict(pair for tree in trees for pair in objects_for_tasks(tree))
    assert sent == dict.fromkeys(["PandasShardWindows", "ShardWindows", "TiltframeReader"], True)
