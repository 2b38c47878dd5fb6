"""tiltframe serve: query and write stores over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from aggr.extend.arguments import MissingExtra
from tiltframe.extend import memory_size


def _refuse(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
    """Raise ``UsageError`` for --port and --host, which other servers have in place of --listen."""
    if value is not None:
        raise click.UsageError("there is no option --port or --host; use --listen HOST:PORT, such as 127.0.0.1:9464")


@click.command(
    epilog="\b\nExamples:\n  tiltframe serve web\n  "
    "tiltframe serve web orders=s3://bucket/orders --listen 0.0.0.0:9464 --token token.txt"
)
@click.argument("stores", metavar="STORE...", nargs=-1, required=True)
@click.option(
    "--listen",
    default="127.0.0.1:9464",
    show_default=True,
    metavar="HOST:PORT",
    help="The address to listen on. Addresses other than loopback require --token.",
)
@click.option("--port", "--host", "other_address", hidden=True, expose_value=False, callback=_refuse)
@click.option(
    "--token",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file with the bearer token that requests must send.",
)
@click.option(
    "--cors",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="An origin whose pages may send requests from scripts; may repeat.",
)
@click.option(
    "--writable/--read-only",
    help="Whether clients can send events. Events are acknowledged after they are on the disk.  [default: read-only]",
)
@click.option("--maintain", is_flag=True, help="Compact, expire and clean the stores while serving.")
@click.option(
    "--with-open",
    multiple=True,
    metavar="[NAME=]STATE",
    help="Include the open windows of a stream. STATE is the file in the stream's option --state; may repeat.",
)
@click.option(
    "--buckets",
    multiple=True,
    metavar="[MEASURE=]N,N,…",
    help="Upper bounds of the buckets of sketches in PromQL, for one measure or for all other measures; may repeat.  "
    "[default: 0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10]",
)
@click.option(
    "--memory",
    default="128MiB",
    show_default=True,
    metavar="SIZE",
    help="The maximum memory of the two caches together: for answers, and for open files of the stores.",
)
@click.option(
    "--max-rows",
    default=10_000_000,
    show_default=True,
    help="The approximate maximum number of rows of states that one query reads.",
)
@click.option("--max-windows", default=100_000, show_default=True, help="The maximum number of windows of one query.")
@click.option("--max-seconds", default=30, show_default=True, help="The maximum duration of one query.")
@click.option(
    "--max-queries",
    default=4,
    show_default=True,
    help="The maximum number of queries that run at once. Further queries wait.",
)
def serve(
    stores: tuple[str, ...],
    listen: str,
    token: Path | None,
    origins: tuple[str, ...],
    writable: bool,
    maintain: bool,
    with_open: tuple[str, ...],
    buckets: tuple[str, ...],
    memory: str,
    max_rows: int,
    max_windows: int,
    max_seconds: int,
    max_queries: int,
) -> None:
    """Answer queries over HTTP, and serve a web page that shows the stores. A STORE is a folder, an address, or
    NAME=ADDRESS.
    """
    try:
        from tiltframe.serve.access import check_origin, listen_address, read_token, require_token
        from tiltframe.serve.app import run
        from tiltframe.serve.cost import Limits
        from tiltframe.serve.promql.classic_buckets import BucketBounds
        from tiltframe.serve.stores import Stores
    except ImportError as error:
        raise click.ClickException(str(MissingExtra("the command serve", "serve", error))) from None
    try:
        cache_bytes = memory_size(memory)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--memory'") from None
    if writable and with_open:
        raise ValueError("a store with open windows cannot accept events; leave out --writable or --with-open")
    if maintain and with_open:
        raise ValueError("a store with open windows cannot be maintained; leave out --maintain or --with-open")
    address = listen_address(listen)
    bounds = BucketBounds.read(buckets)
    limits = Limits(max_rows, max_windows, max_seconds, queries=max_queries, memory=cache_bytes)
    secret = None if token is None else read_token(token)
    require_token(address[0], secret)
    for origin in origins:
        check_origin(origin)
    served = Stores(stores, durable=writable, state_files=with_open)
    run(
        served,
        address,
        limits=limits,
        token=secret,
        origins=origins,
        is_writable=writable,
        should_maintain=maintain,
        buckets=bounds,
    )
