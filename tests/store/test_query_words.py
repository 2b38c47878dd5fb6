"""Queries whose parameters are written as text."""

import re

import pytest

from tests.command_line import call
from tiltframe import Query
from tiltframe.store import BOOLEAN_PARAMETERS, query_from_words

pytestmark = pytest.mark.store
DAYS_IN_BERLIN = '{"window": "1d", "timezone": "Europe/Berlin"}'


@pytest.mark.parametrize("name", BOOLEAN_PARAMETERS)
@pytest.mark.parametrize(("text", "value"), [("true", True), (" TRUE ", True), ("False", False)])
def test_booleans_may_have_any_case(name, text, value):
    assert query_from_words({"per": "1h", name: text}) == Query("1h", **{name: value})


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), ("zero", "zero")])
def test_a_fill_is_a_boolean_or_a_name(text, value):
    assert query_from_words({"per": "1h", "fill": text}) == Query("1h", fill=value)


@pytest.mark.parametrize(
    ("words", "query"),
    [
        ({"per": "1h", "limit": " 5 "}, Query("1h", limit=5)),
        ({"points": "5"}, Query(points=5)),
        ({"per": ["1h", "1d"]}, Query(["1h", "1d"])),
        ({"per": f" {DAYS_IN_BERLIN}"}, Query.from_json(f'{{"per": {DAYS_IN_BERLIN}}}')),
        ({"per": "1h", "keys": "host, path,"}, Query("1h", keys=["host", "path"])),
        ({"per": "1h", "keys": ["host", "path"]}, Query("1h", keys=["host", "path"])),
        ({"per": "1h", "keys": [""]}, Query("1h", keys=[])),
        ({"per": "1h", "keys": '["a, b"]'}, Query("1h", keys=["a, b"])),
        ({"per": "1h", "measures": "n, p"}, Query("1h", measures=["n", "p"])),
        ({"per": "1h", "measures": ["n", "q = n / 2"]}, Query("1h", measures={"n": "n", "q": "n / 2"})),
        ({"per": "1h", "measures": '{"q": "n / 2"}'}, Query("1h", measures={"q": "n / 2"})),
        ({"per": "1h", "order_by": ["n desc", "host"]}, Query("1h", order_by=["n desc", "host"])),
        ({"per": "1h", "order_by": "n desc"}, Query("1h", order_by="n desc")),
        ({"per": ["1h"], "where": ["host = 'a'"]}, Query("1h", where="host = 'a'")),
    ],
)
def test_texts_of_parameters(words, query):
    assert query_from_words(words) == query


WRONG = {
    "flat": ("yes", "flat must be true or false; got 'yes'"),
    "limit": ("-1", "limit must be a whole number of at least 0; got '-1'"),
    "points": ("0", "points must be a whole number of at least 1; got 0"),
    "measures": ('["a"', "cannot read measures '[\"a\"' as JSON; write names separated by commas"),
    "keys": ("[1]", "keys must be names, separated by commas or as a list in JSON; got [1]"),
    "per": ('{"window"', "cannot read per '{\"window\"' as JSON; write a window such as 1h"),
    "where": (["a", "b"], "where is passed 2 times; pass it once"),
    "fill": ("", "fill must be True or False, or one of"),
    "limits": ("5", "a query has no parameter 'limits'; did you mean 'limit'?"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_texts(name):
    text, message = WRONG[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        query_from_words({name: text})


@pytest.mark.parametrize(("option", "low"), [("--points", 1), ("--limit", 0)])
def test_a_command_names_the_option(option, low, capfd):
    _, _, error = call(capfd, "query", "web", f"{option}=x")
    assert f"{option} must be a whole number of at least {low}; got 'x'" in error
