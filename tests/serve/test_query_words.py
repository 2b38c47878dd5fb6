"""A URL and Spark's options read the same texts as the same query."""

import pyarrow as pa
import pytest
from starlette.datastructures import QueryParams

import aggr
from spark_udaf.store.options import from_options
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.serve.asking import query_from_url
from tiltframe.store import query_from_words

pytestmark = pytest.mark.store


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    """Return the folder of an empty store."""
    folder = str(tmp_path_factory.mktemp("words") / "web")
    frame = TiltFrame(["1h"], "t", {"n": aggr.count()})
    store = FrameStore(folder, frame)
    store.append(rollup(pa.table({"t": [0]}), frame), "test", 1)
    return store.uri


@pytest.mark.parametrize(("name", "text"), [("flat", "TRUE"), ("latest", " true "), ("points", "7"), ("fill", "True")])
def test_a_url_and_spark_read_the_same_query(name, text, uri):
    words = {name: text} if name == "points" else {name: text, "per": "1h"}
    query = query_from_words(words)
    assert query_from_url(QueryParams({"store": "web", **words})) == ("web", query)
    planned, _ = from_options({"path": uri, **words})
    assert planned.query == query
