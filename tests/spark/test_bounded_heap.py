"""A group that is larger than the heap of the JVM has a result or raises one clear error, and the session continues."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

# collect_list of this many doubles ends a JVM of this heap with an OutOfMemoryError; 30,000,000 and 1024 as well
ROWS = int(os.environ.get("TILTFRAME_HOT_ROWS", "5000000"))
HEAP = int(os.environ.get("TILTFRAME_HOT_HEAP_MIB", "512"))
SECONDS = float(os.environ.get("TILTFRAME_HOT_SECONDS", "60"))  # until a refusal, by default on a busy machine
NAMES = ["count", "sum", "min", "max", "avg", "var", "stdev", "dds", "hdr", "first", "last"]

SCRIPT = f"""
import json, time
import spark_udaf as su
from pyspark.sql import functions as F
from spark_udaf import functions as A
from tests import engines

def outcome(ask):
    began = time.monotonic()
    try:
        answer = [value for row in ask().collect() for value in row.asDict(recursive=True).values()]
    except Exception as error:
        answer = str(error)
    return [answer, time.monotonic() - began]

with engines.session("classic", {{"spark.driver.memory": "{HEAP}m"}}) as spark:
    rows = spark.range(0, {ROWS}, 1, 4).selectExpr("CAST(id % 1000 AS double) AS x", "timestamp_seconds(id) AS ts")
    rows.createOrReplaceTempView("hot")
    su.register(spark, *{NAMES})
    columns = {{"first": {{"by": "ts"}}, "last": {{"by": "ts"}}, "hdr": {{"unit": 1}}}}
    calls = [getattr(A, name)("x", **columns.get(name, {{}})) for name in {NAMES}]
    in_sql = {{"count": "1", "first": "x, ts", "last": "x, ts", "hdr": "x, unit => 1"}}
    query = "SELECT " + ", ".join(f"aggr_{{name}}({{in_sql.get(name, 'x')}})" for name in {NAMES}) + " FROM hot"
    jobs = {{
        "agg": lambda: rows.agg(A.dds("x")),
        "next to a built-in": lambda: rows.agg(A.avg("x"), F.max("x")),
        "su.sql": lambda: su.sql(spark, "SELECT aggr_avg(x), max(x) FROM hot"),
        "Spark's count": lambda: rows.agg(A.count()),
        "spark.sql": lambda: spark.sql(query),
        "group_by": lambda: su.group_by(rows).agg(*calls),
        "smaller group": lambda: rows.where("x < 100").agg(A.avg("x"), F.max("x")),
    }}
    for name in {NAMES[1:]}:
        large = getattr(A, name)("x", groups="large", **columns.get(name, {{}}))
        jobs["large " + name] = lambda call=large: rows.agg(call)
    for name, ask in jobs.items():
        print("outcome", json.dumps([name, *outcome(ask)]), flush=True)
"""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[list | str, float]]:
    """Return the rows or the error of each job, and its seconds, by the name of the job."""
    seconds = 900 * max(1, ROWS // 5_000_000)
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=seconds, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("outcome ")]
    assert done.returncode == 0, done.stderr[-3000:]
    outcome = [json.loads(line.removeprefix("outcome ")) for line in lines]
    return {name: (answer, seconds) for name, answer, seconds in outcome}


def test_lists_of_a_hot_group_are_refused(outcomes):
    for job, call in {"agg": "dds(x)", "next to a built-in": "avg(x)", "su.sql": "aggr_avg"}.items():
        answer, seconds = outcomes[job]
        sentence = answer.splitlines()[0]
        limit = f"{HEAP * 4096:,}"
        assert sentence.startswith(f"{call}: a group has more than {limit} values")  # and no other call of this process
        assert "use su.group_by" in sentence
        assert seconds < SECONDS


def test_other_forms_aggregate_a_hot_group(outcomes):
    variance = 83333.25 * ROWS / (ROWS - 1)  # of 0 … 999, each equally often, as a sample
    numbers = {
        "sum": 499.5 * ROWS,
        "min": 0.0,
        "max": 999.0,
        "avg": 499.5,
        "var": pytest.approx(variance, rel=1e-12),
        "stdev": pytest.approx(variance**0.5, rel=1e-12),
        "first": 0.0,
        "last": 999.0,
    }
    one_pass = dict(zip(NAMES, outcomes["group_by"][0], strict=True))
    large = {name: outcomes[f"large {name}"][0][0] for name in NAMES if name != "count"}
    assert one_pass["count"] == ROWS == outcomes["Spark's count"][0][0]
    in_sql = dict(zip(NAMES, outcomes["spark.sql"][0], strict=True))
    for answers in (one_pass, large, in_sql):
        assert {name: answers[name] for name in numbers} == numbers
        assert answers["dds"]["count"] == answers["hdr"]["count"] == ROWS
        assert answers["dds"]["quantiles"]["0.5"] == pytest.approx(499.5, rel=0.011)
        assert answers["hdr"]["quantiles"]["0.5"] in (499, 500)


def test_the_session_still_makes_lists(outcomes):
    assert outcomes["smaller group"][0] == [49.5, 99.0]
