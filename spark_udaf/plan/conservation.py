"""Conservation: a shuffle returns each message of the tasks exactly once, or the job fails.

A message is an Arrow batch as bytes, which a task sends to one shard.

    task ── messages ──▶ shard
    task ── receipt ───▶ shard      the number of messages and rows that this task sent to this shard

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

from spark_udaf.plan.shard_messages import MESSAGE, Content, read_message

# The layout of the data of a receipt: the index of the task, and the number of messages that it sent to the shard. The
# column ``rows`` contains the number of rows in these messages.
_RECEIPT = struct.Struct("<qq")


class NotConserved(RuntimeError):
    """An engine lost or repeated rows of tasks."""


class Message(NamedTuple):
    """A message after the shuffle. ``content`` is a `Content`, and ``rows`` is the number of rows that the sender
    counted.
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
            f"a message to shard {message.shard} contained {message.rows:,} states or rows, and {batch.num_rows:,} of "
            f"them arrived; run the job again, and report the error to the project of the engine"
        )
    return batch


def with_receipts(
    messages: Iterator[pa.RecordBatch], shard_numbers: NDArray[np.int32], task: int, schema: pa.Schema = MESSAGE
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the task with the index ``task``, and then one receipt for each shard.
    ``shard_numbers[s]`` is the number under which shard ``s`` is sent, as `spark_udaf.plan.shards.shard_numbers`
    returns it. Columns of ``schema`` that `MESSAGE` does not have are null in receipts.
    """
    counts = dict.fromkeys(shard_numbers.tolist(), 0)
    rows = dict.fromkeys(shard_numbers.tolist(), 0)
    for batch in messages:
        shards, _, contents_sent, rows_sent, *_ = batch.columns
        sent_messages = zip(shards.to_pylist(), contents_sent.to_pylist(), rows_sent.to_pylist(), strict=True)
        for shard, content, row_count in sent_messages:
            if content is not None:
                counts[shard] += 1
                rows[shard] += row_count
        yield batch
    receipts = pa.array([_RECEIPT.pack(task, count) for count in counts.values()], pa.binary())
    contents = pa.array([Content.RECEIPT] * len(counts), pa.int8())
    null_columns = [pa.nulls(len(counts), field.type) for field in list(schema)[len(MESSAGE) :]]
    columns = [pa.array(shard_numbers), receipts, contents, pa.array(rows.values(), pa.int64()), *null_columns]
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass
class PartitionCheck:
    """A check of one partition after the shuffle, which compares its messages with the receipts of the tasks that sent
    them.

    Parameters
    ----------
    shards_per_partition : int or None
        The number of shards in each planned partition of the shuffle. Spark may join small planned partitions, so the
        received partition has a multiple of this number. None if the engine does not use Spark's hash.
    tasks : int or None
        The number of tasks that send messages, or None if it is unknown. `check` then sets it from the receipts.
    shards : int
        The number of shards with receipts that `check` has counted so far.
    """

    shards_per_partition: int | None
    tasks: int | None
    shards: int = 0

    def check(self, messages: Sequence[Message]) -> None:
        """Raise ``NotConserved`` if messages or receipts are missing or repeated.

        ``messages`` are all messages of some shards, ordered by shard.
        """
        for shard, messages_of_shard in groupby(messages, attrgetter("shard")):
            receipts: list[Message] = []
            data_messages: list[Message] = []
            for message in messages_of_shard:
                if message.content != Content.EMPTY:
                    (receipts if message.content == Content.RECEIPT else data_messages).append(message)
            tasks_and_counts = [_RECEIPT.unpack(receipt.data) for receipt in receipts]
            senders = len({task for task, _ in tasks_and_counts})
            sent_counts = (sum(count for _, count in tasks_and_counts), _rows(receipts))
            received_counts = (len(data_messages), _rows(data_messages))
            # Every task sends a receipt to every shard. If the number of tasks is unknown, the receipts of the first
            # shard determine it, and each of the other shards must have receipts from the same number of tasks.
            self.tasks = senders if self.tasks is None else self.tasks
            if sent_counts != received_counts or not self.tasks == senders == len(receipts):
                raise NotConserved(
                    f"the engine lost or repeated rows: {senders:,} of {self.tasks:,} tasks sent "
                    f"{sent_counts[0]:,} messages with {sent_counts[1]:,} states or rows to shard {shard}, which "
                    f"received {received_counts[0]:,} messages with {received_counts[1]:,} states or rows, and also "
                    f"{len(receipts):,} receipts; run the job again, and report the error to the project of the engine"
                )
            # A shard without receipts has only a message of the kind `Content.EMPTY`, which the plan adds so that an
            # input without rows also has a result. Such a shard is not counted, because no task sent data to it.
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


def check_all_shards(shards: Iterable[int], shard_numbers: NDArray[np.int32]) -> None:
    """Raise ``NotConserved`` if a job that writes a store has not returned the results of each shard exactly once.
    If no results arrived at all, no error is raised. ``shards`` are the numbers of the shards whose results
    arrived, and ``shard_numbers`` the numbers of all shards.
    """
    sorted_shards = sorted(shards)
    if sorted_shards and sorted_shards != sorted(shard_numbers.tolist()):
        missing_count = len(set(shard_numbers.tolist()) - set(sorted_shards))
        repeated_count = len(sorted_shards) - len(set(sorted_shards))
        raise NotConserved(
            f"the engine lost or repeated results: of {len(shard_numbers):,} shards, {missing_count:,} are missing, "
            f"and {repeated_count:,} were received twice; nothing is committed; run the job again, and report the "
            f"error to the project of the engine"
        )


def _rows(messages: Iterable[Message]) -> int:
    return sum(message.rows for message in messages)
