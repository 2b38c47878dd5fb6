"""Another process: a second interpreter, with another seed of hashes and another time zone, that reduces the same rows.

The states in a store are written by many processes. Python hashes text with a different seed in each process, so a
function that uses ``hash`` has different states in each process.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

import pyarrow as pa

from aggr.function import Function
from aggr.groups.groups import Groups

# the seed of hashes in the other process; this process usually has a random seed
_SEED = "20240501"
# The other process uses the first zone in this list that is not the zone of this process.
_ZONES = "Pacific/Apia", "America/Caracas"
_PROGRAM = """
import pickle, sys
from aggr.arrow.bit_equality import digest
from aggr.groups.groups import Groups
function, columns, ids, n = pickle.load(sys.stdin.buffer)
for values in columns:
    states = function.reduce(values, Groups.of(ids, n))
    print(digest(states), digest(function.finish(states)))
"""


def digests_of_other_process(function: Function, columns: Sequence[pa.Array], groups: Groups) -> list[list[str]]:
    """Compute states and results in another process, and return their digests.

    Parameters
    ----------
    function : Function
        A function for which `is_importable` is true.
    columns : sequence of arrays, each of shape (rows,)
    groups : Groups

    Returns
    -------
    list of [digest of states, digest of results], one for each column

    Raises
    ------
    RuntimeError
        If the other process fails.
    """
    zone = next(zone for zone in _ZONES if zone != os.environ.get("TZ"))
    environment = {
        **os.environ,
        "TZ": zone,
        "PYTHONHASHSEED": _SEED,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    program_input = pickle.dumps((function, list(columns), groups.ids.tolist(), groups.n))
    completed = subprocess.run(
        [sys.executable, "-c", _PROGRAM], input=program_input, capture_output=True, env=environment, check=False
    )
    if completed.returncode:
        raise RuntimeError(f"another process cannot reduce with {function!r}: {completed.stderr.decode()[-500:]}")
    return [line.split() for line in completed.stdout.decode().splitlines()]


def is_importable(function: Function) -> bool:
    """Return whether another process can import the class of a function.

    Another process cannot import a class that is defined in a cell of a notebook, in ``__main__`` or inside a function.
    """
    kind = type(function)
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    try:
        is_in_module = attrgetter(kind.__qualname__)(module) is kind
    except AttributeError:  # raised, for example, if the class is defined inside a function
        is_in_module = False
    return is_in_module and kind.__module__ != "__main__" and file is not None and Path(file).exists()
