"""Random queries, compared with a naive evaluator of the rows, which uses dictionaries and the clock of a zone.

Random choices: the levels and the zone of the store, its rows, and the arguments per, within, where, keys, measures
(with a ratio), having, order, limit, zone and latest.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import random
from collections import defaultdict
from fractions import Fraction
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, Query, TiltFrame, rollup
from tiltframe.store.testing import MemoryBackend

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
UTC = dt.UTC
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]
BEGINNINGS = [dt.datetime(2024, 3, 29, tzinfo=UTC), dt.datetime(2024, 10, 25, 7, tzinfo=UTC)]  # clocks change
MEASURES = {"n": aggr.count(), "total": aggr.sum("x"), "low": aggr.min("x"), "bad": aggr.count(where="x > 50")}
FINEST = dt.timedelta(minutes=15)
SECONDS = {"15m": 900, "30m": 1800, "1h": 3600, "3h": 10_800}


def start_of(at: dt.datetime, per: str, zone: ZoneInfo) -> dt.datetime:
    """The start of a window: a multiple on the clock of the zone for days and longer, found by its calendar."""
    if per in ("15m", "30m", "1h"):  # the offsets of all the zones are whole quarters of an hour
        offset = at.astimezone(zone).utcoffset()
        local = at + offset
        return local - (local - dt.datetime(1970, 1, 1, tzinfo=UTC)) % dt.timedelta(seconds=SECONDS[per]) - offset
    day = at.astimezone(zone).date()
    if per == "1w":
        day -= dt.timedelta(days=day.weekday())
    if per == "1mo":
        day = day.replace(day=1)
    return dt.datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


class Naive:
    """All rows, and a dictionary from windows and keys to those that lie in them."""

    def __init__(self, rows: list[dict], keys: list[str]) -> None:
        self.rows, self.keys = rows, keys

    def answer(self, query: dict, zone: str) -> list[tuple]:
        """(start, keys..., n, total, low, bad, rate) of each window, by start and keys, before having and order."""
        inside = query.get("within")
        groups = defaultdict(list)
        for row in self.rows:
            if "where" in query and not query["where"][1](row):
                continue
            start = start_of(row["ts"], query["per"], ZoneInfo(zone))
            if inside and not ((inside[0] is None or inside[0] <= start) and (inside[1] is None or start < inside[1])):
                continue
            groups[start, tuple(row[key] for key in query["keys"])].append(row["x"])
        results = [self._result(start, key, values) for (start, key), values in groups.items()]
        if query.get("latest"):
            last = {}
            for result in results:
                key = result[1 : 1 + len(query["keys"])]
                last[key] = max(last.get(key, result), result, key=lambda row: row[0])
            results = list(last.values())
        width = 1 + len(query["keys"])
        return sorted(results, key=lambda r: [(cell is None, "" if cell is None else cell) for cell in r[:width]])

    @staticmethod
    def _result(start: dt.datetime, key: tuple, values: list) -> tuple:
        numbers = [x for x in values if x is not None]
        total, low = (sum(numbers), min(numbers)) if numbers else (None, None)
        bad = sum(x > 50 for x in numbers)
        return (start, *key, len(values), total, low, bad, float(Fraction(bad, len(values))))


WHERE = {
    "host = 'a'": lambda row: row["host"] == "a",
    "host IN ('b', 'c') AND code >= 3": lambda row: row["host"] in ("b", "c") and row["code"] >= 3,
    "host IS NULL OR code < 2": lambda row: row["host"] is None or row["code"] < 2,
    "NOT (host = 'a')": lambda row: row["host"] is not None and row["host"] != "a",
}
HAVING = {
    "n > 2": lambda r: r["n"] > 2,
    "total >= 100 AND low < 40": lambda r: r["total"] is not None and r["total"] >= 100 and r["low"] < 40,
    "rate <= 0.5 OR low IS NULL": lambda r: r["rate"] <= 0.5 or r["low"] is None,
}
ORDER = {"n desc": ("n", True), "total": ("total", False), "rate desc": ("rate", True), "low": ("low", False)}


def drawn(draws: random.Random) -> tuple[FrameStore, Naive, str]:
    zone = draws.choice(ZONES)
    levels = draws.choice([["15m", "1h", "1d"], ["15m", "1d"], ["15m", "30m", "1h"], ["15m"]])
    begin = draws.choice(BEGINNINGS)
    rows = [
        {
            "ts": begin + dt.timedelta(seconds=draws.randrange(6 * 86_400)),
            "host": draws.choice(["a", "b", "c", None]),
            "code": draws.randrange(5),
            "x": draws.choice([None, draws.randrange(100)]),
        }
        for _ in range(draws.choice([0, 5, 300]))
    ]
    schema = pa.schema(
        [("ts", pa.timestamp("us", "UTC")), ("host", pa.string()), ("code", pa.int64()), ("x", pa.int64())]
    )
    frame = TiltFrame(levels, "ts", MEASURES, ["host", "code"], timezone=zone)
    store = FrameStore(MemoryBackend(f"random {draws.random()}"), frame, row_schema=schema)
    for commit in range(3):
        store.append(rollup(pa.Table.from_pylist(rows[commit::3], schema), frame), "w", commit)
    return store, Naive(rows, ["host", "code"]), zone


def question(draws: random.Random, zone: str) -> dict:
    query = {
        "per": draws.choice(["15m", "30m", "1h", "1d", "1w", "1mo"]),
        "keys": draws.sample(["host", "code"], draws.randrange(3)),
    }
    if draws.random() < 0.5:
        query["timezone"] = draws.choice(ZONES)
    if draws.random() < 0.6:
        low = draws.choice(BEGINNINGS) + FINEST * draws.randrange(400)
        query["within"] = draws.choice([(low, low + FINEST * draws.randrange(1, 300)), (low, None), (None, low)])
    for name, table in (("where", WHERE), ("having", HAVING), ("order_by", ORDER)):
        if draws.random() < 0.4:
            text = draws.choice(list(table))
            query[name] = (text, table[text])
    if draws.random() < 0.3:
        query["limit"] = draws.randrange(6)
    if draws.random() < 0.2:
        query["latest"] = True
    return query


def expected(naive: Naive, query: dict, zone: str) -> list[tuple]:
    names = ["window_start", *query["keys"], "n", "total", "low", "bad", "rate"]
    results = [dict(zip(names, result, strict=True)) for result in naive.answer(query, zone)]
    if "having" in query:
        results = [result for result in results if query["having"][1](result)]
    if "order_by" in query:
        name, descending = query["order_by"][1]
        comparable = [r for r in results if r[name] is not None]
        results = sorted(comparable, key=lambda r: -r[name] if descending else r[name]) + [
            r for r in results if r[name] is None
        ]
    return [tuple(r[name] for name in names) for r in results[: query.get("limit")]]


@pytest.mark.slow
@pytest.mark.long
def test_random_queries_give_what_the_rows_say():
    draws, compared, refused = random.Random(SEED), 0, 0
    for trial in range(int(os.environ.get("TRIALS", "60"))):
        store, naive, zone = drawn(draws)
        for _ in range(4):
            random_query = question(draws, zone)
            members = {
                name: value[0] if isinstance(value, tuple) and callable(value[1]) else value
                for name, value in random_query.items()
            }
            if "order_by" in random_query:
                members["order_by"] = random_query["order_by"][0]
            query = Query(**members, measures={**{name: name for name in MEASURES}, "rate": "bad / n"}, flat=True)
            where = (SEED, trial, store.frame, members)
            try:
                results = store.ask(Query.from_json(query.to_json())).table()
            except ValueError as error:
                if "does not consist of whole windows" not in str(error) or random_query.get("timezone", zone) == zone:
                    raise
                refused += 1
                continue
            names = [name for name in results.column_names if name not in ("level", "window_end", "partial")]
            starts = [at.astimezone(UTC) for at in results["window_start"].to_pylist()]
            other_columns = [results[name].to_pylist() for name in names[1:]]
            rows_of_store = list(zip(starts, *other_columns, strict=True))
            assert names == ["window_start", *random_query["keys"], *MEASURES, "rate"], where
            assert [*map(_plain, rows_of_store)] == [
                *map(_plain, expected(naive, random_query, random_query.get("timezone", zone)))
            ], where
            compared += 1
    assert compared > 2 * refused


def _plain(row: tuple) -> tuple:
    return tuple("nan" if isinstance(value, float) and math.isnan(value) else value for value in row)
