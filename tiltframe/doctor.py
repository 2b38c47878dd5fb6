"""The checks of ``tiltframe doctor``, which show whether this machine meets the requirements of tiltframe and Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import TYPE_CHECKING

from tiltframe.java import NoJava, find_java

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# extras for developers, which users do not install
_FOR_DEVELOPMENT = ("bench", "dev", "docs", "mutation", "test")
# the memory that a JVM and a Python worker need, in bytes
_REQUIRED_MEMORY = 2 << 30


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    ``about`` is the subject, such as "Java", and ``found`` is the result, such as a version. If ``ok`` is false, ``do``
    is advice on how to meet the requirement. ``required`` is false for packages that only an extra needs.
    """

    about: str
    ok: bool
    found: str
    do: str = ""
    required: bool = True


def examine() -> list[Finding]:
    """Run all checks, and return their results. Java is started to read its version; Spark is not started."""
    return [*_check_packages(), _check_java(), _check_workers(), _check_memory(), _check_cache()]


def _check_packages() -> Iterator[Finding]:
    """Yield a result for Python, and one for each package that tiltframe or an extra of tiltframe requires. A result
    says whether an allowed version is installed.
    """
    is_new_enough = sys.version_info >= (3, 11)
    yield Finding(
        "Python", is_new_enough, sys.version.split()[0], "" if is_new_enough else "install Python 3.11 or newer"
    )
    try:
        from packaging.requirements import Requirement  # imported here, because it is one of the packages to check
    except ModuleNotFoundError:
        yield Finding("packaging", False, "not installed", "pip install packaging; other packages are not checked")
        return
    all_extras = metadata("tiltframe").get_all("Provides-Extra") or []
    user_extras = [extra for extra in all_extras if extra not in _FOR_DEVELOPMENT]
    seen = {"tiltframe"}
    for requirement in map(Requirement, requires("tiltframe") or []):
        extra = _first_extra(requirement, user_extras)
        if extra is None or requirement.name in seen:
            continue
        seen.add(requirement.name)
        yield _check_package(requirement, extra)


def _first_extra(requirement: Requirement, extras: Sequence[str]) -> str | None:
    """Return the name of the first extra in ``extras`` that has the requirement ``requirement``. Return "" if tiltframe
    itself has this requirement. Return None if the requirement belongs to other extras, or does not apply to this
    machine, for example because it is only for another operating system.
    """
    for extra in ("", *extras):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            return extra
    return None


def _check_package(requirement: Requirement, extra: str) -> Finding:
    """Return whether a package is installed in a version that a requirement allows. ``extra`` is the result of
    `_first_extra`.
    """
    name = requirement.name
    name_with_bounds = f"{name}{requirement.specifier}"
    try:
        installed = version(name)
    except PackageNotFoundError:
        if not extra:
            return Finding(name, False, "not installed", f"pip install '{name_with_bounds}'")
        advice = f"only for the extra {extra}: pip install 'tiltframe[{extra}]'"
        return Finding(name, False, "not installed", advice, required=False)
    if not requirement.specifier.contains(installed, prereleases=True):
        return Finding(name, False, installed, f"pip install --upgrade '{name_with_bounds}'")
    return Finding(name, True, installed)


def _check_java() -> Finding:
    try:
        java = find_java()
    except NoJava as error:
        return Finding("Java", False, error.problem, error.advice)
    return Finding("Java", True, f"version {java.version} at {java.program}")


def _check_workers() -> Finding:
    """Check the Python of Spark's workers, which the variable PYSPARK_PYTHON names. This Python must have the same
    version (major and minor number) as the one that runs the check, and be able to import pyarrow and aggr. If the
    variable is not set, no Python is started, and the check passes.
    """
    python = os.environ.get("PYSPARK_PYTHON")
    if python is None:
        return Finding("Spark's Python workers", True, "python3 of the PATH, unless spark.pyspark.python is set")
    script = "import sys, aggr, pyarrow; print('.'.join(map(str, sys.version_info[:2])), pyarrow.__version__)"
    do = f"set PYSPARK_PYTHON={sys.executable}, or install the same packages for {python}"
    try:
        version_output = subprocess.run([python, "-c", script], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("Spark's Python workers", False, f"{python} does not run: {error}", do)
    if version_output.returncode:
        last = (version_output.stderr.strip().splitlines() or ["it fails"])[-1]
        return Finding("Spark's Python workers", False, f"{python}: {last}", do)
    own_version = ".".join(map(str, sys.version_info[:2]))
    is_same_version = version_output.stdout.split()[0] == own_version
    versions = f"{python}: Python {version_output.stdout.split()[0]}, pyarrow {version_output.stdout.split()[1]}"
    return Finding(
        "Spark's Python workers",
        is_same_version,
        versions,
        "" if is_same_version else f"the driver is Python {own_version}: {do}",
    )


def _check_memory() -> Finding:
    limit = Path("/sys/fs/cgroup/memory.max")
    limit_text = limit.read_text().strip() if limit.exists() else "max"
    try:
        total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return Finding("memory", True, "not known")
    total_bytes = min(total_bytes, int(limit_text)) if limit_text.isdigit() else total_bytes
    settings = [f"{n}={os.environ[n]}" for n in ("SPARK_DRIVER_MEMORY", "SPARK_EXECUTOR_MEMORY") if n in os.environ]
    sizes = ", ".join([f"{total_bytes / (1 << 30):.1f} GiB", *settings])
    do = (
        ""
        if total_bytes >= _REQUIRED_MEMORY
        else "a JVM and a Python worker need about 2 GiB: set spark.driver.memory, and use local[1]"
    )
    return Finding("memory", total_bytes >= _REQUIRED_MEMORY, sizes, do)


def _check_cache() -> Finding:
    """Check whether numba can store compiled loops. The result names the folder in which it stores them. If no folder
    is writable, the check fails.
    """
    import aggr.compiling.jit
    from aggr.compiling.code_folders import private_folder

    code_folder = Path(aggr.compiling.jit.__file__).parent
    named_folder = os.environ.get("NUMBA_CACHE_DIR")
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folders = [Path(named_folder)] if named_folder else [code_folder, home]
    for folder in folders:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if os.access(existing, os.W_OK):
            return Finding("cache of compiled loops", True, f"below {folder}")
    private = private_folder()
    if private is not None:
        return Finding("cache of compiled loops", True, f"below {private}, because no other folder is writable")
    do = "without a cache, every process compiles loops for about ten seconds: set NUMBA_CACHE_DIR to a writable folder"
    return Finding("cache of compiled loops", False, "no cache folder is writable", do)
