"""``daskcluster convert``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from daskcluster.cli.options import (
    complete_path,
    output_options,
    overwrite_option,
    takes_source,
)
from daskcluster.cli.output import emit, watching


@click.command("convert")
@click.argument("source", shell_complete=complete_path)
@click.argument("output", shell_complete=complete_path)
@click.option(
    "--dtype",
    metavar="DTYPE",
    help="Dtype of the output, e.g. float32. Default: that of the source.",
)
@click.option(
    "--chunk-rows", type=click.IntRange(min=1), help="Rows per chunk. Default: about 8 MB."
)
@click.option(
    "--shard-rows", type=click.IntRange(min=1), help="Rows per shard; a shard holds many chunks."
)
@takes_source("missing", "grid", "scale")
@overwrite_option
@output_options
def command(
    source: str,
    output: str,
    as_json: bool,
    progress: bool | None,
    opening: dict[str, Any],
    **options: Any,
) -> None:
    """Convert the rows of SOURCE to a Zarr array with suitable chunks, in bounded memory.

    SOURCE is anything that fit takes: .npy, .npz, .csv, Parquet and HDF5 files, a folder or a pattern of
    them, Zarr. Sparse rows (scipy's .npz, CSR in Zarr) stay sparse.
    """
    from daskcluster.data.convert import convert
    from daskcluster.reports.tables import format_seconds

    with watching(progress) as callbacks:
        done = convert(source, output, callbacks=callbacks, **options, **opening)
    arrays = "" if done.array is None else f" (rows in {done.array}, weights in {done.weights})"
    rows = [
        ("output", f"{done.url}{arrays}"),
        ("rows", f"{done.n_rows:,} x {done.n_features:,} {done.dtype}"),
        *([("stored values", f"{done.n_entries:,}")] if done.n_entries is not None else []),
        ("chunks", f"{done.chunk_rows:,} rows"),
        ("time", format_seconds(done.seconds)),
    ]
    emit(asdict(done), rows, as_json=as_json)
