"""``daskcluster partition``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from daskcluster.cli.detach import Task, takes_job
from daskcluster.cli.options import (
    OUTPUT,
    SectionedCommand,
    complete_path,
    declared_option,
    option,
    overwrite_option,
    takes_source,
)
from daskcluster.methods.partition import parameters
from daskcluster.parameters import shared


@click.command("partition", cls=SectionedCommand)
@click.argument("source", shell_complete=complete_path)
@takes_source("weights", "scale")
@declared_option(parameters.TARGET_SIZE)
@declared_option(parameters.MAX_SIZE)
@declared_option(parameters.SPILL)
@declared_option(shared.METRIC)
@declared_option(parameters.RANDOM_STATE)
@option(
    "--output",
    section=OUTPUT,
    metavar="URL",
    help="URL of the result: .parquet or .csv (both with ids) by its ending, else Zarr.",
)
@option(
    "--centroids",
    section=OUTPUT,
    metavar="URL",
    help="Also write the centres, by its ending: .npy, .faiss (an empty IVF index) or .parquet (id, "
    "parent, vector).",
)
@overwrite_option
@option(
    "--checkpoint",
    section=OUTPUT,
    metavar="URL",
    help="Folder for the trained centres; continue with --resume.",
)
@option(
    "--resume",
    section=OUTPUT,
    is_flag=True,
    help="Resume from the state at --checkpoint, if there is one.",
)
@takes_job
@option("--dry-run", is_flag=True, help="Show passes, bytes and memory, then exit.")
def command(
    source: str,
    output: str | None,
    centroids: str | None,
    overwrite: bool,
    checkpoint: str | None,
    resume: bool,
    opening: dict[str, Any],
    task: Task,
    dry_run: bool,
    **settings: Any,
) -> None:
    """Divide the rows of SOURCE into partitions of an index, of nearly equal sizes.

    The output has the partition of every row, and those in which a copy of it pays. No partition has more
    rows than --max-size, copies left out.
    """
    if dry_run:
        _project(source, settings, opening, task)
        return
    if output is None:
        raise click.UsageError("Missing option '--output': the URL to write the result to.")
    if resume and checkpoint is None:
        raise click.UsageError("--resume needs --checkpoint, the URL of the state to resume from.")
    from daskcluster import jobs
    from daskcluster.data.sink import KINDS

    urls: dict[str, Any] = {"source": source, "output": output, "centroids": centroids}
    urls |= {"checkpoint": checkpoint}
    options = {**settings, "overwrite": overwrite, "resume": resume}
    may_be: dict[str, Any] = {"writes": ("output", "centroids"), "kinds": (*KINDS, "file")}
    task.run(jobs.partition, urls, options, opening, _rows_of_record, **may_be)


def _project(
    source: str, settings: Mapping[str, Any], opening: Mapping[str, Any], task: Task
) -> None:
    from daskcluster.cli.dry_run import emit_plan
    from daskcluster.jobs.opening import open_metadata
    from daskcluster.methods.partition.partitioning import PartitionPlan

    dataset = open_metadata(source, opening)
    plan = PartitionPlan.of(dataset, settings["target_size"], settings["spill"])
    parts = ("partitions", f"{plan.n_partitions:,}, trained on {plan.sample_rows:,} rows")
    emit_plan(task, plan, "Partitions take", [parts], "; more if any is split")


def _rows_of_record(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    from daskcluster.host import format_bytes
    from daskcluster.reports.tables import format_seconds

    return [
        ("output", record["output"]),
        *([("centroids", record["centroids"])] if record["centroids"] else []),
        ("rows", f"{record['n_rows']:,} x {record['n_features']:,}"),
        ("partitions", f"{record['n_partitions']:,}, the largest of {record['largest']:,} rows"),
        ("sizes", f"variation {record['variation']:.3g}"),
        ("  largest", f"{record['largest_over_mean']:.3g} times the mean"),
        ("copies", f"{record['n_copies']:,}"),
        ("passes", f"{record['passes']}, {format_bytes(record['bytes_read'])} read"),
        ("time", format_seconds(record["seconds"])),
    ]
