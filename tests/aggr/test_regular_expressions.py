"""Regular expressions: alternatives of plain texts, and the limit on the size of the compiled program."""

from __future__ import annotations

import os
import random
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aggr import sql
from aggr.sql.regular_expressions import MAX_STEPS, check_regex_size, plain_texts
from tiltframe.serve.errors import BadData
from tiltframe.serve.promql.metrics import Matcher

TRIALS = int(os.environ.get("TRIALS", "300"))
SEED = int(os.environ.get("SEED", random.randrange(2**32)))
TOO_LARGE = [
    "(a|b)*" * 3_500,  # 4.7 s when compiled 5,000 times over
    "x{0,99}" * 585,  # 12.6 s
    "(.|a){0,9}" * 400,  # 7.3 s with a thousand short texts
    "((a{1,30}){1,30}){1,9}",
    r"\pL+" * 200,
    ".*" * 20_000,
]
TEXTS = pa.array(["abcdefgh" * 4] * 1000)
ROWS = pa.RecordBatch.from_pydict({"host": TEXTS})


@pytest.mark.parametrize("regex", TOO_LARGE, ids=lambda regex: regex[:20])
def test_a_large_expression_is_refused_at_once(regex):
    began = time.monotonic()
    with pytest.raises(BadData, match=rf"at most {MAX_STEPS:,} are allowed: shorten it"):
        Matcher("host", regex, regex=True, negated=False).matches(TEXTS)
    with pytest.raises(ValueError, match=rf"at most {MAX_STEPS:,} are allowed: shorten it"):
        sql.rows_where(
            f"host RLIKE '{regex.replace(chr(92), chr(92) * 2)}'", pa.RecordBatch.from_pydict({"host": TEXTS})
        )
    assert time.monotonic() - began < 1


def test_a_large_pattern_of_like_is_refused():
    with pytest.raises(ValueError, match=r"about 5,000 steps"):
        sql.rows_where(f"host LIKE '{'a%b_' * 1000}'", ROWS)


def test_allowed_expressions_are_fast():
    allowed = ["(a|b)*" * 500, "x{0,99}" * 30, "(.|a){0,9}" * 100, "a?" * 1500, r"\pL*" * 100]
    for regex in allowed:
        check_regex_size(regex)
        began = time.monotonic()
        pc.match_substring_regex(TEXTS, rf"\A(?:{regex})\z")
        assert time.monotonic() - began < 2, regex[:20]


def test_a_long_choice_of_plain_texts_has_no_bound():
    draws = random.Random(SEED)
    hosts = [f"host-{draws.randrange(10**9)}.example" for _ in range(20_000)]
    matcher = Matcher("host", "|".join(host.replace(".", r"\.") for host in hosts), regex=True, negated=True)
    assert matcher.matches(pa.array([hosts[7], None, "host-1xexample", hosts[-1]])).tolist() == [
        False,
        True,
        True,
        False,
    ]


def test_choices_match_as_re2_does():
    draws = random.Random(SEED)
    print("seed", SEED)
    for _ in range(TRIALS):
        regex = "".join(draws.choices(["a", "b", "é", "|", r"\.", r"\-", r"\_", "(", ")", "-", " ", "/", "\n"], k=6))
        choices = plain_texts(regex)
        if choices is None:
            continue
        texts = pa.array(["", "a", "b", "ab", ".", "-", "é", *choices, *(choice + "a" for choice in choices)])
        expected = pc.match_substring_regex(texts, rf"\A(?:{regex})\z").to_pylist()
        assert Matcher("host", regex, regex=True, negated=False).matches(texts).tolist() == expected, regex
    assert plain_texts("(a|b)") == ["a", "b"]
    assert plain_texts("(a)|(b)") is None
    assert plain_texts(r"\d") is None


def test_the_size_of_hostile_expressions_is_known_at_once():
    began = time.process_time()
    for hostile in ("[" * 100_000, "a{" + "9" * 100_000 + "}", "(?P<" * 20_000, "\\p{" * 20_000):
        assert plain_texts(hostile) is None
        with pytest.raises(ValueError, match="steps; at most"):
            check_regex_size(hostile)
    assert time.process_time() - began < 2
