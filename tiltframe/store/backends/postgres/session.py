"""Sessions with PostgreSQL: each operation of a store is one transaction. Data is passed as Arrow tables.

Each thread reuses its last connection, because opening a new connection takes longer than most operations. A forked
process does not use or close the connections of its parent.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from aggr.extend.arguments import MissingExtra
from tiltframe.store.backends import Conflict, StoreError, UnreachableStore
from tiltframe.store.backends.postgres.address import secrets, shown

# The SQLSTATE codes of a serialization failure and of a deadlock. After either error, the transaction has written
# nothing and can be repeated.
_RETRYABLE_CODES = ("40001", "40P01")
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


@dataclass(frozen=True)
class Session:
    """An open transaction in PostgreSQL, with methods that execute SQL statements."""

    cursor: Any

    def run(self, sql: str, *values: Any) -> None:
        """Execute an SQL statement. The values are bound to the parameters ``$1``, ``$2``, … of the statement."""
        self.cursor.execute(sql, values or None)

    def ask(self, sql: str, *values: Any) -> pa.Table:
        """Execute a query, and return its result as an Arrow table."""
        self.run(sql, *values)
        return self.cursor.fetch_arrow_table()

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        """Execute a query that returns few rows, and return each row as a dict."""
        rows: list[dict[str, Any]] = self.ask(sql, *values).to_pylist()
        return rows

    def append_rows(self, name: str, table: pa.Table, temporary: bool = False) -> None:
        """Append the rows of an Arrow table to the database table ``name``. With ``temporary``, this is a temporary
        table.
        """
        self.cursor.adbc_ingest(name, table, mode="append", temporary=temporary)

    def lock(self, *key: Any) -> None:
        """Take a lock that the values ``key`` identify, and hold it until the transaction ends. Wait if another
        transaction holds the lock.
        """
        self.run("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", repr(("tiltframe", *key)))


@contextmanager
def session(uri: str, snapshot: bool = False) -> Iterator[Session]:
    """Open a transaction. It is committed at the end of the block, and rolled back if the block raises an error. With
    ``snapshot``, the transaction is read-only, and all its queries see the database at the time of the first query.

    Raise `StoreError` for errors of the database, and `Conflict` if the database asks for a retry.
    """
    try:
        import adbc_driver_postgresql.dbapi as postgresql
    except ImportError as error:
        raise StoreError(str(MissingExtra("a store in PostgreSQL", "postgres", error))) from None
    try:
        connection = _take_connection(uri, postgresql)
        with closing(connection), connection.connection.cursor() as cursor:
            if snapshot:
                cursor.execute(_SNAPSHOT)
            yield Session(cursor)
            connection.connection.commit()
            cursor.close()
            connection.give_back()
    except postgresql.Error as error:
        raise error_for_database(uri, str(error), getattr(error, "sqlstate", None)) from None


class _ReusableConnection:
    """An open connection to one address. The thread that opened the connection uses it again for later operations
    in the same process.
    """

    def __init__(self, uri: str, connection: Any) -> None:
        self.uri = uri
        self.connection = connection
        self.process = os.getpid()
        self.is_given_back = False

    def is_usable(self) -> bool:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            self.connection.rollback()
        except self.connection.Error:
            return False
        return True

    def give_back(self) -> None:
        """Keep the connection open for the thread's next operation."""
        self.is_given_back = True
        _thread_local.kept = self

    def close(self) -> None:
        if not self.is_given_back and self.process == os.getpid():
            with suppress(self.connection.Error):
                self.connection.close()

    def __del__(self) -> None:
        """Close the connection when its thread ends."""
        self.is_given_back = False
        self.close()


_thread_local = threading.local()
# The connections of the parent process. They are stored here so that they are never closed, because closing a
# connection in this process would also close it in the parent.
_connections_of_parent: list[_ReusableConnection] = []


def _take_connection(uri: str, postgresql: Any) -> _ReusableConnection:
    """Return the thread's last connection if this connection has the address ``uri`` and still works, otherwise a new
    connection.
    """
    last_connection: _ReusableConnection | None = _thread_local.__dict__.pop("kept", None)
    if last_connection is not None and last_connection.process != os.getpid():
        _connections_of_parent.append(last_connection)
        last_connection = None
    if last_connection is not None:
        last_connection.is_given_back = False
        if last_connection.uri == uri and last_connection.is_usable():
            return last_connection
        last_connection.close()
    return _ReusableConnection(uri, postgresql.connect(uri))


def error_for_database(uri: str, message: str, code: str | None) -> Exception:
    """Return the error to raise for an error of the database, with a message of one sentence. ``message`` is the
    message of the database, and ``code`` its SQLSTATE code.

    >>> str(error_for_database("postgresql://bob:pw@db/x", "IO: [libpq] Failed to connect: no route to host", None))
    'PostgreSQL at db/x cannot be reached: no route to host; check that the server runs, and the address and password'
    """
    match = re.search(r"(?:ERROR|FATAL|PANIC):\s+(.*)", message) or re.search(r"(?:failed|connect): (.*)", message)
    reason = (match.group(1) if match else message.splitlines()[0]).strip()
    for secret in sorted(secrets(uri), key=len, reverse=True):
        reason = reason.replace(secret, "***")
    if match and code:
        error = Conflict if code in _RETRYABLE_CODES else StoreError
        return error(f"PostgreSQL at {shown(uri)} refused the statement: {reason}")
    error_class = Conflict if code in _RETRYABLE_CODES else UnreachableStore
    return error_class(
        f"PostgreSQL at {shown(uri)} cannot be reached: {reason}; check that the server runs, and the address "
        "and password"
    )
