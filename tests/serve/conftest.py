"""One server for tests that only ask: a folder and a database."""

from __future__ import annotations

import pytest

from tests.serve.servers import make_store, serving


@pytest.fixture(scope="session")
def asked(tmp_path_factory, postgres_server):
    """A server of the folder ``web`` and of ``orders`` in PostgreSQL, and the stores."""
    folder = tmp_path_factory.mktemp("serve")
    stores = {"web": make_store(folder / "web"), "orders": make_store(postgres_server, "orders")}
    with serving(folder, folder / "web", f"orders={postgres_server}") as server:
        yield server, stores
