"""Calls of `su.sql` are checked on the driver, so errors are raised before Spark starts a job."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def session(spark):
    rows = spark.sql(
        "SELECT id % 3 AS k, id AS i, id / 2 AS x, 'word' AS text, timestamp_seconds(id) AS ts FROM range(9)"
    )
    rows.createOrReplaceTempView("checked_rows")
    return spark


def jobs(spark) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


MISTAKES = {
    "SELECT k, aggr_dds(x, array(2.0D)) FROM checked_rows GROUP BY k": r"^aggr_dds: a quantile must be a number from 0",
    "SELECT aggr_dds(x, array(0.5), -0.1) FROM checked_rows": r"^aggr_dds: relative_accuracy",
    "SELECT aggr_dds(x, quantile => array(0.5)) FROM checked_rows": r"^aggr_dds: the call takes .*; got 'quantile'",
    "SELECT aggr_dds(text) FROM checked_rows": r"^aggr_dds: .*string",
    "SELECT aggr_sum(text) FROM checked_rows": "^aggr_sum: the column has the type string, but is read as double",
    "SELECT aggr_first(x) FROM checked_rows": "^aggr_first: the call needs",
    "SELECT aggr_var(i, 'one') FROM checked_rows": "^aggr_var: ddof must be a whole number",
    "SELECT max(s) FROM (SELECT aggr_sum(text) AS s FROM checked_rows)": "^aggr_sum: the column has the type string",
    "WITH t AS (SELECT concat(text, 'a') AS y FROM checked_rows) SELECT aggr_avg(y) FROM t": r"^aggr_avg: .*string",
    "SELECT aggr_dds(a.text) FROM checked_rows a JOIN checked_rows b ON a.i = b.i": r"^aggr_dds: .*string",
    "SELECT aggr_dds_state(text) FROM checked_rows": r"^aggr_dds_state: .*string",
    "SELECT aggr_dds_quantile(x, 0.5) FROM checked_rows": r"^aggr_dds_quantile: no registered function .* type double",
    "SELECT aggr_dds_quantile(*) FROM checked_rows": r"^aggr_dds_quantile: \* stands for all columns",
    "SELECT k, aggr_sum_merge(text) FROM checked_rows GROUP BY k": r"^aggr_sum_merge: .*states of type string; pass",
    "SELECT aggr_approx_count_distinct_union(s, i) FROM (SELECT i, named_struct('a', i) AS s FROM checked_rows)": (
        r"^aggr_approx_count_distinct_union: no registered function has states of type struct<.*>; pass states"
    ),
    "SELECT aggr_first(*) FROM (SELECT x, ts FROM checked_rows)": r"^aggr_first: \* stands for all columns",
    "SELECT aggr_sum(i, weight => text) FROM checked_rows": r"^aggr_sum: .*weight",
}


@pytest.mark.parametrize("query", MISTAKES)
def test_a_mistake_in_a_call_is_told_before_a_job_starts(query, session):
    import spark_udaf as su

    before = jobs(session)
    with pytest.raises((TypeError, ValueError), match=MISTAKES[query]):
        su.sql(session, query)
    assert jobs(session) == before


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT aggr_sum_bigint(i, weight => 2) FROM checked_rows", 72),
        ("SELECT aggr_sum(i) FILTER (WHERE text LIKE 'w%') FROM checked_rows", 36),
        ("SELECT aggr_max_string(lower(text)) FROM checked_rows WHERE i > 3", "word"),
        ("SELECT max(s) FROM (SELECT k, aggr_sum(x) AS s FROM checked_rows GROUP BY k HAVING aggr_sum(x) > 1)", 7.5),
        ("SELECT aggr_first(x, by => ts) FROM checked_rows", 0.0),
        ("SELECT aggr_sum(v) FROM checked_rows LATERAL VIEW explode(array(1, 2)) e AS v", 27),
        ("SELECT aggr_dds(x, array(CAST(0.5 AS double), 1)).count FROM checked_rows", 9),
    ],
)
def test_queries_without_mistakes_are_answered(query, expected, session):
    import spark_udaf as su

    before = jobs(session)
    answer = su.sql(session, query)
    assert jobs(session) == before
    assert answer.first()[0] == expected


def test_a_query_of_with_may_have_the_name_of_its_table(session, capfd):
    """The probe of a call reads the queries before its own: those behind it, and itself, have other columns."""
    import spark_udaf as su

    call = "aggr_dds(x, array(0.5D))"
    named_alike = f"WITH checked_rows AS (SELECT k, {call} AS x FROM checked_rows GROUP BY k)"
    query = f"{named_alike} SELECT count(x.count) FROM checked_rows"
    assert su.sql(session, query).first()[0] == 3
    mistake = "WITH a AS (SELECT text FROM checked_rows), b AS (SELECT aggr_dds(text) AS d FROM a) SELECT * FROM b"
    with pytest.raises(TypeError, match=r"^aggr_dds: .*string"):
        su.sql(session, mistake)
    assert "ERROR" not in capfd.readouterr().err
