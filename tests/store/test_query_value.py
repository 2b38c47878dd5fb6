"""Queries as objects: they are checked when they are created, converted to JSON and back, and give the same results in
every interface.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
import random
import re
import warnings

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, Query, TiltFrame, lookup, rollup
from tiltframe.store import Expired
from tiltframe.store.testing import MemoryBackend
from windows import hopping, window

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
UTC = dt.UTC
START = 1714521600_000  # 2024-05-01
MEASURES = {"n": aggr.count(), "errors": aggr.count(where="bad"), "ms": aggr.dds("ms", [0.5, 0.99])}
FRAME = TiltFrame(["1m", "1h", "1d"], "ts", MEASURES, ["host"])
SITES = lookup("host", pa.table({"host": ["a"], "site": ["berlin"]}))


def rows(n: int = 5000) -> pa.Table:
    return pa.table(
        {
            "ts": [START + 20_000 * i for i in range(n)],
            "host": ["abc"[i % 3] for i in range(n)],
            "bad": [i % 7 == 0 for i in range(n)],
            "ms": [float(i % 101) for i in range(n)],
        }
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = FrameStore(tmp_path_factory.mktemp("value") / "store", FRAME)
    store.append(rollup(rows(), FRAME), "w", 1)
    return store


def drawn(draws: random.Random) -> dict:
    """Members of a query, drawn from all ways to say them."""
    moments = [
        "2024-05-01", "2024-05-01T12:00:00,5", START, str(START + 5), dt.date(2024, 5, 1),
        dt.datetime(2024, 5, 1, 3, 4, 5, 6),
        dt.datetime(2024, 5, 1, 3, tzinfo=UTC), dt.datetime(2024, 5, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3))),
        np.datetime64("2024-05-01T01:02:03.5"), 19_700_101, "-2h",
    ]  # fmt: skip
    later = ["2024-05-03", START + 10**9, dt.datetime(2025, 1, 1), "now", None]
    pers = ["1m", " 1 hour", "all", None, hopping("1h", "20m"), window("1d", "Asia/Tokyo"), ["1h", window("1m")], "7d"]
    members = {
        "per": lambda: draws.choice(pers),
        "within": lambda: draws.choice(
            ["2024-05", "2024-05-01 **:**:**", "-24h", "2024-05-01,", ",now", dt.date(2024, 5, 1), (None, "now")]
            + [(draws.choice(moments), draws.choice(later)) for _ in range(9)]
        ),
        "where": lambda: "host = 'a'",
        "measures": lambda: draws.choice([["n"], {"p": aggr.dds("ms", [0.9])}, {"rate": "errors / n", "n": "n"}]),
        "keys": lambda: draws.choice([[], ["host"], ("host",), {"site": SITES, "host": "host"}]),
        "fill": lambda: draws.choice([True, "linear"]),
        "order_by": lambda: draws.choice(["n desc", ["host", "errors / n desc"], "n"]),
        "limit": lambda: draws.randrange(9),
        "now": lambda: draws.choice([m for m in moments if m is not None]),
        "flat": lambda: True,
        "edges": lambda: draws.choice(["1h", "90m", "5 minutes"]),
        "having": lambda: "n > 3",
        "timezone": lambda: draws.choice(["Europe/Berlin", "UTC", "Asia/Tokyo"]),
    }  # fmt: skip
    return {name: make() for name, make in members.items() if draws.random() < 0.4}


def test_any_query_goes_through_json_and_a_pickle():
    draws, accepted = random.Random(SEED), 0
    for trial in range(int(os.environ.get("TRIALS", "40")) * 5):
        members = drawn(draws)
        try:
            query = Query(**members)
        except ValueError as error:
            if "is empty" not in str(error):  # the range, where the zone is known
                raise
            continue
        accepted += 1
        text = query.to_json()
        assert Query.from_json(text) == query, (SEED, trial, members)
        assert Query.from_json(text).to_json() == text
        assert pickle.loads(pickle.dumps(query)) == query
        assert set(json.loads(text)) <= set(members)
    assert accepted


@pytest.mark.slow
def test_a_moment_as_text_is_the_same_moment():
    """Whatever a range is given as, its text asks for the same: read next to the value itself, in a zone."""
    from tiltframe.time_range import read_time_range

    draws = random.Random(SEED)
    for _ in range(300):
        at = dt.datetime(1960, 1, 1) + dt.timedelta(microseconds=draws.randrange(10**16))
        ways = [
            at,
            at.replace(tzinfo=UTC),
            at.date(),
            np.datetime64(at),
            int(at.replace(tzinfo=UTC).timestamp() * 1000),
        ]
        pair = (draws.choice(ways), draws.choice([None, dt.datetime(2500, 1, 1)]))
        for zone in ("Europe/Berlin", "Africa/Monrovia"):
            text = Query(within=pair, timezone=zone).within
            assert isinstance(text, str)
            assert read_time_range(text, zone, open_ends=True) == read_time_range(pair, zone, open_ends=True), (
                SEED,
                pair,
            )


@pytest.mark.parametrize("word", ["measure", "fil", "orderby", "Per"])
def test_a_word_that_a_query_does_not_have_is_answered_with_the_nearest(word, store):
    with pytest.raises(
        TypeError, match=f"a query has no parameter '{word}'; did you mean '(measures|fill|order_by|per)'"
    ):
        Query("1h", **{word: "n"})
    with pytest.raises(TypeError, match=f"a query has no parameter '{word}'; did you mean"):
        store.query("1h", **{word: "n"})


@pytest.mark.parametrize("level", ["5s", "soon", "90m", "1H"])
def test_a_level_that_a_store_does_not_have_is_answered_with_those_that_it_has(level, store):
    names = ", ".join(window.name for window in store.frame.levels)
    for ask in (store.states, store.at().level, store.export):
        with pytest.raises(ValueError, match=f"no level '{level}'; it has {names}"):
            ask(level)


WRONG = {
    '{"limits": 5}': "a query has no parameter 'limits'; did you mean 'limit'",
    '{"limit": "5"}': "limit must be a whole number of at least 0; got '5'",
    '{"limit": true}': "limit must be a whole number of at least 0; got True",
    '{"fill": 1}': "fill must be True or False; got 1",
    '{"edges": 5}': "cannot read the length of edges 5; write a whole number and one of us, ms, s, m, h, d, w",
    '{"edges": "1mo"}': "the length of edges '1mo' has no fixed length",
    '{"fill": true, "latest": true}': "leave out one of them",
    '{"per": 5}': "cannot read",
    '{"per": []}': "per must name at least one level; got an empty list",
    '{"per": {"window": "1d"}}': "a window in the description of a query must have the form",
    '{"per": "1h", "points": 5}': "contradict each other",
    '{"within": {}}': "cannot read the range {}",
    '{"within": [1, 2, 3]}': "cannot read the range",
    '{"within": "soon,"}': "cannot read 'soon' as a time",
    '{"within": ","}': "cannot read the range ','",
    '{"where": 5}': "a condition must be text, such as \"host = 'a'\"; got 5",
    '{"where": "a ="}': "cannot read the condition",
    '{"having": ["n"]}': "having must be a condition on results, such as 'requests > 100'",
    '{"measures": "n"}': "measures must be a list of names, or a dict of new ones by name",
    '{"measures": []}': "measures is empty",
    '{"measures": {"q": 3}}': "cannot read 3 as the measure 'q'",
    '{"measures": {"q": {"function": "nope"}}}': "write it as aggr.Measure.describe returns it",
    '{"keys": "host"}': "keys must be a list of names; got 'host'",
    '{"order_by": 3}': "order_by must be a list of columns to order by",
    '{"order_by": ["n", "n desc"]}': "order_by contains 'n' twice",
    '{"timezone": "Berlin"}': "Berlin",
    '{"now": []}': "cannot use [], of type list, as a time",
    "[]": "a query must be a dict of parameters by name; got []",
    '{"per"': "cannot read the query",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_no_store_can_be_asked_is_one_sentence(text):
    with pytest.raises(ValueError, match=re.escape(WRONG[text])) as caught:
        Query.from_json(text)
    message = str(caught.value)
    assert len(message) <= 300
    assert "\n" not in message


def test_a_query_says_what_has_no_text():
    fold = dt.datetime(2024, 10, 27, 2, 30, fold=1)
    with pytest.raises(ValueError, match="has a time with fold=1, which cannot be written as text"):
        Query(within=(fold, None)).to_json()


def test_every_door_gives_the_same(store, tmp_path, capfd):
    query = Query(
        ["1h", "1d"],
        "2024-05-01",
        measures={"rate": "errors / n", "n": "n"},
        order_by="rate desc",
        flat=True,
        now="2024-06-01",
    )
    table = store.query(**query.describe())
    assert store.ask(query).table().equals(table)
    assert pa.concat_tables(store.query_slices(**query.describe())).equals(table)
    assert store.query_schema(query).equals(table.schema)
    arguments = [
        "--per",
        "1h",
        "--per",
        "1d",
        "--within",
        "2024-05-01",
        "--measure",
        "rate=errors / n",
        "--measure",
        "n",
    ]
    arguments += ["--order-by", "rate desc", "--flat", "--now", "2024-06-01", "--format", "json"]
    status, out, err = call(capfd, "query", store.uri, *arguments)
    assert (status, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["rate"], line["n"]) for line in lines] == list(
        zip(table["rate"].to_pylist(), table["n"].to_pylist(), strict=True)
    )


@pytest.mark.parametrize(
    "members", [{}, {"flat": True}, {"keys": []}, {"measures": {"r": "ms_p99 / ms_p50"}}, {"per": "all"}]
)
def test_the_schema_is_known_without_reading(store, members):
    query = Query(**({"per": "1h"} | members))
    assert store.query_schema(query).equals(store.query(**query.describe()).schema, check_metadata=True)


def test_ratios_are_computed_from_results(store):
    result = store.query("1h", measures={"rate": "errors / n", "spread": "ms_p99 - ms.quantiles['0.5']", "n": "n"})
    plain = store.query("1h", flat=True)
    assert result.column_names[4:] == ["rate", "spread", "n", "partial"]
    assert result["rate"].to_pylist() == [
        e / n for e, n in zip(plain["errors"].to_pylist(), plain["n"].to_pylist(), strict=True)
    ]
    assert result["spread"].to_pylist() == [
        a - b for a, b in zip(plain["ms_p99"].to_pylist(), plain["ms_p50"].to_pylist(), strict=True)
    ]
    best = store.query("1h", measures={"rate": "errors / n"}, having="rate > 0.14", order_by="rate desc")[
        "rate"
    ].to_pylist()
    assert best == sorted((r for r in result["rate"].to_pylist() if r > 0.14), reverse=True)
    renamed = store.query("1h", measures={"requests": "n", "n": "n * 2"})
    assert [2 * n for n in renamed["requests"].to_pylist()] == renamed["n"].to_pylist()
    new = store.query(
        "1d", keys=[], measures={"wide": "p_p90 - p_p10", "p": aggr.dds("ms", [0.1, 0.9])}, flat=True
    ).to_pylist()
    assert all(row["wide"] == row["p_p90"] - row["p_p10"] for row in new)
    for measures, message in (
        ({"r": "errorz / n"}, "r reads 'errorz', which is not a result; did you mean 'errors'"),
        ({"r": "ms_p98 / n"}, "cannot compute r: 'ms_p98 / n': it reads 'ms_p98', which is not a result; did you mean"),
        ({"r": "ms"}, None),
        (["m"], "the frame has no measure 'm'; "),
        ({"host": "n"}, "the name 'host' is used twice"),
    ):
        if message is None:
            assert store.query("1h", measures=measures)["r"].type == store.query("1h")["ms"].type
            continue
        with pytest.raises(ValueError, match=message):
            store.query("1h", measures=measures)


def test_the_greatest_of_a_sketch_in_every_form(store):
    expected = [max(row["ms"] for row in rows().to_pylist() if row["host"] == host) for host in "abc"]
    result = store.query("all", flat=True, having="ms_max >= 100 AND ms.min = 0", order_by=["ms_max desc", "host"])
    assert result["ms_max"].to_pylist() == expected
    from aggr.tables import accessors

    states = pa.concat_arrays(store.states("1d")["ms"].chunks)
    days = store.query("1d", flat=True)
    assert accessors.max(states).to_pylist() == days["ms_max"].to_pylist()
    assert accessors.min(states).to_pylist() == days["ms_min"].to_pylist()
    with pytest.raises(TypeError, match="states of count have no max"):
        accessors.max(pa.concat_arrays(store.states("1d")["n"].chunks))


def test_a_range_may_be_open_at_one_end(store):
    every = store.query("1h", keys=[])
    at = dt.datetime(2024, 5, 1, 12, tzinfo=UTC)
    starts = every["window_start"].to_pylist()
    cut = [start < at for start in starts].count(True)
    for within in ((at, None), "2024-05-01T12:00Z,", ("2024-05-01T12:00", None)):
        assert store.query("1h", within, keys=[]).equals(every.slice(cut))
    assert store.query("1h", ",2024-05-01T12:00", keys=[]).equals(every.slice(0, cut))
    later = store.query("all", (at, None), keys=[]).to_pylist()
    assert [(row["window_start"], row["n"]) for row in later] == [(at, sum(every["n"].to_pylist()[cut:]))]
    assert later[0]["window_end"] == every["window_end"][-1].as_py()  # of hours, which noon begins one of
    filled = store.query("10m", (at, None), keys=[], fill=True)["window_start"].to_pylist()
    assert filled[0] == at
    assert filled[-1] == store.query("10m", keys=[])["window_start"].to_pylist()[-1]
    assert store.query("1h", ("2030-01-01", None)).num_rows == 0
    assert store.query("all", ("2030-01-01", None)).num_rows == 0
    assert store.query(points=40, within=(at, None), keys=[])["level"][0].as_py() == "1h"
    with pytest.raises(ValueError, match="has only one end, but both are required here"):
        store.rebuild(within=(at, None))


def test_times_are_of_the_frames_zone_or_the_one_that_is_asked_for():
    frame = TiltFrame(["1h"], "ts", {"n": aggr.count()}, timezone="Europe/Berlin")
    store = FrameStore(MemoryBackend(f"zone {SEED}"), frame)
    store.append(rollup(rows(), frame), "w", 1)
    assert store.query("1d")["window_start"][0].as_py().isoformat() == "2024-05-01T00:00:00+02:00"
    assert store.query("1h", timezone="Asia/Tokyo").schema.field("window_end").type.tz == "Asia/Tokyo"
    from tiltframe.text.results import json_lines

    first = json.loads(json_lines(store.query("1d")).splitlines()[0])
    assert (first["window_start"], first["window_end"]) == ("2024-05-01T00:00:00+02:00", "2024-05-02T00:00:00+02:00")


def test_points_choose_windows_of_the_zone_that_is_asked_for(store):
    result = store.query(points=3, timezone="Europe/Berlin", keys=[])
    assert set(result["level"].to_pylist()) == {"1d"}
    assert [at.isoformat() for at in result["window_start"].to_pylist()][1:] == ["2024-05-02T00:00:00+02:00"]
    assert result.equals(store.query("1d", timezone="Europe/Berlin", keys=[]))
    kathmandu = store.query(points=3, timezone="Asia/Kathmandu", keys=[], within="2024")  # hours make no days there
    assert all(at.strftime("%d %H:%M") == "01 00:00" for at in kathmandu["window_start"].to_pylist())


def test_windows_that_are_one_under_two_names_are_refused(store):
    for per in (
        ["1m", "60s"],
        ["1d", "24h"],
        ["1h", window("1h")],
        [hopping("1h", "20m"), "hopping(60m, 20m)"],
        ["all", None],
    ):
        with pytest.raises(ValueError, match="per contains a level twice"):
            store.query(per)
    assert store.query(["1h", "hopping(1h, 20m)", "hopping(40m, 20m)"]).num_rows


def test_what_has_expired_is_said_in_the_answer_and_warned_of_once_at_the_door(tmp_path):
    store = FrameStore(tmp_path / "store", FRAME, retention={"1m": "1h"})
    store.append(rollup(rows(), FRAME), "w", 1)
    store.expire(now="2024-05-02T12:00Z")
    sentence = "1m has windows only from 2024-05-02T03:00:00Z on; query a coarser level for earlier windows"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = store.ask(Query("1m"))
        assert [warning[:14] for warning in answer.expired] == [sentence[:14]]
        assert store.ask(Query("1h")).expired == ()
        assert len(store.at().states(Query("1m")).expired) == 1
    with pytest.warns(Expired) as caught:
        store.query("1m")
    assert [warning.filename for warning in caught] == [__file__]
    for warns in (
        lambda: list(store.query_slices("1m")),
        lambda: store.states("1m"),
        lambda: store.join(pa.table({"host": ["a"]}), "host", per="1m"),
        lambda: store.plan(Query("1m")).warn_of_missing(),
    ):
        with pytest.warns(Expired) as caught:
            warns()
        assert [warning.filename for warning in caught] == [__file__]


def test_the_values_of_a_key_and_a_name_for_what_a_store_holds(store, tmp_path):
    assert store.key_values("host").to_pylist() == ["a", "b", "c"]
    assert store.key_values("host", (START, START + 40_000)).to_pylist() == ["a", "b", "c"]  # of the first minute
    assert store.key_values("host", "2030").to_pylist() == []
    with pytest.raises(ValueError, match="the frame has no key 'hots'; did you mean 'host'"):
        store.key_values("hots")
    new_store = FrameStore(tmp_path / "one", FRAME)
    new_store.append(rollup(rows(10), FRAME), "w", 1)
    names = [new_store.version()]
    assert FrameStore(new_store.uri).version() == names[0]
    new_store.append(
        rollup(pa.table({**{c: rows(3)[c] for c in ("ts", "bad", "ms")}, "host": [None, "z", "z"]}), FRAME), "w", 2
    )
    names.append(new_store.version())
    assert new_store.key_values("host").to_pylist() == ["a", "b", "c", "z", None]
    new_store.compact()
    names.append(new_store.version())
    new_store.evolve(new_store.frame.with_measures({"m": aggr.dds("ms", [0.1])}))
    names.append(new_store.version())
    assert names == sorted(set(names))
