"""Engines with Spark's API: which engine runs a session, and the features that it rejects by name. No engine is
started.
"""

from __future__ import annotations

import pytest

from spark_udaf.plan import engine
from spark_udaf.plan.engine import SPARK, Engine, Feature, check_supports, engine_of, engines


class Session:
    """A session whose settings are known."""

    def __init__(self, **settings):
        self.conf = {name.replace("_", "."): value for name, value in settings.items()}


OTHER = Engine("Other", runs=lambda spark: "other" in spark.conf, lacks={Feature.STREAMS: "has no streams"})


def test_spark_runs_what_no_other_engine_does(monkeypatch):
    engines()
    monkeypatch.setattr(engine, "_ENGINES", [OTHER])
    assert engine_of(Session(spark_app_id="app")) is SPARK
    assert engine_of(Session(other="yes")) is OTHER
    assert all(SPARK.has(feature) for feature in Feature)
    assert [feature for feature in Feature if not OTHER.has(feature)] == [Feature.STREAMS]


def test_what_an_engine_lacks_is_refused_with_the_remedy(monkeypatch):
    engines()
    monkeypatch.setattr(engine, "_ENGINES", [OTHER])
    check_supports(Session(), Feature.STREAMS, "a stream", "use Spark")
    check_supports(Session(other="yes"), Feature.ORDER, "a window", "use Spark")
    with pytest.raises(ValueError, match=r"^a stream cannot run on Other, which has no streams; use Spark$"):
        check_supports(Session(other="yes"), Feature.STREAMS, "a stream", "use Spark")


def test_sail_is_an_engine_of_an_entry_point():
    from spark_udaf.sail import SAIL

    assert engines() == (SAIL, SPARK)
    assert engine_of(Session(spark_app_id="app")) is SPARK
    assert engine_of(Session()) is SAIL
    with pytest.raises(ValueError, match="cannot run on Sail, which does not support stateful streams; use Spark"):
        check_supports(Session(), Feature.STREAMS, "a stream of files", "use Spark, or tiltframe stream")
