"""``daskcluster coreset``."""

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
from daskcluster.cli.signals import after_a_commit
from daskcluster.methods.coreset.parameters import SIZE
from daskcluster.parameters import shared


@click.command("coreset", cls=SectionedCommand)
@click.argument("source", shell_complete=complete_path)
@takes_source("scale")
@declared_option(SIZE)
@declared_option(
    shared.RANDOM_STATE, help="Seed; the same seed draws the same rows. Default: a fresh one."
)
@option(
    "--quality",
    type=click.IntRange(min=1),
    metavar="K",
    help="Also compare estimated with true costs of K centres, in one more pass.",
)
@option("--output", section=OUTPUT, metavar="URL", help="Where to write the coreset, as Zarr.")
@overwrite_option
@takes_job
@option(
    "--checkpoint",
    section=OUTPUT,
    metavar="URL",
    help="Save progress here; continue with --resume.",
)
@option(
    "--resume",
    section=OUTPUT,
    is_flag=True,
    help="Resume from the state at --checkpoint, if there is one.",
)
@option("--dry-run", is_flag=True, help="Show passes, bytes and memory, then exit.")
def command(
    source: str,
    size: int,
    random_state: int | None,
    quality: int | None,
    output: str | None,
    overwrite: bool,
    opening: dict[str, Any],
    task: Task,
    checkpoint: str | None,
    resume: bool,
    dry_run: bool,
) -> None:
    """Draw a lightweight coreset of SOURCE: a small weighted sample of its rows, in two passes.

    Any command takes OUTPUT in place of SOURCE, and finds the weights by itself.
    """
    if dry_run:
        _project(source, size, quality, opening, task)
        return
    if output is None:
        raise click.UsageError("Missing option '--output': the URL to write the coreset to.")
    if resume and checkpoint is None:
        raise click.UsageError("--resume needs --checkpoint, the URL of the state to resume from.")
    from daskcluster import jobs
    from daskcluster.data.weighted import KINDS

    urls = {"source": source, "output": output, "checkpoint": checkpoint}
    options = {"size": size, "random_state": random_state, "quality": quality}
    options |= {"overwrite": overwrite, "resume": resume}
    within = after_a_commit(wanted=checkpoint is not None or task.name is not None)
    job, rows = jobs.build_coreset, _rows_of_record
    task.run(job, urls, options, opening, rows, kinds=KINDS, within=within)


def _project(
    source: str,
    size: int,
    quality: int | None,
    opening: Mapping[str, Any],
    task: Task,
) -> None:
    from daskcluster.cli.dry_run import of_a_sample, project_fit

    given = {"n_clusters": 1, "coreset_size": size}
    found = project_fit(source, opening, task.place, "coreset", given)
    passes = found["passes_at_most"] + (quality is not None)
    more = found["bytes_later_pass"] * (quality is not None)
    found |= {"passes_at_most": passes, "bytes_at_most": found["bytes_at_most"] + more}
    record, rows = of_a_sample(found)
    task.console.emit({**record, "size": size}, rows)


def _rows_of_record(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    from daskcluster.host import format_bytes
    from daskcluster.reports.tables import format_seconds

    rows = [
        ("output", record["output"]),
        ("rows", f"{record['size']:,} of {record['n_rows']:,} x {record['n_features']:,}"),
        ("weight", f"{record['coreset_weight']:,.6g} for {record['total_weight']:,.6g}"),
        ("seed", f"{record['seed']}"),
        ("passes", f"{record['passes']}, {format_bytes(record['bytes_read'])} read"),
        ("time", format_seconds(record["seconds"])),
    ]
    for cost in (record["quality"] or {"costs": []})["costs"]:
        text = f"{cost['estimated']:.5g} estimated, {cost['true']:.5g} true"
        rows.append((f"cost of {cost['name']}", f"{text}, off by {cost['relative_error']:+.2%}"))
    return rows
