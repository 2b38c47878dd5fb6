"""The number of values that a list of a group may have: the heap of a JVM is shared by the tasks that run in it."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.spark

MIB = 2**20
MASTERS = {  # master, settings, the heap in bytes and the number of tasks that share it
    "local": ({"spark.driver.memory": "8g"}, 8192 * MIB, 1),
    "local[3]": ({"spark.driver.memory": "8g"}, 8192 * MIB, 3),
    "local[ 3 , 4 ]": ({"spark.driver.memory": "512m"}, 512 * MIB, 3),
    "local[*]": ({"spark.driver.memory": "64g"}, 65536 * MIB, os.cpu_count()),
    "local-cluster[2,3,2048]": ({"spark.driver.memory": "8g", "spark.executor.cores": "3"}, 1024 * MIB, 3),
    "yarn": ({"spark.executor.memory": "16g", "spark.executor.cores": "4"}, 16384 * MIB, 4),
    "k8s://https://host:6443": ({"spark.executor.memory": "2g"}, 2048 * MIB, 1),
}


class Session:
    def __init__(self, conf):
        self.conf = conf


@pytest.mark.parametrize("master", MASTERS)
def test_the_heap_is_shared_by_the_tasks_of_a_jvm(master):
    from spark_udaf.udaf.bounded_lists import max_list_values

    settings, heap, tasks = MASTERS[master]
    expected = heap / tasks / 128  # bytes per value
    assert abs(max_list_values(Session({"spark.master": master, **settings})) - expected) <= 1
