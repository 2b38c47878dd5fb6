"""Kept states: states that a release has stored in a file. Later releases must compute the same results from them.

If the fields of a state change their meaning without a change of the version, states in all stores are misread. Laws
that reduce new rows cannot detect this, but a file of old states can.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa

from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.state_checks import VERSION
from aggr.testing.cases import draw_accepted, input_types, require_refusal, require_same_bits
from aggr.testing.harness import LawBroken

_ROWS = 60
_GROUPS = 36  # 30 groups with one row each, 5 groups with six rows each, and one group without rows


def keep_states(function: Function, path: str | Path, input_type: pa.DataType | None = None) -> None:
    """Write rows of edge cases, their states and their results to a file, for ``check(f, kept_states=path)``.

    Parameters
    ----------
    function : Function
    path : str or Path
        The path of a new Arrow file. Keep the file with the tests. Write another file for each version of the
        function's state, and never replace an existing file.
    input_type : type, optional
        The type of the rows. The default is the first type that the function takes.

    Raises
    ------
    FileExistsError
        If the file exists.
    ValueError
        If the function does not take any of the types that are tried, or rejects all values.
    """
    types = [input_type] if input_type is not None else input_types(function)
    drawn = (draw_accepted(function, kind, _ROWS, seed=7) for kind in types)
    values = next((rows for rows in drawn if rows is not None), None)
    if values is None:
        raise ValueError(
            f"{function.name} accepts none of the types {', '.join(map(str, types))}, or rejects all tested values of "
            "them; pass another type as input_type"
        )
    ids = pa.array([row if row < 30 else 30 + row % 5 for row in range(_ROWS)])
    states = function.reduce(values, Groups.of(ids.to_pylist(), _GROUPS))
    columns_of_groups = {"states": states, "results": function.finish(states)}
    columns = {
        name: pa.concat_arrays([column, pa.nulls(_ROWS - _GROUPS, column.type)])
        for name, column in columns_of_groups.items()
    }
    table = pa.table({"rows": values, "groups": ids, **columns})
    with open(path, "xb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def check_kept_states(function: Function, path: str | Path) -> None:
    """Check that a function computes the same results from kept states as the release that stored them.

    If the states have the function's version, also check that the stored rows are reduced to the same states. States of
    a version that the function does not read must raise an error.

    Parameters
    ----------
    function : Function
        The function, with the parameters of the kept states.
    path : str or Path

    Raises
    ------
    LawBroken
        If a result differs, or a state of the same version differs.
    FileNotFoundError
        If there is no such file. `keep_states` writes it.
    """
    if not Path(path).exists():
        raise FileNotFoundError(
            f"{path} does not exist; aggr.testing.kept_states.keep_states(function, path) writes it"
        )
    with pa.ipc.open_file(str(path)) as file:
        table = file.read_all().combine_chunks()
    old_states, results = (table.column(name).combine_chunks()[:_GROUPS] for name in ("states", "results"))
    version = old_states.field(VERSION)[0].as_py()
    try:
        if version not in function.own_state.versions:
            require_refusal(
                partial(function.finish, old_states), f"kept states of version {version}, which is not in its versions,"
            )
            return
        require_same_bits(function.finish(old_states), results, f"the result of a kept state of version {version}")
        if version == function.own_state.version:
            groups = Groups.of(table.column("groups").to_pylist(), _GROUPS)
            states = function.reduce(table.column("rows").combine_chunks(), groups)
            require_same_bits(states, old_states, f"rows are reduced to another state under the same version {version}")
    except LawBroken as broken:
        raise LawBroken(
            f"{function.name} breaks the law 'kept_states': {broken}; increase the version of its state"
        ) from None
