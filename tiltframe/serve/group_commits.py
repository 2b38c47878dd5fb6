"""Group commits of one store: requests that arrive while a commit runs are committed together by the next one.

a ──▶ commit a ─────┐
b ──▶ waits         ├──▶ commit b, c, d
c, d ──▶ wait ──────┘

A commit takes about as long for many requests as for one. Group commits therefore keep up with the requests. They also
write fewer and larger parts, which makes queries faster. A request that arrives alone is committed at once. A commit of
several requests is followed by a pause, because each commit makes the cached answers outdated. The pause is twice as
long as the commit, but ends no later than 0.2 s after the start of the commit. Requests therefore wait less if commits
are fast.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tiltframe.store import FrameStore, PreparedRows

# the maximum number of requests in one commit
_MAX_REQUESTS = 64
# after a commit of several requests, the minimum time from the start of this commit to the start of the next one, as a
# multiple of the duration of this commit
_PERIOD_FACTOR = 3
# the upper limit, in seconds, of the minimum time from the start of a commit to the next commit
_LONGEST_PERIOD = 0.2


@dataclass(eq=False)
class _WaitingRequest:
    """The rows of a request that waits for a commit. ``outcome`` equals None until the commit ends. After the commit,
    ``outcome`` is an error, or a bool that says whether the rows were added.
    """

    rows: PreparedRows
    outcome: bool | Exception | None = None


class GroupCommits:
    """The commits of one store. Any thread may call `commit`."""

    def __init__(self) -> None:
        """Create an empty list of waiting requests."""
        self._waiting: list[_WaitingRequest] = []
        self._committing = threading.Lock()
        self._not_before = 0.0  # the earliest time of the next commit, by the monotonic clock

    def commit(self, store: FrameStore, rows: PreparedRows) -> bool:
        """Commit rows to the store, together with those of other threads. Return whether the rows were added.

        Raise the errors of `FrameStore.commit_group` that concern these rows or the whole group.
        """
        request = _WaitingRequest(rows)
        self._waiting.append(request)  # ``append`` needs no lock, because it is atomic for lists
        with self._committing:
            while request.outcome is None:  # another thread may have committed the rows in the meantime
                self._commit_next(store)
        if isinstance(request.outcome, Exception):
            raise request.outcome
        return request.outcome

    def _commit_next(self, store: FrameStore) -> None:
        """Commit the earliest waiting requests together: at most `_MAX_REQUESTS` requests, and at most one request per
        writer. Store the outcome of each request.
        """
        time.sleep(max(0.0, self._not_before - time.monotonic()))
        began = time.monotonic()
        group: dict[str, _WaitingRequest] = {}
        for waiting in list(self._waiting):
            if len(group) < _MAX_REQUESTS:
                group.setdefault(waiting.rows.writer, waiting)
        members = list(group.values())
        outcomes: Sequence[bool | Exception]
        try:
            outcomes = store.commit_group([waiting.rows for waiting in members])
        except Exception as error:
            outcomes = [error] * len(members)
        if len(members) > 1:
            duration = time.monotonic() - began
            self._not_before = began + min(_PERIOD_FACTOR * duration, _LONGEST_PERIOD)
        for waiting, outcome in zip(members, outcomes, strict=True):
            self._waiting.remove(waiting)
            waiting.outcome = outcome
