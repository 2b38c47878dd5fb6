"""Extras: using a package that is not installed raises an error that names the extra, and everything else works."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.extras import extension_pages, install_lines, page_requirements, sections
from tests.docs.pages import blocks

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = ("pyarrow", "numpy", "numba", "sqlglot", "tzdata")
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
OPTIONAL_MODULES = (
    "deltalake",
    "adbc_driver_postgresql",
    "click",
    "packaging",
    "rich",
    "pandas",
    "pyspark",
    "matplotlib",
    "ddsketch",
    "hdrh",
    "google",
    "opentelemetry",
    "prometheus_client",
    "starlette",
    "uvicorn",
)


OTLP = "import pyarrow as pa; from aggr import Exponential; from aggr.interchange.otlp import to_otlp"
PROMETHEUS = "from aggr.interchange import prometheus_text, prometheus_messages"
SKETCHES = "import pyarrow as pa; from aggr import Dds; from aggr.interchange.ddsketch_proto import *"


def run(script, *names):
    done = subprocess.run([sys.executable, "-c", WITHOUT.format(names=names) + script], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_core_is_what_local_frames_need():
    assert sorted(text.partition(">")[0] for text in PROJECT["dependencies"]) == sorted(CORE)


@pytest.mark.slow
def test_frames_and_a_store_in_memory_need_the_core_alone():
    script = """
import aggr, pyarrow as pa, tiltframe
from tiltframe.store.testing import MemoryBackend
frame = tiltframe.TiltFrame(["1s", "1m"], "ts", {"n": aggr.count(), "x": aggr.hdr("x")}, ["k"])
rows = pa.table({"ts": [0, 1500], "k": ["a", "b"], "x": [1, 2]})
store = tiltframe.FrameStore(MemoryBackend("m"), frame)
store.append(tiltframe.rollup(rows, frame), "w", 1)
print(store.query("1m", keys=[], flat=True)["x_count"].to_pylist())
"""
    assert run(script, *OPTIONAL_MODULES) == (0, "[2]\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "missing", "extra"),
    [
        ("import tiltframe; tiltframe.FrameStore('somewhere')", "deltalake", "delta"),
        ("import tiltframe; tiltframe.FrameStore('postgresql://h/d')", "adbc_driver_postgresql", "postgres"),
        ("from tiltframe_command import main; main()", "click", "cli"),
        ("from tiltframe.store.plot import plot; plot(None, 'n')", "matplotlib", "plot"),
        ("import sys; sys.argv = ['', 'serve', 'x']; from tiltframe_command import main; main()", "uvicorn", "serve"),
        ("import spark_udaf", "pyspark", "spark-local"),
        ("import pyarrow as pa, tiltframe; tiltframe.to_pandas(pa.table({'n': [1]}))", "pandas", "spark"),
        (f"{SKETCHES}; to_dds_proto(Dds().zero(1, pa.float64()), Dds())", "ddsketch", "sketches"),
        (f"{SKETCHES}; from_dds_proto(pa.array([b'']), Dds())", "google", "sketches"),
        (f"{OTLP}; to_otlp(Exponential().zero(1, pa.float64()), Exponential())", "opentelemetry", "otlp"),
        (f"{PROMETHEUS}; prometheus_messages.prometheus_message('Histogram')", "google", "prometheus"),
        (f"{PROMETHEUS}; prometheus_text.classic_buckets('', 'x')", "prometheus_client", "prometheus"),
    ],
)
def test_what_is_missing_is_one_sentence(script, missing, extra):
    status, out, err = run(script, missing)
    assert status != 0
    assert out == ""
    assert f"pip install 'tiltframe[{extra}]'" in err.splitlines()[-1]
    assert extra in PROJECT["optional-dependencies"]


# one start for all commands; each asks in a fork, so that modules that one loads are not there for the others
HELP_IN_FORKS = """
import os, sys
import tiltframe.cli
from tiltframe_command import main
for command in commands:
    child = os.fork()
    if child == 0:
        sys.argv = ["tiltframe", command, "--help"]
        main()
        sys.exit()
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"{command}: {status}")
"""
NOT_OF_CLI = [name for name in OPTIONAL_MODULES if name not in ("click", "packaging", "rich", "deltalake")]


@pytest.mark.slow
@pytest.mark.long
def test_commands_are_listed_and_helped_with_the_extra_cli_alone():
    """Commands that other packages add are listed, and say what they need; nothing else of them is loaded."""
    begin = "import sys; from tiltframe_command import main; sys.argv = "
    status, out, err = run(f"{begin}['tiltframe', '--help']; main()", *NOT_OF_CLI)
    assert (status, err) == (0, "")
    assert re.search(r"^  demo +Not installed: the command demo needs the extra demo", out, flags=re.M)
    commands = re.findall(r"^  ([a-z]+) ", out, flags=re.M)
    status, _, err = run(f"commands = {commands}\n{HELP_IN_FORKS}", *NOT_OF_CLI)
    assert (status, err) == (0, "")
    status, out, err = run(f"{begin}['tiltframe', 'demo', 'somewhere']; main()", *NOT_OF_CLI)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"tiltframe: the command demo needs the extra demo: .*\n", err)


@pytest.mark.long
@pytest.mark.slow
def test_spark_needs_no_other_extra():
    status, _, err = run("import spark_udaf", *(name for name in OPTIONAL_MODULES if name not in ("pyspark", "pandas")))
    assert (status, err) == (0, "")


@pytest.mark.slow
def test_an_old_pyspark_is_one_sentence():
    from spark_udaf.versions.features import is_supported

    assert all(map(is_supported, ("3.5.0", "4.0.5", "4.10.0.dev1", "5.0.0")))
    status, out, err = run("import pyspark; pyspark.__version__ = '3.4.4'; import spark_udaf")
    assert (status, out) == (1, "")
    sentence = "ImportError: spark_udaf needs PySpark 3.5 or newer; this is 3.4.4: upgrade pyspark"
    assert err.splitlines()[-1] == sentence


def test_each_extra_has_its_lines():
    """`make extras` follows them, each in an empty environment."""
    documented = set(PROJECT["optional-dependencies"]) - {"bench", "dev", "mutation", "test"}
    page = sections()
    assert set(page) == {"installing", *documented}
    listed = page["installing"].partition("| extra | for |")[2]
    assert sorted(re.findall(r"^\| \[`([a-z-]+)`\]", listed, flags=re.M)) == sorted(documented)
    assert all(f"$ pip install '.[{extra}]'" in page[extra] for extra in documented)


def test_each_page_of_an_extension_point_can_be_followed_alone():
    """`make extras` follows them, each in an empty environment."""
    pages = extension_pages()
    table = re.findall(r"\]\(([\w/-]+\.md)\) \|$", (ROOT / "docs" / "extending.md").read_text(), flags=re.M)
    assert sorted(pages) == sorted(table)
    assert len(pages) >= 7
    for page in pages:
        text = (ROOT / "docs" / page).read_text()
        assert len(install_lines(text)) == 1, page
        assert blocks(text), page
    assert any(word.startswith(f"{ROOT}[") for word in page_requirements(pages))


@pytest.mark.parametrize("page", ["start.md", *(f"how-to/{path.name}" for path in ROOT.glob("docs/how-to/*.md"))])
def test_each_page_installs_from_the_source(page):
    text = (ROOT / "docs" / page).read_text()
    command = re.search(r"pip install '\.\[([a-z,-]+)\]'", text)
    assert command
    assert set(command[1].split(",")) <= set(PROJECT["optional-dependencies"])
    assert text.index(command[0]) < (text + "pip install 'tiltframe[").index("pip install 'tiltframe[")


def test_the_constraints_pin_all_that_development_installs():
    """Follow the requirements of the extras dev and bench, as they are installed here, to their ends."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line) for line in lines)
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines}
    extras = PROJECT["optional-dependencies"]
    open_ends = [*PROJECT["dependencies"], *(text for name in extras for text in extras[name])]
    seen = set()
    while open_ends:
        requirement = Requirement(open_ends.pop())
        name = canonicalize_name(requirement.name)
        if name == "tiltframe" or (name, *sorted(requirement.extras)) in seen:
            continue
        seen.add((name, *sorted(requirement.extras)))
        assert name in pinned, f"constraints.txt has no {name}"
        with suppress(PackageNotFoundError):  # of the extra bench, which `make bench` installs
            requirements = [Requirement(text) for text in requires(name) or ()]
            sets = [{"extra": extra} for extra in ("", *requirement.extras)]
            open_ends += [str(part) for part in requirements if not part.marker or any(map(part.marker.evaluate, sets))]


# tools, and a client of Spark Connect, for which `make test-oldest` installs nothing
NOT_IN_OLDEST = ("bench", "connect", "dev", "docs", "mutation", "test")


def test_the_oldest_versions_are_the_lower_bounds():
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints-oldest.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    extras = PROJECT["optional-dependencies"]
    requirements = [
        *PROJECT["dependencies"],
        *(text for name in extras if name not in NOT_IN_OLDEST for text in extras[name]),
    ]
    for text in requirements:
        name, _, bound = text.partition(">=")
        bound = bound.partition(",")[0]
        if bound:
            assert pinned[name.partition("[")[0]].startswith(bound), text
