"""Seconds of the first three jobs on a new cluster, whose executors compile the code or load it from the disk.

    python -m benchmarks.cold_cluster [--rounds 3] [--out benchmarks/results/cold_cluster.json]

Each case starts a Spark process with two executors on this machine (`local-cluster[2,1,1024]`). The job rolls up a
DataFrame to the results of nine functions at four levels.

- ``empty cache``: the cache folder of the user is empty and writable.
- ``read-only``: neither the folders of the package nor the cache folder of the user can store code, as in a container.
  The benchmark replaces these folders by files of the same names, because root could write into read-only folders.
- ``compiled``: the compiled code is on the disk, because an earlier cluster with the same folders has run the job.
  The compiled code is also on the disk after `su.warm`, or if an archive or an image contains it.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from aggr.bench.timing import circumstances
from benchmarks.spark import PACKAGES

ROOT = Path(__file__).parent.parent
CASES = ("empty cache", "read-only", "compiled")
JOB = """
import sys, time
import aggr, spark_udaf as su
from benchmarks.jobs import LEVELS, frame, run_and_discard
from benchmarks.data_sets import TEXTS
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
df = spark.sql("SELECT timestamp_millis(1714521600000 + id * 10) AS ts, 'host-' || id % 10 AS host, "
               "CAST(exp(id % 997 / 200D) AS double) AS latency_ms FROM range(0, 1000000, 1, 4)")
run_and_discard(df.mapInArrow(lambda batches: batches, df.schema))      # starts the workers
for _ in range(3):
    begin = time.perf_counter()
    run_and_discard(su.finish(su.rollup(df, frame(LEVELS, TEXTS)), frame(LEVELS, TEXTS)))
    print("took", time.perf_counter() - begin, flush=True)
spark.stop()
"""


def run_cluster(home: Path, package: Path) -> list[float]:
    """Return the seconds of three equal jobs in a new cluster. ``home`` is the home folder of the cluster's user, and
    ``package`` is the folder from which the cluster imports the code.
    """
    import pyspark

    other_variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "TILTFRAME_"))
    }
    environment = other_variables | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "PYTHONPATH": str(package),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(home.parent / "work"),
        "TMPDIR": str(home.parent / "tmp"),
    }
    command = [sys.executable, "-c", JOB]
    process = subprocess.run(
        command, env=environment, cwd=home.parent, capture_output=True, text=True, check=False, timeout=600
    )
    seconds = [float(line.split()[1]) for line in process.stdout.splitlines() if line.startswith("took ")]
    if process.returncode or len(seconds) != 3:
        raise RuntimeError(f"the job ended with status {process.returncode}: {process.stderr[-2000:]}")
    return seconds


def create_folders(folder: Path, is_read_only: bool) -> tuple[Path, Path]:
    """Return two paths in ``folder``: a home folder, and a copy of the packages without compiled code. If
    ``is_read_only`` is true, neither of them can store compiled code.
    """
    package = folder / "package"
    home = folder / "home"
    ignore = shutil.ignore_patterns("__pycache__", "results")
    for name in ("aggr", "windows", "tiltframe", "spark_udaf", "benchmarks"):
        shutil.copytree(ROOT / name, package / name, ignore=ignore)
    for directory in (folder / "work", folder / "tmp"):
        directory.mkdir()
    if is_read_only:
        home.touch()
        for source in list(package.rglob("*.py")):
            (source.parent / "__pycache__").touch()
    else:
        home.mkdir()
    return home, package


def measure(case: str) -> list[float]:
    """Start a new cluster for the case ``case``, and return the seconds of its first three jobs."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home, package = create_folders(Path(name), is_read_only=case == "read-only")
        if case == "compiled":
            run_cluster(home, package)
        return run_cluster(home, package)


@click.command()
@click.option("--rounds", default=3, help="The number of clusters of each case.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures here, as JSON.")
def main(rounds: int, out: Path | None) -> None:
    """Measure the first three jobs of new clusters."""
    times: dict[str, list[list[float]]] = {case: [] for case in CASES}
    for _ in range(rounds):
        for case in CASES:
            times[case].append(measure(case))
            click.echo(f"{case}: " + ", ".join(f"{seconds:.1f} s" for seconds in times[case][-1]))
    medians = {case: [statistics.median(job) for job in zip(*runs, strict=True)] for case, runs in times.items()}
    for case, seconds in medians.items():
        click.echo(f"median, {case}: " + ", ".join(f"{job:.1f} s" for job in seconds))
    if out is not None:
        about = {**circumstances((*PACKAGES, "numba")), "rounds": rounds, "rows": 1_000_000}
        out.write_text(json.dumps({**about, "seconds": medians, "all": times}, indent=1) + "\n")


if __name__ == "__main__":
    main()
