"""Lost and repeated messages between tasks are detected: they are simulated in a shuffle in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

import aggr
from spark_udaf.batch.rollup import plan_rollup
from spark_udaf.plan import two_phase
from spark_udaf.plan.columns import unsliced_batches
from spark_udaf.plan.conservation import NotConserved, check_all_shards
from spark_udaf.plan.shard_messages import MESSAGE_SCHEMA, Content
from spark_udaf.plan.shards import _spark_hash
from spark_udaf.store.write import RECEIPTS
from tiltframe import TiltFrame, rollup
from tiltframe.level_chain import join_levels

TASKS, PARTITIONS = 3, 2
FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "d": aggr.dds("x")}, ["host"])


@dataclass
class Shuffle:
    """The partitions of a job: what a DataFrame is to a plan, for one shuffle in this process."""

    partitions: list[list[pa.RecordBatch]]
    lose: Callable[[list[list[pa.RecordBatch]]], None] = lambda partitions: None

    def repartition(self, count: int, column: str) -> Shuffle:
        self.lose(self.partitions)
        targets: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
        for message in (row for batches in self.partitions for batch in batches for row in rows_of(batch)):
            targets[int(_spark_hash(message.column(0).to_numpy())[0]) % count].append(message)
        return Shuffle(targets)

    def sortWithinPartitions(self, column: str) -> Shuffle:
        return Shuffle([sorted(batches, key=lambda row: row.column(0)[0].as_py()) for batches in self.partitions])

    def mapInArrow(self, function: Callable, schema: object) -> pa.Table:
        results = [b for batches in self.partitions for b in function(iter(batches))]
        return pa.Table.from_batches(results, results[0].schema if results else pa.schema([]))


def rows_of(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [batch.slice(at, 1) for at in range(batch.num_rows)]


def one_by_one(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return a batch for each message of a task, and its count messages in one batch, the last."""
    *messages, count_messages = batches
    return [*(row for batch in messages for row in rows_of(batch)), count_messages]


@dataclass
class Session:
    conf: dict = field(default_factory=lambda: {"spark.app.id": "one", "spark.sql.shuffle.partitions": str(PARTITIONS)})


@dataclass
class Tasks:
    """Rows that tasks read, and what the engine loses of what they send."""

    table: pa.Table
    lose: Callable
    spark: Session = field(default_factory=Session)
    partitions: int | None = TASKS

    def exclusive_times(self, time: str, timezone: str = "UTC") -> None:
        return None

    def map(self, columns, keys, function, schema) -> Shuffle:
        size = -(-self.table.num_rows // TASKS)
        parts = [self.table.slice(at * size, size).combine_chunks().to_batches() for at in range(TASKS)]
        return Shuffle([one_by_one(function(iter(part), at)) for at, part in enumerate(parts)], self.lose)


@pytest.fixture
def table():
    rng = np.random.default_rng(3)
    times = pa.array(rng.integers(0, 10**10, 3000)).cast(pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "host": rng.choice(list("abcdefgh"), 3000), "x": rng.normal(size=3000)})


@pytest.fixture(autouse=True)
def without_spark(monkeypatch):
    """Plan without a session, whose settings of names and whose plans on DataFrames are not what is tested."""
    monkeypatch.setattr(two_phase, "check_distinct_names", lambda names, spark: None)
    monkeypatch.setattr(two_phase, "attach", lambda df, name, value: None)
    monkeypatch.setattr(two_phase, "partition_index_or_random", iter(range(100)).__next__)


def run(table, lose=lambda partitions: None, has_task_count=True):
    source = Tasks(table, lose, partitions=TASKS if has_task_count else None)
    if not has_task_count:
        lose_then = Shuffle.repartition
        source.map = lambda *arguments: AnyPartitions(Tasks.map(source, *arguments), lose_then)
    result_schema = FRAME.states_schema(table.schema)
    planned = plan_rollup(
        source,
        table.schema,
        FRAME,
        convert_levels=lambda levels: join_levels(levels, FRAME),
        result_schema=result_schema,
    )
    return planned.run()


@dataclass
class AnyPartitions:
    """A shuffle whose number of partitions the engine chooses."""

    shuffle: Shuffle
    repartitioned: Callable

    def repartition(self, column: str) -> Shuffle:
        return self.repartitioned(self.shuffle, PARTITIONS, column)


def content(batch: pa.RecordBatch) -> int:
    return batch.column("content")[0].as_py()


def position(batches: list[pa.RecordBatch], kind: Content) -> int:
    return next(at for at, batch in enumerate(batches) if content(batch) == kind)


def a_message(partitions):
    del partitions[1][position(partitions[1], Content.STATES)]


def a_message_twice(partitions):
    partitions[1].append(partitions[1][0])


def the_rest_of_a_task(partitions):
    del partitions[2][5:]


def a_count_message(partitions):
    partitions[0][-1] = partitions[0][-1].slice(1)


def all_count_messages_of_a_task(partitions):
    del partitions[0][-1]


def a_task(partitions):
    partitions[1].clear()


def a_task_twice(partitions):
    partitions.append(list(partitions[1]))


def a_message_to_another_shard(partitions):
    number, message, *other_columns = partitions[0][0].columns
    numbers = partitions[0][-1].column(0)
    other = numbers[5:6] if numbers[5] != number[0] else numbers[6:7]
    partitions[0][0] = pa.RecordBatch.from_arrays([other, message, *other_columns], schema=MESSAGE_SCHEMA)


def a_shard(partitions):
    number = partitions[0][0].column(0)[0].as_py()
    for batches in partitions:
        batches[:] = [row for b in batches for row in rows_of(b) if row.column(0)[0].as_py() != number]


def a_shard_of_a_task(partitions):
    number = partitions[0][0].column(0)[0].as_py()
    partitions[0][:] = [row for b in partitions[0] for row in rows_of(b) if row.column(0)[0].as_py() != number]


def rows_of_a_message(partitions):
    number, message, kind, rows = partitions[0][0].columns
    fewer = pa.array([rows[0].as_py() - 1], pa.int64())
    partitions[0][0] = pa.RecordBatch.from_arrays([number, message, kind, fewer], schema=MESSAGE_SCHEMA)


LOSSES = [
    a_message,
    a_message_twice,
    the_rest_of_a_task,
    a_count_message,
    all_count_messages_of_a_task,
    a_task,
    a_task_twice,
    a_message_to_another_shard,
    a_shard,
    a_shard_of_a_task,
    rows_of_a_message,
]
UNKNOWN = [loss for loss in LOSSES if loss not in (a_task, a_shard_of_a_task)]  # which only a count of tasks tells


def in_order(states: pa.Table) -> pa.Table:
    return states.sort_by([(name, "ascending") for name in ("level", "window_start", "host")]).combine_chunks()


@pytest.mark.slow
@pytest.mark.parametrize("has_task_count", [True, False])
def test_what_is_conserved_is_the_rollup(table, has_task_count):
    assert in_order(run(table, has_task_count=has_task_count)).equals(in_order(rollup(table, FRAME)))


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
def test_a_loss_is_noticed(table, lose):
    with pytest.raises(NotConserved, match=r"the engine lost .*; run the job again"):
        run(table, lose)


@pytest.mark.parametrize("lose", UNKNOWN, ids=lambda lose: lose.__name__)
def test_a_loss_is_noticed_without_a_count_of_tasks(table, lose):
    with pytest.raises(NotConserved):
        run(table, lose, has_task_count=False)


def test_no_tasks_lose_nothing(table):
    assert run(table.slice(0, 0), has_task_count=False).num_rows == 0


@pytest.mark.parametrize("covered", [[1], [1, 2, 2, 3], [1, 2, 4]])
def test_results_that_do_not_cover_all_shards_are_not_committed(covered):
    with pytest.raises(NotConserved, match="nothing is committed"):
        check_all_shards(covered, np.array([3, 1, 2], np.int32))
    check_all_shards([2, 3, 1], np.array([3, 1, 2], np.int32))
    check_all_shards([], np.array([3, 1, 2], np.int32))


def test_receipts_of_writes_name_every_shard(table):
    source, written = Tasks(table, lambda partitions: None), []

    def then(levels):
        written.append(join_levels(levels, FRAME).num_rows)
        return pa.table({"receipt": [f"part {len(written)}"]})

    plan = plan_rollup(source, table.schema, FRAME, convert_levels=then, result_schema=RECEIPTS, can_finish_early=False)
    receipts = plan.run()
    shards = [shard for its in receipts.column("shards").to_pylist() for shard in its]
    assert sorted(shards) == sorted(plan.shuffle_keys.tolist())
    assert len(receipts.column("receipt").drop_null()) == len(written)


def test_batches_begin_at_the_start_of_their_buffers():
    table = pa.table({"s": [{"a": [i], "b": str(i)} for i in range(10)]})
    batches = list(unsliced_batches(table, 4))
    assert pa.Table.from_batches(batches).equals(table)
    assert [len(batch) for batch in batches] == [4, 4, 2]

    def offsets(array: pa.Array) -> set[int]:
        children = [array.field(i) for i in range(array.type.num_fields)] if pa.types.is_struct(array.type) else []
        return {array.offset}.union(*map(offsets, children)) if children else {array.offset}

    assert offsets(batches[1].column(0)) == {0}
    assert offsets(table.combine_chunks().to_batches(max_chunksize=4)[1].column(0)) != {0}
