"""tiltframe evolve: measures and coarser levels added to a store, measures dropped."""

from __future__ import annotations

import click
import pyarrow as pa

from aggr.arguments import nearest, shown
from tiltframe.cli.interrupts import STEPS, from_now
from tiltframe.cli.options import Typed, read_types
from tiltframe.frame import TiltFrame
from tiltframe.store import FrameStore
from tiltframe.text.measures import measures_from
from windows import read_windows


@click.command(
    epilog="\b\nExamples:\n  "
    "tiltframe evolve web --measure 'errors=count(where=\"status >= 500\")' --levels 1d,1mo\n  "
    "tiltframe evolve web --measure 'ms=dds(ms)' --type ms=float64 --drop bytes"
)
@click.argument("uri", metavar="STORE")
@click.option("--name", metavar="NAME", help="Which store of a database.")
@click.option("--measure", "measures", multiple=True, metavar="NAME=CALL", help="To add, such as p=dds(x); may repeat.")
@click.option("--drop", "drops", multiple=True, metavar="NAME", help="A measure to drop; may repeat.")
@click.option("--levels", metavar="SIZES", help="To add above the coarsest one, from fine to coarse: 1d,1mo.")
@click.option(
    "--type", "types", multiple=True, metavar="COL=TYPE", help="What a column of the rows to come is; may repeat."
)
def evolve(
    uri: str,
    name: str | None,
    measures: tuple[str, ...],
    drops: tuple[str, ...],
    levels: str | None,
    types: tuple[str, ...],
) -> None:
    """Add measures and coarser levels to a store, and drop measures.

    What is stored stays. An added measure that the states do not answer is null in every window with rows from before,
    until these are rolled up anew: tiltframe rollup --replace-within. A new level has all that the coarsest one holds.
    """
    store = FrameStore(uri, name=name)
    frame, added = store.frame, measures_from(measures)
    if not added and not drops and levels is None:
        raise ValueError("there is nothing to add or to drop; give --measure, --levels or --drop")
    for dropped in drops:
        if dropped not in frame.measures:
            raise ValueError(f"the store has no measure {shown(dropped)}; {nearest(dropped, frame.measures)}")
        if dropped in added:
            raise ValueError(f"the measure {dropped!r} is to be added and to be dropped; give the new one another name")
    kept = {of: measure for of, measure in frame.measures.items() if of not in drops}
    more = () if levels is None else read_windows(levels, frame.timezone)
    wanted = TiltFrame([*frame.levels, *more], frame.time, {**kept, **added}, frame.keyed_by, frame.timezone)
    typed = Typed(read_types(types))
    typed.check(wanted.time, wanted.may_read())
    declared = typed.declared
    from_now(STEPS)
    store.evolve(wanted, row_schema=pa.schema(list(declared.items())) if declared else None)
    click.echo(f"{store.display_uri}: {store.frame!r}", err=True)
