"""The cache of answers, compared with a list in the order of use."""

from __future__ import annotations

import random

import pytest

from tiltframe.serve.answer_cache import Answer, AnswerCache


def answer_of(body: bytes, **versions: int) -> Answer:
    return Answer({}, "application/json", body, versions)


def test_answers_of_another_version_are_removed_and_those_of_other_stores_stay():
    cache = AnswerCache(1 << 20)
    cache.put("a1", answer_of(b"1", a=1))
    cache.put("b7", answer_of(b"2", b=7))
    cache.put("a1 b7", answer_of(b"3", a=1, b=7))
    cache.put("all", answer_of(b"4"))
    cache.put("a2", answer_of(b"5", a=2))
    tags = ("a1", "b7", "a1 b7", "all", "a2")
    assert [tag for tag in tags if cache.get(tag)] == ["b7", "all", "a2"]


@pytest.mark.parametrize("seed", range(20))
def test_the_cache_has_the_current_answers_that_were_used_last_and_fit_into_its_memory(seed):
    rng, max_bytes = random.Random(seed), 20_000
    cache, versions = AnswerCache(max_bytes), {"a": 0, "b": 0}
    expected: list[tuple[str, Answer]] = []  # from the answer that was used least recently to the newest
    purged, evicted = 0, 0
    for number in range(300):
        names = rng.choice([["a"], ["b"], ["a", "b"], []])
        if names and rng.random() < 0.1:
            versions[names[0]] += rng.choice([-1, 1, 2])
        answer = answer_of(rng.randbytes(rng.randrange(4000)), **{name: versions[name] for name in names})
        cache.put(str(number), answer)
        expected.append((str(number), answer))
        current = [(tag, old) for tag, old in expected if all(versions[n] == v for n, v in old.versions.items())]
        purged, expected = purged + len(expected) - len(current), current
        while sum(old.memory for _, old in expected) > max_bytes:
            del expected[0]
            evicted += 1
        assert {tag for tag in map(str, range(number + 1)) if cache.get(tag)} == {tag for tag, _ in expected}, number
        rng.shuffle(expected)
        for tag, old in expected:
            assert cache.get(tag) is old
    assert min(purged, evicted, len(expected)) > 2
