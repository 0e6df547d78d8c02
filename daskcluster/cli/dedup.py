"""``daskcluster dedup``."""

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
from daskcluster.methods.duplicates import parameters


@click.command("dedup", cls=SectionedCommand)
@click.argument("source", shell_complete=complete_path)
@takes_source("weights", "scale")
@declared_option(parameters.THRESHOLD)
@declared_option(parameters.METRIC)
@declared_option(parameters.KEEP, type=str, metavar="RULE|NAME|URL")
@declared_option(parameters.GROUPS)
@declared_option(parameters.RANDOM_STATE)
@option(
    "--output",
    section=OUTPUT,
    metavar="URL",
    help="URL of the result: .parquet or .csv (both with ids) by its ending, else Zarr.",
)
@option(
    "--report",
    section=OUTPUT,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Also write a report on the groups to this file: .html, .png, .md or .json.",
)
@overwrite_option
@option(
    "--checkpoint",
    section=OUTPUT,
    metavar="URL",
    help="Folder for sorted rows and finished pairs; continue with --resume. A cluster on several hosts "
    "needs one.",
)
@option(
    "--resume",
    section=OUTPUT,
    is_flag=True,
    help="Resume from the state at --checkpoint, if there is one.",
)
@option(
    "--scratch",
    section=OUTPUT,
    metavar="DIR",
    help="Local folder for temporary files. Default: the system's.",
)
@takes_job
@option("--dry-run", is_flag=True, help="Show passes, bytes, scratch and memory, then exit.")
def command(
    source: str,
    output: str | None,
    report: str | None,
    overwrite: bool,
    checkpoint: str | None,
    resume: bool,
    scratch: str | None,
    opening: dict[str, Any],
    task: Task,
    dry_run: bool,
    **search: Any,
) -> None:
    """Find near-duplicates among the rows of SOURCE, and write which rows to keep.

    The output has, for every row, the first row of its group, whether it is kept, and its cosine similarity
    (or Euclidean distance) to the kept row. All pairs beyond the threshold are found.
    """
    if dry_run:
        _project(source, opening, task)
        return
    if output is None:
        raise click.UsageError("Missing option '--output': the URL to write the result to.")
    if resume and checkpoint is None:
        raise click.UsageError("--resume needs --checkpoint, the URL of the state to resume from.")
    if report is not None and (task.detach or task.name is not None):
        raise click.UsageError(
            "--report needs a job of this process: leave out --name and --detach, or --report."
        )
    from daskcluster import jobs
    from daskcluster.data.sink import KINDS

    options = {**search, "overwrite": overwrite, "resume": resume, "scratch": scratch}
    options |= {"report": report}
    urls = {"source": source, "output": output, "checkpoint": checkpoint}
    task.run(jobs.dedup, urls, options, opening, _rows_of_record, kinds=KINDS)


def _project(source: str, opening: Mapping[str, Any], task: Task) -> None:
    from daskcluster.cli.dry_run import emit_plan
    from daskcluster.host import format_bytes
    from daskcluster.jobs.opening import open_metadata
    from daskcluster.methods.duplicates.plan import DuplicatesPlan

    plan = DuplicatesPlan.of(open_metadata(source, opening))
    cells = ("cells", f"{plan.n_cells:,}, blocks of at most {plan.block_rows:,} rows")
    scratch = ("scratch", format_bytes(plan.bytes_scratch + plan.bytes_sorted))
    emit_plan(task, plan, "The search takes", [cells, scratch])


def _rows_of_record(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    from daskcluster.host import format_bytes
    from daskcluster.reports.tables import format_seconds

    removed = record["n_rows"] - record["n_kept"]
    return [
        ("output", record["output"]),
        ("rows", f"{record['n_rows']:,} x {record['n_features']:,}"),
        ("kept", f"{record['n_kept']:,}; {removed:,} are near-duplicates"),
        ("groups", f"{record['n_groups']:,} of two rows or more"),
        ("copies", f"{record['n_copies']:,} rows equal an earlier one"),
        ("passes", f"{record['passes']}, {format_bytes(record['bytes_read'])} read"),
        ("time", format_seconds(record["seconds"])),
    ]
