"""The address of a database: parse a URI in the form of libpq, PostgreSQL's client library, and show it without
passwords.

libpq reads the user and the password up to the first ``@``. urllib, which parses the URI here, reads them up to the
last ``@`` before a ``/``. If the two positions differ, an error is raised, because otherwise a part of the password
could be shown as the host.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

_SECRETS = re.compile("password|secret|^scram_")  # the names of options with secret values, which libpq never prints


def parse_address(uri: str) -> SplitResult:
    """Return the parts of a URI. Raise ``ValueError`` if libpq would parse the URI differently. The message does not
    contain the URI, because a URI may contain a password.

    Except for the scheme, all parts of ``postgresql://user:password@host:port/database?option=value`` are optional.
    Several hosts are separated by commas.

    >>> parse_address("postgresql://bob@db:5433/x?sslmode=require").path
    '/x'
    """
    try:
        if not uri.startswith(("postgresql://", "postgres://")) or not uri.isprintable() or " " in uri:
            raise ValueError("the address is not a URI of PostgreSQL")
        parts = urlsplit(uri, allow_fragments=False)
        if uri.count("@") != parts.netloc.count("@") or uri.count("@") > 1 or parts.path[:1] not in ("", "/"):
            raise ValueError("the address contains an @ that must be written as %40")
        if "#" in parts.netloc + parts.path or re.search("%(?![0-9A-Fa-f]{2}|00)", uri):
            raise ValueError("the address contains a character that must be percent-encoded")
    except ValueError:
        raise ValueError(
            "cannot read the address of PostgreSQL; write postgresql://user@host/database, and encode the "
            "characters @ / ? # % and blanks in a name or password, such as %40 for @"
        ) from None
    return parts


def shown(uri: str) -> str:
    """Return the address of a database for messages, without user and password.

    >>> shown("postgresql://bob:pw@db:5433/x?sslmode=require")
    'db:5433/x'
    >>> shown("postgresql:///x?host=/tmp/pg")
    '/tmp/pg/x'
    """
    parts = parse_address(uri)
    options = dict(_options(parts))
    hosts = parts.netloc.rpartition("@")[2] or options.get("host", "")
    if len(parts.path) > 1:
        return f"{hosts}{parts.path}"
    return f"{hosts}/{options['dbname']}" if "dbname" in options else hosts


def without_password(uri: str) -> str:
    """Return a URI without its passwords.

    >>> without_password("postgresql://bob:pw@db:5433/x?sslmode=require&password=pw")
    'postgresql://bob@db:5433/x?sslmode=require'
    >>> without_password("postgresql://postgres:@/x?host=/tmp/pg")
    'postgresql://postgres@/x?host=/tmp/pg'
    """
    parts = parse_address(uri)
    user = f"{parts.username}@" if parts.username else ""
    place = parts.netloc.rpartition("@")[2]
    options = [(name, value) for name, value in _options(parts) if not _SECRETS.search(name)]
    address = f"{parts.scheme}://{user}{place}{parts.path}"
    query = urlencode(options, quote_via=quote, safe="/")
    return f"{address}?{query}" if query else address


def secrets(uri: str) -> set[str]:
    """Return the passwords in a URI, both encoded and decoded.

    >>> sorted(secrets("postgresql://bob:pw@db/x?sslpassword=q"))
    ['pw', 'q']
    """
    parts = parse_address(uri)
    texts = {parts.password or "", *(value for name, value in _options(parts) if _SECRETS.search(name))}
    return {text for secret in texts for text in (secret, unquote(secret), quote(secret)) if text}


def _options(parts: SplitResult) -> list[tuple[str, str]]:
    """Return the options of a URI as pairs of name and value. As in libpq, a plus sign does not stand for a space."""
    return parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
