"""Follow pages of the documentation word for word: save their files, run their commands and their Python, in order.

python tests/docs/pages.py PAGE…          in this environment, in one process; commands that install are skipped
python tests/docs/pages.py --fresh PAGE…  each in a new, empty environment, from a copy of this source

In a block of shell commands, lines that begin with ``$`` are run. If lines follow a command, it must print them;
``...`` stands for any text. A block whose first line is only ``# name`` is written to a file of that name. TOML and
YAML without a name are parts of files, and are not run.
Commands that install the source (``pip install '.[cli]'``) are run in a copy of it, all others in a new folder. For a
page without such a command, the extra ``all`` is installed.
A block after ``PySpark 4.1 or newer:`` or ``before PySpark 4.1:`` at the end of a text is skipped on other versions.
"""

from __future__ import annotations

import atexit
import contextlib
import doctest
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
INSTALLS = re.compile(r"pip install '?\.")  # the source, in the folder of the source
VERSIONS = re.compile(r"(?:PySpark\s(?P<first>\d+\.\d+)\sor\snewer|before\sPySpark\s(?P<end>\d+\.\d+)):$", re.I)
SHELL, NOT_RUN = ("console", "bash"), ("text", "toml", "yaml")
GRAFANA = {  # what Grafana puts in, for a dashboard of two hours and the variable ``host``
    r"\$__timeFilter\((\w+)\)": r"\1 BETWEEN '2024-05-01T10:00:00Z' AND '2024-05-01T12:00:00Z'",
    r"\$__timeTo\(\)": "'2024-05-01T12:00:00Z'",
    r"\$host": "a",
}
LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line of the page at which the text begins, and the text before it."""

    language: str
    text: str
    line: int
    before: str = ""

    def is_for(self, pyspark: str | None) -> bool:
        """Return whether the block works with a version of PySpark. None stands for the newest one."""
        condition = VERSIONS.search(self.before)
        if condition is None:
            return True
        if pyspark is None:
            return condition["first"] is not None
        if condition["first"] is not None:
            return minor_version(pyspark) >= minor_version(condition["first"])
        return minor_version(pyspark) < minor_version(condition["end"])


def minor_version(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(number) for number in version.split(".")[:2])


def installed_pyspark() -> str | None:
    """Return the version of PySpark in this environment, or None if it is not installed."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None


def blocks(text: str) -> list[Block]:
    """List the fenced blocks of a page, or of a part of one."""
    matches = re.finditer(r"^( *)```(\w+)\n(.*?)^\1```$", text, re.M | re.S)
    return [
        Block(m[2], textwrap.dedent(m[3]), text[: m.start(3)].count("\n") + 1, text[: m.start()].rstrip()[-200:])
        for m in matches
    ]


def commands(block: Block) -> list[tuple[str, str]]:
    """Cut a block of shell commands into commands, each with what it must print."""
    parts = re.split(r"^\$ ", block.text, flags=re.M)
    assert not parts[0].strip(), f"line {block.line}: a command begins with $"
    commands_of_page = []
    for part in parts[1:]:
        command, _, printed = re.sub(r"\\\n\s*", " ", part).partition("\n")
        commands_of_page.append((command, printed))
    return commands_of_page


class Mistake(AssertionError):
    """What a page says is not what happens."""


def _run_command(command: str, expected: str, at: str, folder: Path | None = None) -> None:
    """Run a command, and take over what it exports; what it leaves in the background lives on."""
    with tempfile.TemporaryFile("w+") as printed, tempfile.NamedTemporaryFile("r") as after:
        script = f"{command}\nstatus=$?\nenv -0 > {after.name}\nexit $status"
        done = subprocess.run(["bash", "-c", script], stdout=printed, stderr=subprocess.STDOUT, cwd=folder, check=False)
        printed.seek(0)
        got, exported = printed.read(), after.read()
    if done.returncode:
        raise Mistake(f"{at}: exit status {done.returncode} of {command}\n{got}")
    if expected.strip() and not doctest.OutputChecker().check_output(expected, got, LIKE):
        raise Mistake(f"{at}: {command}\nprints\n{got}\nand not\n{expected}")
    os.environ.update(part.split("=", 1) for part in exported.split("\0") if "=" in part)


def _run_python(block: Block, names: dict[str, Any], at: str) -> None:
    """Run a session of Python, with the page's files and the packages that the commands before have activated."""
    sys.path[:] = ["", *filter(None, sys.path)]
    for packages in Path(os.environ.get("VIRTUAL_ENV", sys.prefix)).glob("lib/python*/site-packages"):
        site.addsitedir(str(packages))
    test = doctest.DocTestParser().get_doctest(block.text, names, at, None, 0)
    runner, messages = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS), []
    runner.run(test, out=messages.append, clear_globs=False)
    names.update(test.globs)
    if runner.failures:
        raise Mistake(f"{at}:\n{''.join(messages)}")


def _run_sql(statement: str, address: str, at: str) -> None:
    """Run SQL as Grafana would; what is selected must be something."""
    from adbc_driver_postgresql import dbapi

    for pattern, value in GRAFANA.items():
        statement = re.sub(pattern, value, statement)
    with dbapi.connect(address, autocommit=True) as database, database.cursor() as cursor:
        for part in statement.split(";"):
            cursor.execute(part)
        rows = cursor.fetchall() if statement.startswith("SELECT") else [()]
    if not rows or any(None in row for row in rows):
        raise Mistake(f"{at}: no rows, or nulls, are selected by\n{statement}\n{rows}")


@contextlib.contextmanager
def _in_a_new_folder() -> Iterator[None]:
    """Work in an empty folder; leave folder, environment and background processes as they were.

    The folder is removed at the end of this process: workers of Spark that a page has started work in it.
    """
    before, environment = os.getcwd(), dict(os.environ)
    folder = tempfile.TemporaryDirectory(prefix="page", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    os.chdir(folder.name)
    try:
        yield
    finally:
        os.chdir(before)
        for process in _left_behind():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        os.environ.clear()
        os.environ.update(environment)


def _left_behind() -> list[int]:
    """List the background processes of commands: those that were started by one that has ended, in this session."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,sid="], capture_output=True, text=True, check=True).stdout
    rows = [tuple(map(int, line.split())) for line in listed.splitlines()]
    return [pid for pid, parent, session in rows if parent == 1 and session == os.getpid()]


def follow(page: str, text: str, source: Path | None = None) -> None:
    """Do what a page says, in a new folder; raises `Mistake` at the first block that does otherwise.

    Without a copy of the source, blocks that install it are passed over: it is there.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    with _in_a_new_folder():
        if source and blocks(text) and not INSTALLS.search(text):
            _run_command("pip install '.[all]'", "", page, source)
        for block in blocks(text):
            at = f"{page}, line {block.line}"
            if source is None and INSTALLS.search(block.text):
                continue
            if not block.is_for(installed_pyspark()):
                continue
            if named := re.match(r"# (\S+\.\w+)\n", block.text):
                Path(named[1]).parent.mkdir(parents=True, exist_ok=True)
                Path(named[1]).write_text(block.text)
            elif block.language in SHELL:
                for command, expected in commands(block):
                    _run_command(command, expected, at, source if INSTALLS.search(command) else None)
            elif block.language == "python" and block.text.startswith(">>> "):
                _run_python(block, names, at)
            elif block.language == "sql":
                _run_sql(block.text, names["address"], at)
            elif block.language not in NOT_RUN:
                raise Mistake(f"{at}: a block of {block.language} that nothing runs")


def copy_source(folder: Path) -> Path:
    """Copy what is kept of this repository, without what its commands have made."""
    ignored = shutil.ignore_patterns(
        ".*", "env", "build", "dist", "*.egg-info", "__pycache__", "demo-out", "spark-warehouse"
    )
    return shutil.copytree(ROOT, folder / "tiltframe", ignore=ignored)


def fresh_environment(folder: Path, template: Path | None = None) -> dict[str, str]:
    """Make an environment that has nothing but Python, and say by which variables commands run in it.

    With `template`, such an environment of another folder, it is a copy of it.
    """
    if template is None:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    else:
        shutil.copytree(template, folder, symlinks=True)
        for file in (folder / "pyvenv.cfg", *(folder / "bin").iterdir()):
            if not file.is_symlink():
                file.write_text(file.read_text().replace(str(template), str(folder)))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    return clean | {"PATH": f"{folder}/bin:{os.environ['PATH']}", "VIRTUAL_ENV": str(folder), "PIP_QUIET": "1"}


def follow_fresh(page: Path) -> None:
    """Follow a page in an environment that has nothing but Python, with a copy of the source."""
    with tempfile.TemporaryDirectory(prefix="fresh", ignore_cleanup_errors=True) as folder_name:  # a JVM may still end
        folder = Path(folder_name)
        environment, source = fresh_environment(folder / "python"), copy_source(folder)
        command = [f"{folder}/python/bin/python", __file__, "--source", str(source), str(page)]
        subprocess.run(command, env=environment, check=True, cwd=folder)


def main(names: list[str]) -> None:
    """Follow pages, and say which were."""
    if os.getsid(0) != os.getpid():  # so that what commands leave in the background is known
        sys.exit(subprocess.run([sys.executable, __file__, *names], start_new_session=True, check=False).returncode)
    fresh = names[:1] == ["--fresh"]
    source = Path(names[1]) if names[:1] == ["--source"] else None
    for page in map(Path.resolve, map(Path, names[2 if source else fresh :])):
        try:
            follow_fresh(page) if fresh else follow(page.name, page.read_text(), source)
        except (Mistake, subprocess.CalledProcessError) as mistake:
            sys.exit(str(mistake))
        if not fresh:  # otherwise the process that has followed it has said so
            print(f"followed {page.name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
