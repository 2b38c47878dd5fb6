"""Access control: decide which requests are answered.

If the server has a token, a request must contain this token. If the server has no token, a request must name this
machine as its host, such as localhost, and must not come through a proxy.
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

_MIN_TOKEN_LENGTH = 16  # the minimum length of a token, in characters


def listen_address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address at which a server listens.

    >>> listen_address("127.0.0.1:9464"), listen_address("[::1]:0")
    (('127.0.0.1', 9464), ('::1', 0))
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})", text)
    if not match or int(match[3]) > 65535:
        raise ValueError(f"cannot listen at {shown(text)}; write HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464")
    return match[1] or match[2], int(match[3])


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is reachable only from this machine.

    >>> is_loopback("localhost"), is_loopback("127.1.2.3"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_origin(text: str) -> None:
    """Raise ``ValueError`` if a text is not the origin of a web page, such as ``https://example.org``."""
    if not re.fullmatch(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?", text):
        raise ValueError(f"{shown(text)} is not an origin; write scheme and host, such as https://example.org")


def require_token(host: str, token: bytes | None) -> None:
    """Raise ``ValueError`` if the server would be reachable from other machines without a token."""
    if token is None and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached from other machines; pass --token FILE, so that only requests with the token in "
            "this file are answered, or listen at 127.0.0.1"
        )


def read_token(file: Path) -> bytes:
    """Return the token in a file. Raise ``ValueError`` if the file cannot be read, or if the token is too short or
    contains blanks.
    """
    try:
        token = file.read_bytes().strip()
    except OSError as error:
        raise ValueError(f"cannot read the token: {because(error)}; name a readable file with --token") from None
    if len(token) < _MIN_TOKEN_LENGTH or not re.fullmatch(rb"[!-~]+", token):
        raise ValueError(
            f"{file} must contain a token of at least {_MIN_TOKEN_LENGTH} characters without blanks; create one "
            "with openssl rand -hex 32"
        )
    return token


class AccessControl:
    """ASGI middleware that rejects requests. If the server has a token, requests without this token are rejected. If
    the server has no token, requests for other hosts, and requests that a proxy forwarded, are rejected.
    """

    def __init__(self, app: ASGIApp, token: bytes | None, public_paths: frozenset[str]) -> None:
        """Create the middleware. Requests for the paths ``public_paths`` need no token, because their answers contain
        no data of stores.
        """
        self._app = app
        self._public_paths = public_paths
        self._digest = None if token is None else hashlib.sha256(token).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self._digest is None:
            self._check_host(headers.get("host"))
            self._check_direct(headers)
        elif scope["path"] not in self._public_paths:
            self._check_token(headers.get("authorization", ""), self._digest)
        await self._app(scope, receive, send)

    @staticmethod
    def _check_token(authorization: str, digest: bytes) -> None:
        """Raise `Refused`, with status 401, if the header ``authorization`` of a request does not contain the token.
        ``digest`` is the SHA-256 digest of the token. Digests are compared in constant time.
        """
        scheme, _, token = authorization.partition(" ")
        request_digest = hashlib.sha256(token.strip().encode("latin-1", "replace")).digest()
        if not hmac.compare_digest(request_digest, digest) or scheme.lower() != "bearer":
            raise Refused(
                401,
                "the token of the request is missing or wrong; send the server's token in a header, Authorization: "
                "Bearer TOKEN",
                {"www-authenticate": "Bearer"},
            )

    @staticmethod
    def _check_direct(headers: Headers) -> None:
        """Raise `Refused`, with status 403, if a proxy forwarded the request. The server has no token, and other
        machines could reach it through a proxy.
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
        """Raise `Refused`, with status 421, if a request names another host than this machine. This prevents DNS
        rebinding, in which the host name of a malicious web page resolves to this machine, so that the scripts of the
        page can read the stores.
        """
        if host is not None and not is_loopback(re.sub(r":[0-9]*$", "", host).strip("[]").lower()):
            raise Refused(
                421,
                f"a server without a token answers only requests to localhost; this request is for {shown(host)}; send "
                "it to localhost, or start the server with --token FILE",
            )
