"""Watermarks of the streams into a store: for each stream, the time before which it has closed its windows.

One record contains the times of all streams, so that every snapshot includes them without a further read:

tiltframe:watermarks  {"requests": 1714500000000000}  microseconds UTC
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltframe.ranges import EVER
from tiltframe.store.log.records import WATERMARKS

if TYPE_CHECKING:
    from tiltframe.store.log.snapshot import Snapshot
    from tiltframe.store.log.transaction import Transaction


@dataclass(frozen=True)
class StreamWatermark:
    """The time before which a stream has closed its windows. The stream records this time with its commits.

    Parameters
    ----------
    stream : str
        The name of the stream.
    closed_before : int or None
        The time before which the stream has closed its windows, in microseconds UTC. It is the stream's watermark minus
        the delay and the lateness. Only late rows can still change the closed windows. None means that the stream has
        ended.
    """

    stream: str
    closed_before: int | None

    def record(self, transaction: Transaction) -> None:
        """Write ``closed_before`` to the record that contains the times of all streams. If the record already has a
        later time for this stream, the later time stays. If the stream has ended, its time is removed from the record.
        """
        times = watermarks_of(transaction.snapshot)
        transaction.read(WATERMARKS)
        changed = {name: time for name, time in times.items() if name != self.stream}
        if self.closed_before is not None:
            changed[self.stream] = max(self.closed_before, times.get(self.stream, EVER[0]))
        if changed != times:
            transaction.records(WATERMARKS, json.dumps(changed))


def watermarks_of(snapshot: Snapshot) -> dict[str, int]:
    """Return the time before which each stream has closed its windows, as stream → microseconds UTC. Streams that have
    ended are left out.
    """
    times: dict[str, int] = json.loads(snapshot.text(WATERMARKS) or "{}")
    return times


def closed_before(snapshot: Snapshot) -> int:
    """Return the time before which all streams have closed their windows, in microseconds UTC. This is the minimum of
    the streams' times, or ``EVER[1]``, the latest possible time, if no stream has recorded a time.
    """
    return min(watermarks_of(snapshot).values(), default=EVER[1])
