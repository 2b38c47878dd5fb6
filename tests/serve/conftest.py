"""Fixtures of the tests that only query a server: one server with a store in a folder and a store in a database."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import sync_playwright

from tests.serve.servers import make_store, serving


@pytest.fixture(scope="session")
def server_and_stores(tmp_path_factory, postgres_server):
    """A server of the folder ``web`` and of ``orders`` in PostgreSQL, and the stores."""
    folder = tmp_path_factory.mktemp("serve")
    stores = {"web": make_store(folder / "web"), "orders": make_store(postgres_server, "orders")}
    with serving(folder, folder / "web", f"orders={postgres_server}") as server:
        yield server, stores


@pytest.fixture(scope="module")
def browser():
    """Chromium, as it is installed on this machine.

    Playwright runs an event loop in this thread until the fixture ends, so tests of other modules could not start one.
    """
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium is installed")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture
def tab(browser):
    """A tab of a window of its own, in which no script may fail."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as window:
        failed = []
        tab = window.new_page()
        tab.on("pageerror", lambda error: failed.append(error))
        yield tab
        assert failed == []
