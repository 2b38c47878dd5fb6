"""Keys from a lookup table in a query, compared with joins of the rows in DuckDB; the bits are those of rows with this
key.
"""

from __future__ import annotations

import json
import os
import random

import duckdb
import pyarrow as pa
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, Query, TiltFrame, lookup
from tiltframe.store import Unmapped

TRIALS = int(os.environ.get("TRIALS", "5"))
MINUTE = 60_000
MEASURES = {"n": aggr.count(), "s": aggr.sum("x"), "p": aggr.dds("x", [0.5]), "f": aggr.avg("x")}
FRAME = TiltFrame(["1m", "1h"], "ts", MEASURES, ["device", "kind"])


def filled(place, rows, frame=FRAME):
    store = FrameStore(str(place), frame)
    store.append_rows(rows, "w", 1)
    return store


def drawn_rows(draws):
    return pa.table(
        {
            "ts": [draws.randrange(180) * MINUTE for _ in range(300)],
            "device": [draws.choice(["d1", "d2", "d3", "d4", None]) for _ in range(300)],
            "kind": [draws.randrange(2) for _ in range(300)],
            "x": [draws.uniform(-1e9, 1e9) for _ in range(300)],
        }
    )


def drawn_table(draws):
    """Sites of devices, each from when on; some from ever, some of no device, some devices without."""
    since = [None, *range(0, 200 * MINUTE, 7 * MINUTE)]
    pairs = {(draws.choice(["d1", "d2", "d3", "d9", None]), draws.choice(since)) for _ in range(9)}
    return pa.table(
        {
            "site": [draws.choice(["berlin", "paris", None]) for _ in pairs],
            "device": pa.array([device for device, _ in pairs], pa.string()),
            "valid_from": pa.array([at for _, at in pairs], pa.int64()),
            "owner": ["x"] * len(pairs),
        }
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tiltframe.store.Unmapped")
@pytest.mark.parametrize("trial", range(TRIALS))
@pytest.mark.parametrize("valid", ["now", "as_of"])
def test_results_are_those_of_rows_that_had_the_key(tmp_path, trial, valid):
    draws = random.Random(f"{trial} {valid}")
    rows, sites = drawn_rows(draws), drawn_table(draws)
    now = draws.randrange(200) * MINUTE
    moment = "rows.ts" if valid == "as_of" else str(now)
    joined = duckdb.sql(f"""
        SELECT ts, kind, x, (SELECT any_value(site ORDER BY coalesce(valid_from, -1) DESC)
            FILTER (valid_from IS NULL OR valid_from <= {moment})
            FROM (SELECT * FROM sites ORDER BY coalesce(valid_from, -1) DESC) s
            WHERE s.device IS NOT DISTINCT FROM rows.device AND coalesce(valid_from, -1) = (
                SELECT max(coalesce(valid_from, -1)) FROM sites t WHERE t.device IS NOT DISTINCT FROM rows.device
                AND (t.valid_from IS NULL OR t.valid_from <= {moment}))) AS site
        FROM rows""").to_arrow_table()
    store, keys = filled(tmp_path / "a", rows), {"site": lookup("device", sites, valid), "kind": "kind"}
    other = filled(tmp_path / "b", joined, TiltFrame(["1m", "1h"], "ts", MEASURES, ["site", "kind"]))
    for per in ("1m", "7m") if valid == "as_of" else ("1m", "1h", "hopping(1h, 30m)", "all"):
        query = {"per": per, "now": now, "flat": True}
        assert store.query(keys=keys, **query).equals(other.query(**query))
        alone = store.query(keys={"site": keys["site"]}, fill="zero" if per == "1m" else False, **query)
        assert alone.equals(other.query(keys=["site"], fill="zero" if per == "1m" else False, **query))


def test_what_a_table_does_not_have_is_null_and_told(tmp_path):
    store = filled(tmp_path, pa.table({"ts": [0, 0], "device": ["d1", "d9"], "kind": [1, 1], "x": [1, 2]}))
    site = lookup("device", pa.table({"device": ["d1"], "site": ["berlin"]}))
    with pytest.warns(
        Unmapped, match="site is null in 1 of 2 results: the table of the lookup has no site for their values of device"
    ):
        got = store.query("1h", keys={"site": site})
    assert got.select(["site", "n"]).to_pylist() == [{"site": "berlin", "n": 1}, {"site": None, "n": 1}]
    both = list(store.ask(Query("1h", keys={"device": "device", "site": site}, where="kind = 1")).slices)
    assert pa.concat_tables(both).select(["device", "site"]).to_pylist()[1] == {"device": "d9", "site": None}


def test_keys_of_other_types_and_empty_tables(tmp_path):
    store = filled(tmp_path, pa.table({"ts": [0, 0], "device": ["7", "8"], "kind": [1, 2], "x": [1, 2]}))
    names = pa.table({"kind": ["1", "2"], "name": ["one", "two"], "rank": [10, 20]})
    got = store.query("1h", keys={"rank": lookup("kind", names), "name": lookup("kind", names)}, latest=True)
    assert got.select(["rank", "name"]).to_pylist() == [{"rank": 10, "name": "one"}, {"rank": 20, "name": "two"}]
    numbers = pa.table({"device": [7, 8], "site": ["a", "b"]})
    assert store.query("1h", keys={"site": lookup("device", numbers)})["site"].to_pylist() == ["a", "b"]
    with pytest.warns(Unmapped):
        nothing = store.query("1h", keys={"name": lookup("kind", names.slice(0, 0))})
    assert nothing.select(["name", "n"]).to_pylist() == [{"name": None, "n": 2}]


def test_a_lookup_is_part_of_a_query_as_json(tmp_path):
    site = lookup("device", pa.table({"device": ["d1"], "site": ["b"]}))
    query = Query("1h", keys={"site": site, "kind": "kind"})
    assert Query.from_json(query.to_json()) == query
    timed = pa.table({"device": ["d1", "d1"], "site": ["b", "c"], "valid_from": [None, "2024-05-01T10:00:00.5Z"]})
    store = filled(tmp_path, pa.table({"ts": [0], "device": ["d1"], "kind": [1], "x": [1]}))
    query = Query("1m", keys={"site": lookup("device", timed, "as_of")})
    assert store.ask(Query.from_json(query.to_json())).table() == store.ask(query).table()
    assert "10:00:00.5" in query.to_json()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (lambda: {"site": lookup("device", pa.table({"site": ["a"]}))}, "needs a column with the name of the key"),
        (lambda: {"site": lookup("device", pa.table({"device": ["a"]}))}, "has no column 'site'"),
        (lambda: {"site": lookup("nope", pa.table({"nope": [1], "site": [1]}))}, "the frame has no key 'nope'"),
        (lambda: {"n": lookup("device", pa.table({"device": ["a"], "n": [1]}))}, "the name 'n' is used twice"),
        (
            lambda: {"site": lookup("device", pa.table({"device": ["a", "a"], "site": [1, 2]}))},
            "the value 'a' of device twice",
        ),
        (
            lambda: {"site": lookup("device", pa.table({"device": ["a"], "site": [1]}), "as_of")},
            "needs a column valid_from in the table",
        ),
        (
            lambda: {"site": lookup("device", pa.table({"device": ["a"], "site": [1]}), "then")},
            "valid must be 'now' or 'as_of'",
        ),
        (
            lambda: {"site": lookup("kind", pa.table({"kind": ["x"], "site": [1]}))},
            "cannot be converted to int64, the key's type in the store",
        ),
        (
            lambda: {"site": lookup("kind", pa.table({"kind": ["1", "01"], "site": [1, 2]}))},
            "two values that are",
        ),
        (
            lambda: {"site": lookup("device", pa.table({"device": ["a"], "site": [[1]]}))},
            "cannot be a key, because its values are list",
        ),
        (lambda: {"site": "device"}, r"a key of the frame under its own name, or NAME: lookup\(KEY, table\)"),
        (lambda: {"site": {"lookup": "device"}}, "list a key of the frame under its own name"),
    ],
)
def test_lookups_that_cannot_be_are_refused(tmp_path, keys, message):
    store = filled(tmp_path, pa.table({"ts": [0], "device": ["a"], "kind": [1], "x": [1]}))
    with pytest.raises(ValueError, match=message):
        store.query("1h", keys=keys())


def test_on_the_command_line(tmp_path, capfd):
    filled(tmp_path / "store", pa.table({"ts": [0, 0], "device": ["a", "b"], "kind": [1, 1], "x": [1, 2]}))
    (tmp_path / "sites.csv").write_text("device,site\na,berlin\n")
    key = f"site=lookup(device, '{tmp_path / 'sites.csv'}')"
    answer = call(capfd, "query", tmp_path / "store", "--per", "all", "--key", key, "--format", "json")
    assert sorted(str(row["site"]) for row in map(json.loads, answer[1].splitlines())) == ["None", "berlin"]
    assert "site is null in 1 of 2 results" in answer[2]
