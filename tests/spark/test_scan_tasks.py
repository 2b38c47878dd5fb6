"""Tasks of a scan: one task per core, with about equal numbers of rows; every row group is read once."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.spark

SETTINGS = {
    "local": ({"spark.master": "local"}, 1),
    "threads": ({"spark.master": "local[3]"}, 3),
    "failures": ({"spark.master": "local[ 3 , 4 ]"}, 3),
    "all": ({"spark.master": "local[*]"}, os.cpu_count()),
    "a local cluster": ({"spark.master": "local-cluster[2,3,1024]"}, 6),
    "told": ({"spark.master": "local[2]", "spark.default.parallelism": "12"}, 12),
    "executors": ({"spark.master": "yarn", "spark.executor.instances": "4", "spark.executor.cores": "5"}, 20),
    "of one core": ({"spark.master": "k8s://https://host:6443", "spark.executor.instances": "4"}, 4),
    "that come and go": ({"spark.master": "yarn", "spark.executor.cores": "5"}, None),
    "nothing": ({}, None),
    "Sail": ({"spark.app.id": None}, os.cpu_count()),
}


class Session:
    """The settings of a session, without one: what is asked of it is looked up and no more."""

    def __init__(self, settings):
        self.conf = {"spark.app.id": "an application's", **settings}


@pytest.mark.parametrize("name", SETTINGS)
def test_how_many_run_at_once(name):
    from spark_udaf.plan.session import parallelism

    settings, expected = SETTINGS[name]
    assert parallelism(Session(settings)) == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve row groups of some 1,000 rows in three files."""
    base = tmp_path_factory.mktemp("files")
    for number in range(3):
        table = pa.table({"x": np.arange(3_500 + 100 * number)})
        pq.write_table(table, base / f"{number}.parquet", row_group_size=1000)
    return str(base)


def rows_of(scan):
    """Count the rows that each task reads."""
    counts = {path: [g.num_rows for g in groups] for path, groups in row_groups(scan).items()}
    return [sum(counts[piece.path][g] for piece in task for g in piece.groups) for task in scan.tasks]


def row_groups(scan):
    return {fragment.path: fragment.row_groups for fragment in scan.dataset.get_fragments()}


@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 12, 40])
def test_tasks_read_about_as_much_and_each_row_group_once(spark, folder, tasks):
    import spark_udaf as su

    scan = su.scan_parquet(spark, folder, rows_per_task=-(-10_800 // tasks))
    result = rows_of(scan)
    assert sum(result) == 10_800
    assert len(result) == min(tasks, 12)
    assert max(result) <= 10_800 / tasks + 1000
    read = [(piece.path, g) for task in scan.tasks for piece in task for g in piece.groups]
    assert sorted(read) == sorted((path, g.id) for path, groups in row_groups(scan).items() for g in groups)


@pytest.mark.parametrize(
    ("max_bytes", "min_bytes", "tasks"),
    [(10_000_000, 1000, 2), (10_000_000, 10_000, 2), (10_000_000, 10_800, 1), (2_000, 1, 6), (5_399, 1, 4)],
)
def test_a_task_for_each_core(spark, folder, monkeypatch, max_bytes, min_bytes, tasks):
    import spark_udaf as su
    from spark_udaf.plan import scan as module

    monkeypatch.setattr(module, "_MAX_ROWS", max_bytes)
    monkeypatch.setattr(module, "_MIN_ROWS", min_bytes)
    assert spark.conf.get("spark.master") in ("local[2]", "local-cluster[2,1,1024]")
    assert su.scan_parquet(spark, folder).partitions == tasks
    settings = Session({})
    monkeypatch.setattr(module, "_DEFAULT_ROWS", 6_000)
    assert module.ParquetScan(settings, su.scan_parquet(spark, folder).dataset, None, None).partitions == 2


def test_the_first_phase_is_planned_once_for_states_and_answers(spark, folder):
    import aggr
    import spark_udaf as su
    from spark_udaf.plan.two_phase import plan_of

    measures = {"n": aggr.count(), "most": aggr.max("x")}
    states = su.aggregate(su.scan_parquet(spark, folder), [], measures)
    answers = su.finish(states, measures)
    assert plan_of(answers).shuffled is plan_of(states).shuffled
    assert [row.asDict() for row in answers.collect()] == [{"n": 10_800, "most": 3_699}]
