"""Statements from the documentation of five engines, tested in Python, on the command line and over HTTP.

The pages in docs/coming-from test further statements. This file has the statements about other interfaces, and those
that were wrong once. tests/spark/test_engine_statements.py has the statements about Spark.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

import aggr
from aggr import each
from tests.command_line import call
from tests.serve.servers import make_store, serving
from tiltframe import FrameStore, RunningAggregation, TiltFrame, finish, rollup, running
from tiltframe.streaming import OpenWindows
from tiltframe.streaming.ordered_stream import OrderedStream
from windows.ordered import since, yearly

SECOND = 1_000_000
YEARS = since(yearly("UTC"))
PURCHASES = [("2012-03-01", 5), ("2012-09-01", 2), ("2018-05-05", 13), ("2019-02-02", 4)]
YEARLY = [7, 0, 0, 0, 0, 0, 13, 4]


def command(capfd, *arguments: object) -> str:
    status, output, error = call(capfd, *arguments)
    assert status == 0, error
    return output


def stream(forked, lines: list[dict], *options: str) -> list[dict]:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    status, output, error = forked.run(["stream", *options], text=text)
    assert status == 0, error
    return [json.loads(line) for line in output.splitlines()]


def at(*moments: int, **columns: object) -> pa.Table:
    return pa.table({"ts": pa.array(moments, pa.timestamp("us", "UTC")), **columns})


TICKS = {"time": "ts", "emit": "ticks", "until": "next", "fill": "zero"}
PRICES = {"avgPrice": aggr.avg("price"), "total": aggr.sum("price")}
QUANTILES = ["0.5", "0.9", "0.99", "0.999"]


class TestKaskada:
    """The example of the documents: purchases of 7 in 2012, 13 in 2018, and 4 in 2019."""

    rows = pa.table({"ts": [f"{day}T00:00:00Z" for day, _ in PURCHASES], "n": [n for _, n in PURCHASES]})

    def test_yearly_sums_of_the_data(self):
        assert running(self.rows, {"n": aggr.sum("n")}, YEARS, **TICKS)["n"].to_pylist() == YEARLY

    def test_a_stream_that_has_advanced_to_2020_has_its_tick(self):
        ticking = OrderedStream(RunningAggregation({"n": aggr.sum("n")}, YEARS, time="ts", emit="ticks", fill="zero"))
        ticking.add_rows(self.rows)
        results = ticking.results(ticking.advance(dt.datetime.fromisoformat("2020-01-01T00:00:01+00:00")))
        assert results["n"].to_pylist() == YEARLY

    def test_ticks_of_several_entities_begin_and_end_with_the_data_of_all(self):
        days = [("a", "2012-03-01"), ("a", "2012-04-01"), ("a", "2014-02-01"), ("b", "2013-02-01")]
        rows = pa.table({"ts": [f"{day}T00:00:00Z" for _, day in days], "k": [key for key, _ in days]})
        counts = running(rows, {"n": aggr.count()}, YEARS, keys=["k"], **TICKS)
        assert [(row["k"], row["ts"].year, row["n"]) for row in counts.to_pylist()] == [
            ("a", 2013, 2), ("a", 2014, 0), ("a", 2015, 1), ("b", 2013, 0), ("b", 2014, 1), ("b", 2015, 0),
        ]  # fmt: skip

    def test_yearly_sums_on_the_command_line(self, forked):
        options = ["--time", "ts", "--measure", "sum=sum(n)", "--ordered", "since(yearly('UTC'))", "--until", "next"]
        results = stream(forked, self.rows.to_pylist(), *options, "--fill", "zero")
        assert [row["sum"] for row in results if row["tick"]] == YEARLY

    @pytest.mark.store
    @pytest.mark.slow
    def test_the_sum_of_all_that_came_before_over_http(self, tmp_path):
        frame = TiltFrame(["1y"], "ts", {"total": aggr.sum("n")})
        make_store(tmp_path / "years", frame=frame, data=self.rows)
        with serving(tmp_path, tmp_path / "years") as server:
            answer = server.ask("/v1/query?store=years&per=1y&running=true&measures=total")
            assert [row["total"] for row in answer.json()["rows"]] == [7, 20, 24]


class TestSiddhi:
    """The documents' trades, one second apart, and the zone of a query."""

    def test_a_watermark_of_the_newest_time_leaves_the_buffer_open(self):
        windows = OpenWindows(TiltFrame(["sec"], "ts", {"n": aggr.count()}), late="buffer(3)")
        seconds = [50, 51, 52, 53, 51, 53, 54, 50]
        for number, second in enumerate(seconds):
            windows.add_rows(at(second * SECOND))
            windows.advance(max(seconds[: number + 1]) * SECOND)
        counts = windows.results(windows.close()).to_pylist()
        assert {row["window_start"].second: row["n"] for row in counts} == {51: 3, 52: 1, 53: 2, 54: 1}

    def test_durations_as_one_text(self, capfd, tmp_path):
        names = ["1s", "1m", "1h", "1d", "1mo", "1y"]
        assert [level.name for level in TiltFrame("sec ... year", "ts", PRICES).levels] == names
        (tmp_path / "rows.jsonl").write_text('{"ts": "2017-06-01T04:05:50Z", "price": 50}\n')
        frame = ["--time", "ts", "--measure", "n=count()", "--levels", "sec ... year"]
        command(capfd, "rollup", tmp_path / "rows.jsonl", *frame, "--store", tmp_path / "store")
        assert [level.name for level in FrameStore(tmp_path / "store").frame.levels] == names

    def test_a_zone_with_a_fixed_offset(self, capfd, tmp_path):
        frame = TiltFrame(["1h", "1d"], "ts", {"n": aggr.count()}, timezone="+05:30")
        (day,) = [row for row in finish(rollup(pa.table({"ts": ["2014-02-19T20:00:00Z"]}), frame), frame).to_pylist()
                  if row["level"] == "1d"]  # fmt: skip
        assert day["window_start"].isoformat() == "2014-02-20T00:00:00+05:30"
        store = FrameStore(tmp_path / "store", TiltFrame(["30m"], "ts", {"n": aggr.count()}))
        store.append_rows(pa.table({"ts": ["2014-02-19T20:00:00Z"]}), writer="w", commit=1)
        options = ["--per", "1d", "--timezone", "+05:30", "--format", "json"]
        output = command(capfd, "query", tmp_path / "store", *options)
        assert json.loads(output)["window_start"] == "2014-02-20T00:00:00+05:30"

    def test_only_closed_windows_of_the_tables(self, tmp_path, forked, capfd):
        """Minutes and hours of tables hold closed windows only: with --closed."""
        times = ["05:59:58", "05:59:58", "05:59:59", "06:00:00", "06:00:01"]
        lines = [{"ts": f"2017-06-01T{time}Z"} for time in times]
        store = tmp_path / "store"
        options = ["--time", "ts", "--measure", "n=count()", "--levels", "1s,1m,1h", "--store", str(store)]
        stream(forked, lines, *options, "--state", str(tmp_path / "state"))
        query = ["query", store, "--per", "1m", "--per", "1h", "--closed", "--format", "json"]
        closed = map(json.loads, command(capfd, *query).splitlines())
        assert [(row["level"], row["window_start"][11:19], row["n"]) for row in closed] == [
            ("1m", "05:59:00", 3),
            ("1h", "05:00:00", 3),
        ]

    @pytest.mark.store
    @pytest.mark.slow
    def test_timestamps_and_years_of_seconds_over_http(self, tmp_path):
        frame = TiltFrame("sec ... year", "timestamp", PRICES, ["symbol"])
        days = ["2014-02-01T00:00:01Z", "2014-02-07T10:00:00Z", "2014-02-28T23:59:59Z", "2013-12-31T00:00:00Z"]
        rows = pa.table(
            {"timestamp": [*days, days[0]], "symbol": ["IBM"] * 4 + ["WSO2"], "price": [50.0, 70, 60, 100, 100]}
        )
        make_store(tmp_path / "trades", frame=frame, data=rows)
        with serving(tmp_path, tmp_path / "trades") as server:
            path = "/v1/query?store=trades&per=seconds&within=2014-02-**%20**:**:**&measures=total"
            path += "&measures=AGG_TIMESTAMP%3Depoch_ms(window_start)"
            answer = server.ask(path)
        results = answer.json()["rows"]
        assert [(row["AGG_TIMESTAMP"], row["symbol"]) for row in results] == [
            (1391212801000, "IBM"), (1391212801000, "WSO2"), (1391767200000, "IBM"), (1393631999000, "IBM"),
        ]  # fmt: skip


class TestTektite:
    """Windows under a second, and only windows that are closed."""

    def test_half_a_second(self, forked):
        rows = at(0, 499_999, 500_000)
        frame = TiltFrame(["500ms"], "ts", {"n": aggr.count()})
        assert finish(rollup(rows, frame), frame)["n"].to_pylist() == [2, 1]
        lines = [{"ts": row["ts"].isoformat()} for row in rows.to_pylist()]
        options = ["--time", "ts", "--measure", "n=count()", "--levels", "500ms"]
        assert [row["n"] for row in stream(forked, lines, *options)] == [2, 1]

    @pytest.mark.store
    @pytest.mark.slow
    def test_the_last_closed_window_of_each_key(self, tmp_path):
        amounts = {"min": aggr.min("amount"), "max": aggr.max("amount"), "count": aggr.count("amount"),
                   "sum": aggr.sum("amount", dtype="decimal")}  # fmt: skip
        frame = TiltFrame(["10m"], "ts", amounts, ["country"])
        sales = [("uk", "85.23")] * 2 + [("uk", "56.23")] * 3 + [("usa", "23.23")] * 2 + [("uk", "1.00")]
        times = [
            "10:51:15",
            "10:51:16",
            "10:51:17",
            "10:51:17.900",
            "10:51:17.962",
            "10:51:20",
            "10:51:29.687",
            "11:05:00",
        ]
        rows = pa.table(
            {
                "ts": [f"2024-05-14T{time}Z" for time in times],
                "country": [country for country, _ in sales],
                "amount": pa.array([Decimal(amount) for _, amount in sales], pa.decimal128(10, 2)),
            }
        )
        store = make_store(tmp_path / "sales", frame=frame, data=rows)
        expected = [("uk", "56.23", "85.23", 5, "339.15"), ("usa", "23.23", "23.23", 2, "46.46")]
        options = {"latest": True, "closed": True, "now": "2024-05-14T11:05Z"}
        local = store.query("hopping(1h, 10m)", **options).to_pylist()
        assert [(r["country"], str(r["min"]), str(r["max"]), r["count"], str(r["sum"])) for r in local] == expected
        with serving(tmp_path, tmp_path / "sales") as server:
            path = "/v1/query?store=sales&per=hopping(1h,%2010m)&latest=true&closed=true&now=2024-05-14T11:05Z"
            results = server.ask(path).json()["rows"]
        assert [tuple(row[name] for name in ("country", "min", "max", "count", "sum")) for row in results] == expected


class TestTimeplus:
    """Emission policies, and expressions over aggregates."""

    greatest = TiltFrame(["all"], "ts", {"max": aggr.max("x")})
    spans = pa.table(
        {
            "trace_id": ["t", "t"],
            "start_time": pa.array([0, 200_000], pa.timestamp("us", "UTC")),
            "end_time": pa.array([100_000, 600_000], pa.timestamp("us", "UTC")),
            "span_id": ["s1", "s2"],
            "name": ["start", "call"],
        }
    )

    def test_a_key_expires_by_its_span_alone(self, forked):
        windows = OpenWindows(TiltFrame(["all"], "ts", {"n": aggr.count()}, ["k"]), "after_key_expire(maxspan=500ms)")
        windows.add_rows(at(0, 100_000, 700_000, k=["a", "a", "b"]))
        emitted = windows.results(windows.advance(700_000)).to_pylist()
        assert [(row["k"], row["n"]) for row in emitted] == [("a", 2)]
        lines = [{"ts": f"2024-05-01T10:00:0{s}Z", "k": k} for s, k in (("0.0", "a"), ("0.1", "a"), ("0.7", "b"))]
        options = ["--time", "ts", "--key", "k", "--measure", "n=count()", "--levels", "all"]
        rows = stream(forked, lines, *options, "--emit", "after_key_expire(maxspan=500ms)")
        assert [(row["k"], row["n"]) for row in rows] == [("a", 2), ("b", 1)]

    @pytest.mark.parametrize("batch", ["", "batch=2s, "])
    def test_rows_that_leave_the_value_as_it_is_emit_nothing(self, batch):
        windows, emitted = OpenWindows(self.greatest, f"on_update({batch}changed=result)"), []
        for step, x in enumerate([3.0, 2.0]):
            windows.add_rows(at(step, x=[x]))
            emitted.append(windows.results(windows.advance(now=2 * SECOND * (step + 1)))["max"].to_pylist())
        assert emitted == [[3.0], []]

    def test_rows_that_leave_the_value_as_it_is_emit_nothing_on_the_command_line(self, forked):
        lines = [{"ts": f"2024-05-01T10:00:0{i}Z", "x": x} for i, x in enumerate([3, 2])]
        options = ["--time", "ts", "--measure", "max=max(x)", "--levels", "all", "--emit", "on_update(changed=result)"]
        assert [row["max"] for row in stream(forked, lines, *options)] == [3]

    def test_a_global_aggregation_is_emitted_every_two_seconds(self, forked):
        windows = OpenWindows(TiltFrame(["all"], "ts", {"n": aggr.count()}))
        windows.add_rows(at(0))
        steps = [windows.results(windows.advance(now=now)).to_pylist() for now in (SECOND, 2 * SECOND)]
        assert [[(row["n"], row["reason"]) for row in step] for step in steps] == [[], [(1, "period")]]
        options = ["--time", "ts", "--measure", "n=count()", "--levels", "all"]
        assert [row["n"] for row in stream(forked, [{"ts": "2024-05-01T10:00:00Z"}], *options)] == [1]

    def test_a_span_is_an_expression_of_aggregates(self, forked):
        measures = {
            "start": aggr.min("start_time"),
            "end": aggr.max("end_time"),
            "span_ms": "date_diff('ms', start, end)",
        }
        frame = TiltFrame(["all"], "end_time", measures, ["trace_id"])
        assert finish(rollup(self.spans, frame), frame)["span_ms"].to_pylist() == [600]
        times = ["2024-05-01T09:00:00Z", "2024-05-01T09:00:01Z"]
        lines = [
            {"end_time": time, "at": time, "trace_id": "t", "span_id": row["span_id"], "name": row["name"]}
            for time, row in zip(times, self.spans.to_pylist(), strict=True)
        ]
        options = ["--time", "end_time", "--key", "trace_id", "--levels", "all"]
        measures = ["first=min(at)", "last=max(at)", "span_ms=date_diff('ms', first, last)"]
        options += [f"--measure={text}" for text in [*measures, "spans=collect([span_id, name])"]]
        (row,) = stream(forked, lines, *options)
        assert row["span_ms"] == 1000
        assert row["spans"] == [{"span_id": "s1", "name": "start"}, {"span_id": "s2", "name": "call"}]

    def test_an_array_of_records_and_of_their_json(self):
        frame = TiltFrame(
            ["all"],
            "end_time",
            {
                "records": aggr.collect(["span_id", "name"]),
                "texts": aggr.collect("to_json(struct(span_id, name))"),
            },
        )
        (row,) = finish(rollup(self.spans, frame), frame).to_pylist()
        assert row["records"] == [{"span_id": "s1", "name": "start"}, {"span_id": "s2", "name": "call"}]
        assert list(map(json.loads, row["texts"])) == row["records"]

    @pytest.mark.store
    @pytest.mark.slow
    def test_events_over_http_become_lists_of_records(self, tmp_path):
        frame = TiltFrame(
            ["1m"], "ts", {"spans": aggr.collect(["span_id", "name"]), "n": aggr.count(), "twice": "n * 2"}
        )
        rows = pa.table({"ts": ["2024-05-01T10:00:00Z"], "span_id": ["s1"], "name": ["start"]})
        make_store(tmp_path / "traces", frame=frame, data=rows)
        with serving(tmp_path, "--writable", tmp_path / "traces") as server:
            line = json.dumps({"ts": "2024-05-01T10:00:01Z", "span_id": "s2", "name": None}).encode()
            headers = {"Content-Type": "application/x-ndjson"}
            answer = server.ask("/v1/stores/traces/events?writer=a&number=1", line, headers=headers)
            assert answer.status == 200, answer.body
            (result,) = server.ask("/v1/query?store=traces&per=1m").json()["rows"]
        assert result["spans"] == [{"span_id": "s1", "name": "start"}, {"span_id": "s2", "name": None}]
        assert (result["n"], result["twice"]) == (2, 4)

    def test_a_delay_of_windows_over_all_time_is_refused(self):
        with pytest.raises(ValueError, match="leave out delay"):
            OpenWindows(self.greatest, "on_update(delay=1s)")


class TestTremor:
    """Records as keys and values, and quantiles as text."""

    def of_records(self, records: pa.Array, key: str) -> list[tuple]:
        rows = pa.table({"ts": range(len(records)), "fields": records})
        frame = TiltFrame(
            ["10s"], "ts", {"mean": aggr.avg("fields[class]"), "h": aggr.hdr("fields[class]")}, {"class": key}
        )
        return [(row["class"], row["mean"]) for row in finish(rollup(rows, frame), frame).to_pylist()]

    def test_the_fields_of_a_record_as_keys(self):
        rows = pa.table({"ts": [0, 1, 2], "tags": pa.array([{"host": "a"}, {"host": "b"}, {"host": "a"}])})
        frame = TiltFrame(["10s"], "ts", {"n": aggr.count()}, {"host": "tags.host"})
        assert finish(rollup(rows, frame), frame).select(["host", "n"]).to_pydict() == {"host": ["a", "b"], "n": [2, 1]}

    def test_a_record_as_a_key(self):
        records = [{"host name": "a", "b": 1}, None, {"host name": None, "b": None}, {"host name": "a", "b": 1}]
        rows = pa.table({"ts": range(4), "my tags": pa.array(records)})
        frame = TiltFrame(["10s"], "ts", {"n": aggr.count()}, ["my tags"])
        results = finish(rollup(rows, frame), frame).select(["my tags", "n"]).to_pylist()
        assert results == [{"my tags": records[at], "n": n} for at, n in ((0, 2), (2, 1), (1, 1))]

    @pytest.mark.parametrize("function", [aggr.dds, aggr.hdr])
    def test_quantiles_as_text(self, function):
        rows = pa.table({"ts": range(1, 101), "x": range(1, 101)})
        frame = TiltFrame(["all"], "ts", {"h": function("x", QUANTILES)})
        (results,) = finish(rollup(rows, frame), frame)["h"].to_pylist()
        assert list(results["quantiles"]) == QUANTILES

    def test_quantiles_as_text_on_the_command_line(self, forked):
        options = ["--time", "ts", "--measure", "h=hdr(x, ['0.5', '0.9', '0.99', '0.999'])", "--levels", "1s"]
        lines = [{"ts": "2024-05-01T10:00:00Z", "x": x} for x in range(1, 101)]
        (row,) = stream(forked, lines, *options)
        assert list(row["h"]["quantiles"]) == QUANTILES
        assert row["h"]["quantiles"]["0.5"] == 50

    @pytest.mark.parametrize("key", [each("fields"), each("map_keys(fields)"), "each(map_keys(fields))"])
    @pytest.mark.parametrize("kind", ["struct", "map"])
    def test_each_key_of_a_record(self, key, kind):
        rows = [{"usage_idle": 10, "usage_user": 1}, {"usage_idle": 20, "usage_user": 3}]
        records = pa.array(rows)
        if kind == "map":
            records = pa.array([list(row.items()) for row in rows], pa.map_(pa.string(), pa.int64()))
        assert self.of_records(records, key) == [("usage_idle", 15.0), ("usage_user", 2.0)]

    def test_each_key_of_a_list_of_records(self):
        rows = [[{"key": "idle", "value": 10}, {"key": "user", "value": 1}], [{"key": "idle", "value": 20}]]
        for key in ("each(fields.key)", each("fields")):
            assert self.of_records(pa.array(rows), key) == [("idle", 15.0), ("user", 1.0)]

    def test_nested_records_on_the_command_line(self, forked):
        lines = [{"ts": f"2024-05-01T10:00:0{i}Z", "fields": {"idle": 10 * i, "user": i}} for i in (1, 2)]
        options = ["--time", "ts", "--key", "class=each(map_keys(fields))", "--measure", "stats=hdr(fields[class])"]
        rows = stream(forked, lines, *options, "--levels", "10s")
        assert [(row["class"], row["stats"]["mean"]) for row in rows] == [("idle", 15.0), ("user", 1.5)]
