"""The cache of answers: the answers of the current version of each store, in bounded memory."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tiltframe.serve.deadline import Deadline

_OVERHEAD_BYTES = 550  # the measured bytes of a cached answer in addition to its body and headers


@dataclass(frozen=True)
class Answer:
    """An answer whose first bytes, ``body``, have been computed. ``remaining`` is an iterator over the remaining bytes,
    or None if ``body`` is the complete answer.
    """

    headers: Mapping[str, str]
    media_type: str
    body: bytes
    # store name → the `StoreView.content_id` of the view from which the answer was computed
    versions: Mapping[str, str] = field(default_factory=dict)
    remaining: Iterator[bytes] | None = None
    # the time by which the next piece of ``remaining`` must be computed
    deadline: Deadline = field(default_factory=Deadline)

    @property
    def memory(self) -> int:
        """The bytes of memory that a cached answer needs, including overhead."""
        return sys.getsizeof(self.body) + sum(map(len, self.headers.values())) + _OVERHEAD_BYTES


class AnswerCache:
    """A cache of complete answers. The key of an answer is its ETag. Any thread may call the methods.

    If the answers exceed the limit of memory, those that were used least recently are removed. If an added answer was
    computed from a new version of a store, all answers from the store's former version are removed, because no request
    can need them any more. The cache is therefore small if a store changes often.
    """

    def __init__(self, max_bytes: int) -> None:
        """Create an empty cache. ``max_bytes`` is the limit of memory."""
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        # store name → the `StoreView.content_id` of the view from which the latest answer was computed
        self._versions: dict[str, str] = {}
        self._bytes = 0

    def get(self, tag: str) -> Answer | None:
        """Return the answer with the ETag ``tag``, or None if it is not in the cache."""
        with self._lock:
            answer = self._answers.get(tag)
            if answer is not None:
                self._answers.move_to_end(tag)
            return answer

    def put(self, tag: str, answer: Answer) -> None:
        """Add an answer, and remove the answers that were computed from former versions of the same stores."""
        with self._lock:
            changed = {name for name, version in answer.versions.items() if self._versions.get(name) != version}
            if changed:
                self._versions.update(answer.versions)
                for other_tag, other in list(self._answers.items()):
                    if any(other.versions.get(name, self._versions[name]) != self._versions[name] for name in changed):
                        self._remove(other_tag)
            if tag in self._answers:  # another thread may have added the same answer in the meantime
                self._remove(tag)
            self._answers[tag] = answer
            self._bytes += answer.memory
            while self._bytes > self._max_bytes:
                self._remove(next(iter(self._answers)))

    def _remove(self, tag: str) -> None:
        self._bytes -= self._answers.pop(tag).memory
