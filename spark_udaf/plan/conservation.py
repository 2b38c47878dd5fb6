"""Conservation: a shuffle returns each message of the tasks exactly once, or the job fails.

A message is an Arrow batch as bytes, which a task sends to one shard.

    task ── messages with data ──▶ shard
    task ── count message ───────▶ shard      the numbers of messages and rows that this task sent to this shard

Messages and rows are counted because an engine may lose them without an error. An engine has been observed to drop a
part of a task's output.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_udaf.plan.shard_messages import MESSAGE_SCHEMA, Content, read_message

# The layout of the data of a count message: the index of the task, and the number of messages that it sent to the
# shard. The column ``rows`` contains the number of rows in these messages.
_COUNTS = struct.Struct("<qq")


class NotConserved(RuntimeError):
    """An engine lost or repeated rows of tasks."""


class Message(NamedTuple):
    """A message that arrived after the shuffle. ``shard`` is the shuffle key of its shard, ``content`` is a `Content`,
    and ``rows`` is the number of rows that the sender counted.
    """

    shard: Any
    data: pa.Buffer | bytes
    content: int
    rows: int


def read_rows(message: Message, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a message. Raise `NotConserved` if their number differs from the number that the sender
    counted.
    """
    batch = read_message(message.data, schema)
    if batch.num_rows != message.rows:
        raise NotConserved(
            f"the engine lost or repeated rows: a message to shard {message.shard} was sent with {message.rows:,} "
            f"states or rows, and arrived with {batch.num_rows:,}; run the job again, and report the error to the "
            "project of the engine"
        )
    return batch


def with_count_messages(
    messages: Iterator[pa.RecordBatch], shuffle_keys: NDArray[np.int32], task: int, schema: pa.Schema = MESSAGE_SCHEMA
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the task with the index ``task``, and then one count message for each shard.
    ``shuffle_keys[s]`` is the number that Spark hashes for shard ``s``, as `spark_udaf.plan.shards.choose_shuffle_keys`
    returns it. Columns of ``schema`` that `MESSAGE_SCHEMA` does not have are null in count messages.
    """
    counts = dict.fromkeys(shuffle_keys.tolist(), 0)
    rows = dict.fromkeys(shuffle_keys.tolist(), 0)
    for batch in messages:
        shards, _, contents_sent, rows_sent, *_ = batch.columns
        sent_messages = zip(shards.to_pylist(), contents_sent.to_pylist(), rows_sent.to_pylist(), strict=True)
        for shard, content, row_count in sent_messages:
            if content is not None:
                counts[shard] += 1
                rows[shard] += row_count
        yield batch
    count_data = pa.array([_COUNTS.pack(task, count) for count in counts.values()], pa.binary())
    contents = pa.array([Content.COUNTS] * len(counts), pa.int8())
    null_columns = [pa.nulls(len(counts), field.type) for field in list(schema)[len(MESSAGE_SCHEMA) :]]
    columns = [pa.array(shuffle_keys), count_data, contents, pa.array(rows.values(), pa.int64()), *null_columns]
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass
class PartitionCheck:
    """A check of one partition after the shuffle: compare the messages in the partition with the count messages of the
    tasks.

    Parameters
    ----------
    shards_per_partition : int or None
        The number of shards in each planned partition of the shuffle. Spark may join small planned partitions, so the
        number of shards in a received partition is a multiple of this number. None if the engine does not use Spark's
        hash.
    tasks : int or None
        The number of tasks that send messages, or None if the number is unknown. In this case, `check` takes the number
        from the count messages.
    shards : int
        The number of shards with count messages that `check` has counted so far.
    """

    shards_per_partition: int | None
    tasks: int | None
    shards: int = 0

    def check(self, messages: Sequence[Message]) -> None:
        """Raise ``NotConserved`` if messages are missing or repeated.

        ``messages`` are all messages of some shards, ordered by shard.
        """
        for shard, messages_of_shard in groupby(messages, attrgetter("shard")):
            count_messages: list[Message] = []
            data_messages: list[Message] = []
            for message in messages_of_shard:
                if message.content != Content.EMPTY:
                    (count_messages if message.content == Content.COUNTS else data_messages).append(message)
            tasks_and_counts = [_COUNTS.unpack(message.data) for message in count_messages]
            senders = len({task for task, _ in tasks_and_counts})
            sent_counts = (sum(count for _, count in tasks_and_counts), _rows(count_messages))
            received_counts = (len(data_messages), _rows(data_messages))
            # Every task sends a count message to every shard. If the number of tasks is unknown, it is taken from the
            # count messages of the first shard. Each other shard must have count messages from the same number of
            # tasks.
            self.tasks = senders if self.tasks is None else self.tasks
            if sent_counts != received_counts or not self.tasks == senders == len(count_messages):
                raise NotConserved(
                    f"the engine lost or repeated rows: {senders:,} of {self.tasks:,} tasks sent "
                    f"{sent_counts[0]:,} messages with {sent_counts[1]:,} states or rows to shard {shard}, which "
                    f"received {received_counts[0]:,} messages with {received_counts[1]:,} states or rows, and also "
                    f"{len(count_messages):,} count messages; run the job again, and report the error to the project "
                    "of the engine"
                )
            # A shard without count messages has only a message of the kind `Content.EMPTY`, which the plan adds so that
            # an input without rows also has a result. Such a shard is not counted, because no task sent data to it.
            if senders:
                self.shards += 1

    def check_end(self) -> None:
        """Raise ``NotConserved`` if the number of shards that `check` has counted is not a multiple of
        ``shards_per_partition``, or is 0 although tasks sent messages. Without ``shards_per_partition``, do nothing.
        Call this after the last message of the partition.
        """
        has_lost_shards = self.tasks and not self.shards
        if self.shards_per_partition is not None and (has_lost_shards or self.shards % self.shards_per_partition):
            raise NotConserved(
                f"the engine lost rows: a partition received {self.shards:,} shards, which is not a positive multiple "
                f"of {self.shards_per_partition:,}; "
                "run the job again, and report the error to the project of the engine"
            )


def check_all_shards(shards: Iterable[int], shuffle_keys: NDArray[np.int32]) -> None:
    """Raise ``NotConserved`` if the results of some shards are missing or repeated in a job that writes a store. A job
    without any results is accepted. ``shards`` are the shuffle keys of the shards whose results arrived, and
    ``shuffle_keys`` are the shuffle keys of all shards.
    """
    sorted_shards = sorted(shards)
    if sorted_shards and sorted_shards != sorted(shuffle_keys.tolist()):
        missing_count = len(set(shuffle_keys.tolist()) - set(sorted_shards))
        repeated_count = len(sorted_shards) - len(set(sorted_shards))
        raise NotConserved(
            f"the engine lost or repeated results: of {len(shuffle_keys):,} shards, {missing_count:,} are missing, "
            f"and {repeated_count:,} were received twice; nothing is committed; run the job again, and report the "
            f"error to the project of the engine"
        )


def _rows(messages: Iterable[Message]) -> int:
    return sum(message.rows for message in messages)
