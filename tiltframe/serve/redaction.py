"""Redaction: neither the server's token nor secrets that clients send in addresses are written to the log."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

# The length, in characters, of the parts of the token that are replaced. Not only the complete token is replaced,
# because a message that is cut to a maximum length may end in the middle of the token.
_PART_LENGTH = 8
_REPLACEMENT = "[redacted]"
_SECRET_PARAMETER = re.compile(
    r"((?:token|secret|passw(?:or)?d|credentials?|authorization|api[_-]?key|signature)[\w.-]{0,64}=)[^&\s\"',;}]+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(\b(?:bearer|basic) +)(?!TOKEN\b)[^\s\"',;]+", re.IGNORECASE)
_PASSWORD = re.compile(r"(://[^/@\s:]*:)[^/@\s]+(?=@)")


class Redaction:
    """A callable that replaces secrets in texts: the values of parameters with names such as ``token`` or ``api_key``,
    credentials in headers and addresses, and the server's token. Parts of the token and its percent-encoded forms are
    replaced too.

    Parameters
    ----------
    token : bytes, optional
        The server's token, of at least 8 ASCII characters.

    >>> Redaction(b"0123456789abcdef")("/v1/stores?x=0123456789abcdef&token=wrong")
    '/v1/stores?x=[redacted]&token=[redacted]'
    """

    def __init__(self, token: bytes | None = None) -> None:
        """Create the callable. Pass None for a server without a token."""
        text = "" if token is None else token.decode("ascii")
        self._parts = {text[i : i + _PART_LENGTH] for i in range(len(text) - _PART_LENGTH + 1)}

    def __call__(self, text: str) -> str:
        """Return a text in which secrets are replaced by ``[redacted]``."""
        for pattern in (_SECRET_PARAMETER, _BEARER, _PASSWORD):
            text = pattern.sub(rf"\1{_REPLACEMENT}", text)
        decoded = unquote_plus(text) if self._parts and ("%" in text or "+" in text) else text
        if self._part_positions(decoded) and not self._part_positions(text):
            text = decoded  # The token is recognized only after percent-decoding, so the decoded text is used.
        return self._without_token(text)

    def _part_positions(self, text: str) -> list[int]:
        """Return the positions at which a part of the token begins."""
        if not self._parts:
            return []
        return [i for i in range(len(text) - _PART_LENGTH + 1) if text[i : i + _PART_LENGTH] in self._parts]

    def _without_token(self, text: str) -> str:
        pieces: list[str] = []
        end = 0
        for position in self._part_positions(text):
            if position >= end:
                pieces += [text[end:position], _REPLACEMENT]
            end = position + _PART_LENGTH
        return "".join([*pieces, text[end:]])
