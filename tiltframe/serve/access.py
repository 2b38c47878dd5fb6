"""Access control: decide which requests are allowed.

If the server has a token, every request must contain it. Otherwise only requests from this machine are allowed, and
their host name must be one of this machine, such as localhost.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from ipaddress import ip_address
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from aggr.extend.arguments import because, shown
from tiltframe.serve.errors import Refused

_SHORTEST = 16  # the minimum length of a token


def listen_address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address to listen at.

    >>> listen_address("127.0.0.1:9464"), listen_address("[::1]:0")
    (('127.0.0.1', 9464), ('::1', 0))
    """
    read = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})", text)
    if not read or int(read[3]) > 65535:
        raise ValueError(f"cannot listen at {shown(text)}; write HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464")
    return read[1] or read[2], int(read[3])


def is_loopback(host: str) -> bool:
    """Return whether a host name refers to this machine and is not reachable from others.

    >>> is_loopback("localhost"), is_loopback("127.1.2.3"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_origin(text: str) -> None:
    """Raise ``ValueError`` if a text is not the origin of a page."""
    if not re.fullmatch(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?", text):
        raise ValueError(f"{shown(text)} is not an origin; write it in the form of browsers: https://example.org")


def check_reach(host: str, token: bytes | None) -> None:
    """Raise ``ValueError`` if the server would be reachable from other machines without a token."""
    if token is None and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached from other machines; pass --token FILE, whose token requests must send, or listen "
            f"at 127.0.0.1"
        )


def read_token(file: Path) -> bytes:
    """Return the token in a file; raise ``ValueError`` if it is not a valid token."""
    try:
        token = file.read_bytes().strip()
    except OSError as error:
        raise ValueError(f"cannot read the token: {because(error)}") from None
    if len(token) < _SHORTEST or not re.fullmatch(rb"[!-~]+", token):
        raise ValueError(
            f"{file} must contain a token of at least {_SHORTEST} letters without blanks; create one with openssl rand "
            f"-hex 32"
        )
    return token


class Access:
    """ASGI middleware that rejects requests without the token, or, if there is no token, requests for another host."""

    def __init__(self, app: ASGIApp, token: bytes | None, open_to_all: frozenset[str]) -> None:
        """Create the middleware. Paths in ``open_to_all`` do not need a token, because they return
        no data of stores.
        """
        self._app, self._open = app, open_to_all
        self._digest = None if token is None else hashlib.sha256(token).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self._digest is None:
            self._check_host(headers.get("host"))
            self._check_direct(headers)
        elif scope["path"] not in self._open:
            self._check_token(headers.get("authorization", ""), self._digest)
        await self._app(scope, receive, send)

    @staticmethod
    def _check_token(authorization: str, digest: bytes) -> None:
        kind, _, token = authorization.partition(" ")
        digest_given = hashlib.sha256(token.strip().encode("latin-1", "replace")).digest()
        if not hmac.compare_digest(digest_given, digest) or kind.lower() != "bearer":
            raise Refused(
                401,
                "the request needs the server's token in a header: Authorization: Bearer TOKEN",
                {"www-authenticate": "Bearer"},
            )

    @staticmethod
    def _check_direct(headers: Headers) -> None:
        """Raise an error for a request that a proxy forwarded, because other machines can reach this server through the
        proxy.
        """
        forwarded = next((name for name in headers if name == "forwarded" or name.startswith("x-forwarded-")), None)
        if forwarded is not None:
            raise Refused(
                403,
                f"a proxy forwarded this request ({forwarded[:40]}), so other machines can reach this server; start "
                "it with --token FILE",
            )

    @staticmethod
    def _check_host(host: str | None) -> None:
        """Raise an error for host names of other machines, because a malicious page's host name may resolve to this
        machine.
        """
        if host is not None and not is_loopback(re.sub(r":[0-9]*$", "", host).strip("[]").lower()):
            raise Refused(
                421, f"a server without a token answers only requests to localhost; this request is for {shown(host)}"
            )
