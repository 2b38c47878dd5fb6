"""Addresses of stores and their backends. An address is a folder, an object store, a database, or a URI with a scheme
that an entry point registers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import import_module
from urllib.parse import urlsplit

from aggr.arguments import checked_mapping, is_name, shown
from aggr.entry_points import NO_OBJECT, load_name
from aggr.extras import MissingExtra
from tiltframe.store.backends.protocol import Backend
from tiltframe.store.log.errors import StoreError

# the group of entry points of backends; the name of an entry point is the scheme of a URI, and its object is a class
# with the method `at`
GROUP = "tiltframe.backends"

# the module and the class of Delta's backend, which is imported only if it is needed: the import takes 0.5 s
_DELTA = ("tiltframe.store.backends.delta.backend", "DeltaBackend")
_DELTA_SCHEMES = dict.fromkeys(
    ("file", "s3", "s3a", "gs", "gcs", "az", "adl", "azure", "abfs", "abfss", "http", "https"), _DELTA
)


_LOCAL_SCHEMES = ("file",)  # schemes for local folders


def checked_uri(uri: str | os.PathLike[str]) -> str:
    """Check the address of a store, and return it as text. Raise ``ValueError`` if the address is invalid."""
    text = os.fspath(uri) if isinstance(uri, str | os.PathLike) else uri
    if not isinstance(text, str) or not is_name(text):
        raise ValueError(
            f"the location of a store must be a folder, the URI of an object store, or postgresql://…; got {shown(uri)}"
        )
    scheme = scheme_of(text)
    if scheme and scheme not in _DELTA_SCHEMES and _registered_backend(scheme):
        return text
    if _lacks_slashes_or_colon(text):
        raise ValueError(
            f"{shown(text)} is not the URI of a store; write // after the colon, as in postgresql://host/database"
        )
    if scheme in ("memory", "hdfs"):
        raise ValueError(
            f"{shown(text)} has a scheme that is not supported; use a folder, s3://, gs://, az:// or abfss://"
        )
    if re.match(r"(?!file:)[a-z][a-z0-9+]*://(/|$)", text):
        raise ValueError(f"{shown(text)} does not name a bucket; write it after //, as in s3://bucket/path")
    if text.startswith("file:"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
            raise ValueError(
                f"{shown(text)} names another machine, or contains ? or #; write file:///path, or the path of a local "
                "folder"
            )
    if "://" not in text and re.search("%[0-9A-Fa-f]{2}", os.path.abspath(text)):
        raise ValueError(
            f"{shown(text)} contains % and two digits, which Delta Lake decodes to another "
            "character; choose another folder"
        )
    if scheme in ("", *_LOCAL_SCHEMES) and (match := re.search(r"[\x00-\x1f\x7f\\]", os.path.abspath(text))):
        raise ValueError(
            f"{shown(text)} contains the character {match[0]!r}, which Delta Lake does not allow in the name of a "
            f"folder; choose another folder"
        )
    return text


def _lacks_slashes_or_colon(text: str) -> bool:
    """Return whether a text begins with a scheme, but not with ``scheme://``."""
    if re.match(rf"({'|'.join([*_DELTA_SCHEMES, 'hdfs'])}):(?!//)", text):
        return True
    scheme = re.match(r"([a-z][a-z0-9+.-]*)(:(?!//)|//)", text)
    return scheme is not None and _registered_backend(scheme[1]) is not None


def check_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """Check the options of an object store, and return them as a dict. Raise ``ValueError`` if they are invalid."""
    if options is None:
        return {}
    for name, value in checked_mapping(options, "storage_options", "name -> value, both text").items():
        if not is_name(name) or not isinstance(value, str):
            raise ValueError(f"storage_options must be a dict of text to text; got {shown(name)}: {shown(value)}")
    return dict(options)


def backend_at(uri: str, name: str, options: Mapping[str, str], durable: bool = False) -> Backend:
    """Return the backend of a URI without reading from it; raise `StoreError` if a required package
    is not installed.
    """
    scheme = scheme_of(uri)
    if scheme and scheme not in _DELTA_SCHEMES and (registered_class := _registered_backend(scheme)):
        return registered_class.at(uri, name, options, durable)
    module, class_name = _DELTA_SCHEMES.get(scheme, _DELTA)
    try:
        backend_class: type[Backend] = getattr(import_module(module), class_name)
    except ImportError as error:
        raise StoreError(str(MissingExtra("a store in a folder or object store", "delta", error))) from None
    return backend_class.at(uri, name, options, durable)


def absolute_uri(uri: str) -> str:
    """Return the absolute path of a folder, because other processes may have another working directory. A URI is
    returned unchanged.
    """
    return uri if scheme_of(uri) else os.path.abspath(uri)


def scheme_of(uri: str) -> str:
    """Return the scheme of a URI in lower case, or an empty text for a path.

    >>> scheme_of("s3://bucket/path"), scheme_of("/data/web")
    ('s3', '')
    """
    scheme, colon, _ = uri.partition("://")
    return scheme.lower() if colon and re.fullmatch("[A-Za-z][A-Za-z0-9+.-]*", scheme) else ""


def _registered_backend(scheme: str) -> type[Backend] | None:
    """Return the class that an entry point registers for a scheme, or None."""
    registered_class = load_name(GROUP, scheme)
    return None if registered_class is NO_OBJECT else registered_class
