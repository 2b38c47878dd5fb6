"""Talking to PostgreSQL: one transaction for each operation, Arrow in and Arrow out.

Opening a connection takes longer than most operations, so each thread keeps its last one. What a process inherits by
forking is its parent's, and neither used nor closed.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa

from tiltframe.store.core.backend import Conflict, StoreError

_RETRY = ("40001", "40P01")  # serialization failure, deadlock: nothing was written
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


@dataclass(frozen=True)
class Session:
    """A transaction that is going on."""

    cursor: Any

    def run(self, sql: str, *values: Any) -> None:
        """Execute a statement; values are bound to ``$1``, ``$2``, never written into it."""
        self.cursor.execute(sql, values or None)

    def ask(self, sql: str, *values: Any) -> pa.Table:
        """Execute a query."""
        self.run(sql, *values)
        return self.cursor.fetch_arrow_table()

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        """Execute a query of a few rows."""
        rows: list[dict[str, Any]] = self.ask(sql, *values).to_pylist()
        return rows

    def fill(self, temporary: str, table: pa.Table) -> None:
        """Append a table to a temporary one."""
        self.cursor.adbc_ingest(temporary, table, mode="append", temporary=True)

    def lock(self, *about: Any, shared: bool = False) -> None:
        """Wait until nobody else holds the lock about something, and hold it until the transaction ends."""
        function = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        self.run(f"SELECT {function}(hashtextextended($1, 0))", repr(("tiltframe", *about)))


@contextmanager
def session(uri: str, snapshot: bool = False) -> Iterator[Session]:
    """Open a transaction, committed at the end and undone by an error; a snapshot reads as of one moment.

    Raises `StoreError` for all that the database reports, and `Conflict` where it says to try again.
    """
    try:
        import adbc_driver_postgresql.dbapi as postgresql
    except ImportError:
        raise StoreError("PostgreSQL needs adbc-driver-postgresql: pip install 'tiltframe[postgres]'") from None
    try:
        kept = _taken(uri, postgresql)
        with closing(kept), kept.connection.cursor() as cursor:
            if snapshot:
                cursor.execute(_SNAPSHOT)
            yield Session(cursor)
            kept.connection.commit()
            cursor.close()
            kept.give_back()
    except postgresql.Error as error:
        raise translated(uri, str(error), getattr(error, "sqlstate", None)) from None


class _Kept:
    """A connection that a thread keeps, for one address and one process."""

    def __init__(self, uri: str, connection: Any) -> None:
        """Note whose it is."""
        self.uri, self.connection, self.process, self.given_back = uri, connection, os.getpid(), False

    def works(self) -> bool:
        """Say whether the server still answers."""
        try:
            with self.connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            self.connection.rollback()
        except self.connection.Error:
            return False
        return True

    def give_back(self) -> None:
        """Keep it for the thread's next operation."""
        self.given_back, _threads.kept = True, self

    def close(self) -> None:
        """Close it, unless it is kept."""
        if not self.given_back and self.process == os.getpid():
            with suppress(self.connection.Error):
                self.connection.close()

    def __del__(self) -> None:
        """Close what a thread has kept until its end."""
        self.given_back = False
        self.close()


_threads = threading.local()
_inherited: list[_Kept] = []  # of the process that this one was forked from: to close one would end it there


def _taken(uri: str, postgresql: Any) -> _Kept:
    """Take the connection that the thread keeps, if it is to this address, or open one."""
    kept: _Kept | None = _threads.__dict__.pop("kept", None)
    if kept is not None and kept.process != os.getpid():
        _inherited.append(kept)
        kept = None
    if kept is not None:
        kept.given_back = False
        if kept.uri == uri and kept.works():
            return kept
        kept.close()
    return _Kept(uri, postgresql.connect(uri))


def translated(uri: str, message: str, code: str | None) -> Exception:
    """Say in one sentence what the database reports.

    >>> str(translated("postgresql://bob:pw@db/x", "IO: [libpq] Failed to connect: no route to host", None))
    'PostgreSQL at db/x cannot be reached: no route to host'
    """
    found = re.search(r"(?:ERROR|FATAL|PANIC):\s+(.*)", message) or re.search(r"(?:failed|connect): (.*)", message)
    reason = (found.group(1) if found else message.splitlines()[0]).strip()
    for secret in sorted(_secrets(uri), key=len, reverse=True):
        reason = reason.replace(secret, "***")
    error = Conflict if code in _RETRY else StoreError
    what = "did not do what was asked" if found and code else "cannot be reached"
    return error(f"PostgreSQL at {shown(uri)} {what}: {reason}")


def shown(uri: str) -> str:
    """Show where a database is, and nothing of who asks.

    >>> shown("postgresql://bob:pw@db:5433/x?sslmode=require")
    'db:5433/x'
    """
    if "://" not in uri:
        named = dict(re.findall(r"(host|dbname)\s*=\s*'?([^\s']+)", uri))
        return "/".join(named.values()) or "its address"
    place, _, query = _user_and_place(uri.split("://", 1)[1])[1].partition("?")
    hosts = parse_qs(query).get("host", [""])
    return place if not place.startswith("/") else f"{hosts[0]}{place}"


def without_password(uri: str) -> str:
    """Return a URI without its passwords, as a command takes it that finds them elsewhere.

    >>> without_password("postgresql://bob:pw@db:5433/x?sslmode=require&password=pw")
    'postgresql://bob@db:5433/x?sslmode=require'
    >>> without_password("postgresql://postgres:@/x?host=/tmp/pg")
    'postgresql://postgres@/x?host=/tmp/pg'
    """
    if "://" not in uri:
        return f"postgresql://{shown(uri)}"
    scheme, rest = uri.split("://", 1)
    user, where = _user_and_place(rest)
    where, _, query = where.partition("?")
    options = [each for each in query.split("&") if each and "password" not in each.partition("=")[0].lower()]
    return f"{scheme}://{user}{'@' * bool(user)}{where}{'?' * bool(options)}{'&'.join(options)}"


def _user_and_place(rest: str) -> tuple[str, str]:
    """Split what follows the scheme into the user and the rest, without the password, which may be any text."""
    found = re.fullmatch(r"([^:/?@]*)(?::.*)?@([^@]*)", rest, re.DOTALL)
    return (found.group(1), found.group(2)) if found else ("", rest)


def quoted(name: str) -> str:
    """Quote an identifier.

    >>> print(quoted('a"b'))
    "a""b"
    """
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """Quote identifiers, with commas."""
    return ", ".join(quoted(name) for name in names)


def numbers(values: Sequence[int]) -> str:
    """Write whole numbers as an array."""
    return f"'{{{','.join(str(int(v)) for v in values)}}}'::bigint[]"


def moment(micros: str) -> str:
    """Write microseconds as a moment: hours and the rest, since as a float of microseconds it would be rounded."""
    hour = 3_600_000_000
    return (
        f"(timestamptz 'epoch' + ({micros}) / {hour} * interval '1 hour' "
        f"+ ({micros}) % {hour} * interval '1 microsecond')"
    )


def _secrets(uri: str) -> set[str]:
    """Find the passwords that a connection string holds, in every way to write one."""
    quoted_or_not = re.findall(r"password\s*=\s*(?:'((?:[^'\\]|\\.)*)'|([^\s&]+))", uri)
    found = [secret for pair in quoted_or_not for secret in pair] + re.findall(r"//[^/@:]*:(.*)@", uri)
    with suppress(ValueError):
        found.append(urlsplit(uri).password or "")
    return {text for secret in found for text in (secret, unquote(secret)) if text}
