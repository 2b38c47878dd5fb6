"""Maintenance in the server: a thread compacts stores, deletes expired windows and removes old files. The thread uses
at most a quarter of one core.

append ─▶ append ─▶ append        many small parts make each query slower
   │
   ├─▶ every few seconds, a thread merges small parts
   └─▶ every two minutes, it merges all parts, deletes expired windows and removes replaced files
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tiltframe.extend import as_text
from tiltframe.serve.errors import message_with_place
from tiltframe.serve.freed_memory import release_freed_memory
from tiltframe.serve.observed import LOG, Metrics
from tiltframe.serve.stores import Stores
from tiltframe.store import FrameStore

# the minimum number of seconds between two rounds of maintenance
_PAUSE_SECONDS = 2.0
# The maximum number of seconds between two rounds of a store without new parts; each such round doubles the pause. For
# a store at a remote address, the pause always has this length after a round that merged nothing, because each round
# sends requests to the storage, and these requests may cost money.
_LONGEST_PAUSE_SECONDS = 30.0
# the minimum length of a pause, as a multiple of the time of the round before it: with 3, maintenance uses at most a
# quarter of a core
_PAUSE_FACTOR = 3
# the maximum number of seconds for the compaction of a store in one round; the next round continues it
_ROUND_SECONDS = 20.0
# The number of seconds between two complete rounds. Only a complete round also merges large parts, and lists all files
# of a store.
_COMPLETE_SECONDS = 120.0
# the age at which replaced files are removed; queries that still read these files must end earlier
_REPLACED_FILE_AGE = "10m"
_STOP_SECONDS = 0.5  # the maximum number of seconds for which a stopping server waits for the maintenance thread


class _Interrupted(Exception):
    """An exception that ends a compaction, because the time of a round is over or the server stops. Parts that were
    already merged are committed.
    """


class Maintenance:
    """A thread that maintains stores.

    Parameters
    ----------
    stores : Stores
    metrics : Metrics
        The metrics that count rounds and failures.
    pause_seconds : float
        The minimum number of seconds between two rounds.
    """

    def __init__(self, stores: Stores, metrics: Metrics, pause_seconds: float = _PAUSE_SECONDS) -> None:
        """Create the thread without starting it."""
        self._stores = stores
        self._metrics = metrics
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        self._next_round = dict.fromkeys(stores, time.monotonic())
        self._next_complete_round = dict.fromkeys(stores, time.monotonic())
        # store name → the number of seconds from the store's last round to its next one
        self._pauses = dict.fromkeys(stores, pause_seconds)
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        """Start the maintenance thread."""
        self._thread.start()

    def stop(self) -> bool:
        """Ask the thread to stop after its current commit. Wait for it for at most `_STOP_SECONDS`, and return whether
        it is still running.
        """
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            for name in [name for name, due in self._next_round.items() if due <= began]:
                has_merged = self._maintain(name)
                self._pauses[name] = self._pause_seconds if has_merged else self._longer_pause(name)
                self._next_round[name] = time.monotonic() + self._pauses[name]
            ended = time.monotonic()
            self._stopping.wait(max(min(self._next_round.values()) - ended, _PAUSE_FACTOR * (ended - began)))

    def _longer_pause(self, name: str) -> float:
        """Return the number of seconds until the next round of a store whose last round merged no parts."""
        longest = max(_LONGEST_PAUSE_SECONDS, self._pause_seconds)
        return longest if self._stores.is_remote(name) else min(2 * self._pauses[name], longest)

    def _maintain(self, name: str) -> bool:
        """Do one round of maintenance of a store, and return whether parts were merged. Errors are counted and logged,
        and the next round tries again.
        """
        merged: dict[str, tuple[int, int]] = {}
        try:
            store = self._stores[name]
            end = _end_of_open_windows(store)
            if time.monotonic() < self._next_complete_round[name]:
                merged = store.compact(before=end, only_small=True)
            else:
                try:
                    merged = store.compact(before=end, progress=self._round_limit())
                    store.expire()
                    store.vacuum(_REPLACED_FILE_AGE)
                finally:
                    release_freed_memory()
                self._next_complete_round[name] = time.monotonic() + _COMPLETE_SECONDS
        except _Interrupted:
            pass
        except Exception as error:  # The thread continues, because a store may be unreachable for some time only.
            self._metrics.maintenance_failures.labels(name).inc()
            LOG.info({"message": f"maintenance of {name} failed", "error": message_with_place(error)})
        self._metrics.maintenance_rounds.labels(name).inc()
        return any(part_count for part_count, _ in merged.values())

    def _round_limit(self) -> Callable[[int, int], None]:
        """Return a callback that compaction calls with its progress. The callback raises `_Interrupted` when the time
        of a round is over, or if the server stops.
        """
        end = time.monotonic() + _ROUND_SECONDS

        def check(done: int, total: int) -> None:
            if self._stopping.is_set() or time.monotonic() > end:
                raise _Interrupted

        return check


def _end_of_open_windows(store: FrameStore) -> str | None:
    """Return a time just after the end of the latest window of all levels, as ISO 8601 text, or None if the store does
    not have any windows.

    Compaction up to this time includes windows that still receive rows. Such windows must be compacted too, because
    each commit of a stream adds a small part to them.
    """
    level_ends = [
        level.end for level in map(store.at().level, (level.name for level in store.frame.levels)) if level.end
    ]
    return as_text(max(level_ends) + 1) if level_ends else None
