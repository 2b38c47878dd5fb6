"""The cache of answers: the answers of the current version of each store, in bounded memory."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tiltframe.serve.deadline import Deadline

_OVERHEAD_BYTES = 550  # the memory of a cached answer in addition to its body and headers, in bytes, as measured


@dataclass(frozen=True)
class Answer:
    """An answer whose first bytes, ``body``, have been computed. ``remaining`` is an iterator over the remaining bytes,
    or None if ``body`` is the complete answer.
    """

    headers: Mapping[str, str]
    media_type: str
    body: bytes
    versions: Mapping[str, int] = field(default_factory=dict)  # the version of each store that was read, by name
    remaining: Iterator[bytes] | None = None
    deadline: Deadline = field(default_factory=Deadline)  # the time by which the next piece must be computed

    @property
    def memory(self) -> int:
        """The bytes of memory that a cached answer needs, including overhead."""
        return sys.getsizeof(self.body) + sum(map(len, self.headers.values())) + _OVERHEAD_BYTES


class AnswerCache:
    """Complete answers by tag. Any thread may call the methods.

    If the answers exceed the limit of memory, those that were used least recently are removed. When an answer of
    another version of a store is added, all answers of its former version are removed, because no request can need
    them any more. The memory of the cache is therefore small if a store changes often.
    """

    def __init__(self, max_bytes: int) -> None:
        """Create an empty cache. ``max_bytes`` is the limit of memory."""
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._versions: dict[str, int] = {}  # the version of each store in the answer that was added last
        self._bytes = 0

    def get(self, tag: str) -> Answer | None:
        """Return the answer with a tag, or None."""
        with self._lock:
            answer = self._answers.get(tag)
            if answer is not None:
                self._answers.move_to_end(tag)
            return answer

    def put(self, tag: str, answer: Answer) -> None:
        """Add an answer, and remove outdated answers."""
        with self._lock:
            changed = {name for name, version in answer.versions.items() if self._versions.get(name) != version}
            if changed:
                self._versions.update(answer.versions)
                for other_tag, other in list(self._answers.items()):
                    if any(other.versions.get(name, self._versions[name]) != self._versions[name] for name in changed):
                        self._remove(other_tag)
            if tag in self._answers:  # another thread may have computed the same answer
                self._remove(tag)
            self._answers[tag] = answer
            self._bytes += answer.memory
            while self._bytes > self._max_bytes:
                self._remove(next(iter(self._answers)))

    def _remove(self, tag: str) -> None:
        self._bytes -= self._answers.pop(tag).memory
