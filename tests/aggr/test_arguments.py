"""Checks of arguments: the accepted values, and the value that a message shows."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arguments import because, checked_list, checked_names, checked_whole, is_name, nearest, shown
from aggr.tables.by_key import check_rows
from tests.bad_inputs.world import FRAME, STATES
from tiltframe import FrameStore, TiltFrame
from tiltframe.cli.app import main
from windows import check_timezone


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        ("a\nb", r"'a\nb'"),
        ("x" * 100, "'" + "x" * 78 + "…"),
        ([object()], "a list"),
        (object(), "an object"),
        (TiltFrame, "the class TiltFrame"),
        pytest.param(10**5000, "an int", id="thousands of digits"),
        (pa.table({"a": [1]}), "a pyarrow.Table"),
        ("\udcff", r"'\udcff'"),
    ],
)
def test_what_was_given_is_shown_in_one_short_line(value, text):
    assert shown(value) == text


@pytest.mark.parametrize(
    "names", [["a", "b"], ("a", "b"), {"a": 1, "b": 2}.keys(), iter(["a", "b"]), np.array(["a", "b"])]
)
def test_lists_of_names_may_be_any_that_have_an_order(names):
    assert checked_names(names, "keys") == ("a", "b")


@pytest.mark.parametrize("number", [0, 5, np.int64(5), np.uint8(5), 2**63 - 1])
def test_whole_numbers_may_be_numpys(number):
    assert checked_whole(number, "n") == int(number)
    assert type(checked_whole(number, "n")) is int


def test_an_endless_list_is_refused_at_its_first_wrong_name():
    with pytest.raises(ValueError, match="got 0"):
        checked_names(iter(range(10**12)), "keys")
    assert checked_list(["a"], "keys", "names") == ["a"]


@pytest.mark.parametrize("name", ["a", "ä", "名", " a", "a.b", "Ａ"])
def test_names_are_any_text(name):
    assert is_name(name)


def test_hints_come_from_one_place():
    with pytest.raises(ValueError, match=re.escape(nearest("hosts", ["host"]))):
        check_rows(pa.schema([("host", pa.string())]), {"hosts": "hosts"}, [], pa.int64())
    with pytest.raises(KeyError, match=re.escape(nearest("stdv", aggr.names()))):
        aggr.get("stdv")
    with pytest.raises(ValueError, match=re.escape(nearest("Europe/Pari", ["Europe/Paris"]))):
        check_timezone("Europe/Pari")


def test_reasons_of_the_system_are_sentences(tmp_path):
    with pytest.raises(OSError, match="directory") as error:
        (tmp_path / "no" / "x").read_text()
    assert because(error.value) == f"{tmp_path / 'no' / 'x'}: no such file or directory"


def test_keeping_all_for_ever_again_is_no_mistake(tmp_path, capfd):
    store = FrameStore(tmp_path / "s", FRAME, retention={"10s": "30d"})
    store.append(STATES, "w", 0)
    main(["expire", str(tmp_path / "s"), "--retention", "10s=none"])
    assert "kept for ever" in capfd.readouterr().err
    assert dict(FrameStore(tmp_path / "s").retention) == {}


def test_numbers_of_commits_may_be_numpys(tmp_path):
    store = FrameStore(tmp_path / "s", FRAME)
    assert store.append(STATES, "w", np.int64(3), {"a file": 5})
    assert (store.last_commit("w"), store.recorded(["w", "a file"])) == (3, {"a file": 5})
    assert store.query("1h", limit=np.int64(1)).num_rows == 1


def test_levels_that_are_kept_for_longer_than_there_are_times(tmp_path):
    store = FrameStore(tmp_path / "s", FRAME, retention={"10s": "8000y"})
    store.append(STATES, "w", 0)
    assert store.expire()["10s"][1] == 0
    assert store.query("10s").num_rows == 3


@pytest.mark.slow
def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "tiltframe.cli", "functions"], stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, b"tiltframe: No space left on device\n")
