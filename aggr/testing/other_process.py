"""Another process: states that another interpreter with another seed of hashes reduces from the same rows.

States of a store are written by many processes. Python salts the hashes of text again in each of them, so a function
that uses ``hash`` has other states in every process.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from aggr.function import Function
from aggr.groups.groups import Groups

_SEED = "20240501"  # of hashes; any number that is not this process's own
_PROGRAM = """
import pickle, sys
from aggr.arrow.bit_equality import digest
from aggr.groups.groups import Groups
function, values, ids, n = pickle.load(sys.stdin.buffer)
print(digest(function.reduce(values, Groups.of(ids, n))))
"""


def digest_elsewhere(function: Function, values: pa.Array, groups: Groups) -> str | None:
    """Return the digest of the states that another process reduces.

    Parameters
    ----------
    function : Function
    values : array, shape (rows,)
    groups : Groups

    Returns
    -------
    str or None
        None for a function that another process cannot import, such as one of a notebook's cell.

    Raises
    ------
    RuntimeError
        If the other process fails.
    """
    if not _is_importable(function):
        return None
    environment = {**os.environ, "PYTHONHASHSEED": _SEED, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    sent = pickle.dumps((function, values, groups.ids.tolist(), groups.n))
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM], input=sent, capture_output=True, env=environment, check=False
    )
    if ended.returncode:
        raise RuntimeError(f"another process cannot reduce with {function!r}: {ended.stderr.decode()[-500:]}")
    return ended.stdout.decode().strip()


def _is_importable(function: Function) -> bool:
    module, name = type(function).__module__, type(function).__qualname__
    has_file = getattr(sys.modules.get(module), "__file__", None)
    return module != "__main__" and "<locals>" not in name and has_file is not None and Path(has_file).exists()
