"""``daskcluster shuffle``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from daskcluster.cli.options import (
    complete_path,
    declared_option,
    output_options,
    overwrite_option,
    takes_source,
)
from daskcluster.cli.output import emit, watching
from daskcluster.cli.values import Size
from daskcluster.parameters import shared

if TYPE_CHECKING:
    from daskcluster.data.shuffle import Shuffled
    from daskcluster.data.shuffle_passes import ShufflePlan


@click.command("shuffle")
@click.argument("source", shell_complete=complete_path)
@click.argument("output", shell_complete=complete_path)
@declared_option(
    shared.RANDOM_STATE,
    help="Seed; the same seed and number of rows give the same order. Default: a fresh one.",
)
@click.option(
    "--with-index",
    metavar="URL",
    help="Also write the permutation: the source row of every output row, as a 1-D int64 Zarr array.",
)
@click.option(
    "--chunk-rows", type=click.IntRange(min=1), help="Rows per chunk. Default: about 8 MB."
)
@click.option(
    "--shard-rows", type=click.IntRange(min=1), help="Rows per shard; a shard holds many chunks."
)
@click.option(
    "--memory-limit",
    type=Size(),
    help="Memory limit, e.g. 4GB; larger data use scratch files. Default: a quarter of the memory.",
)
@click.option(
    "--scratch",
    metavar="DIR",
    help="Local folder for rows that do not fit in memory. Default: next to a local output, else the "
    "system's folder for temporary files.",
)
@takes_source("columns", "missing", "grid", "scale")
@overwrite_option
@click.option("--dry-run", is_flag=True, help="Show bytes read, written and held, then exit.")
@output_options
def command(
    source: str,
    output: str,
    random_state: int | None,
    dry_run: bool,
    as_json: bool,
    progress: bool | None,
    opening: dict[str, Any],
    **options: Any,
) -> None:
    """Write the rows of SOURCE to OUTPUT in random order, as Zarr, in bounded memory.

    Every order is equally likely. Mini-batch methods read rows that are sorted on disk best after this.
    Weighted rows become a group with the arrays X and weights; sparse rows stay sparse, as a CSR group.
    """
    from daskcluster.data.shuffle import prepare, shuffle

    if dry_run:
        plan = prepare(source, output, **options, **opening)[1]
        emit({"dry_run": True, **plan.facts()}, _rows_of_plan(plan), as_json=as_json)
        return
    from dataclasses import asdict

    with watching(progress) as callbacks:
        given = {**options, **opening, "random_state": random_state}
        done = shuffle(source, output, callbacks=callbacks, **given)
    emit(asdict(done), _rows_of_record(done), as_json=as_json)


def _rows_of_plan(plan: ShufflePlan) -> list[tuple[str, str]]:
    from daskcluster.host import format_bytes

    rows = [
        ("rows", f"{plan.n_rows:,} x {plan.n_features:,} {plan.dtype}"),
        ("passes", f"{plan.passes}, {_how(plan)}"),
        ("read", format_bytes(plan.bytes_read)),
        ("written", f"{format_bytes(plan.bytes_written)} before compression"),
    ]
    if plan.scratch is not None:
        free = format_bytes(plan.scratch_free or 0)
        needed = format_bytes(plan.bytes_scratch)
        rows.append(("scratch", f"{needed}, {free} free in {plan.scratch}"))
    memory = f"{format_bytes(plan.memory)} of {format_bytes(plan.memory_limit)}"
    return [*rows, ("memory", memory)]


def _rows_of_record(done: Shuffled) -> list[tuple[str, str]]:
    from daskcluster.reports.tables import format_seconds

    arrays = "" if done.array is None else f" (rows in {done.array}, weights in {done.weights})"
    rows = [
        ("output", f"{done.url}{arrays}"),
        ("index", done.index or ""),
        ("rows", f"{done.n_rows:,} x {done.n_features:,} {done.dtype}"),
        ("chunks", f"{done.chunk_rows:,} rows"),
        ("seed", str(done.random_state)),
        ("passes", f"{done.passes}, {_how(done)}"),
        ("time", format_seconds(done.seconds)),
    ]
    return [(name, value) for name, value in rows if value]


def _how(work: Shuffled | ShufflePlan) -> str:
    return f"through {work.n_buckets:,} buckets on disk" if work.n_buckets else "in memory"
