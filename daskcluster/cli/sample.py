"""``daskcluster sample``."""

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
from daskcluster.parameters import shared


@click.command("sample", cls=SectionedCommand)
@click.argument("model", shell_complete=complete_path)
@click.argument("source", shell_complete=complete_path)
@takes_source("weights", "scale")
@declared_option(shared.SAMPLE_SIZE)
@option(
    "--how",
    default="random",
    show_default=True,
    metavar="random|nearest|farthest|NAME|URL",
    help="Which rows of a cluster: at random, nearest or farthest to its centre, or with the largest "
    "scores, from a column or array NAME or a URL.",
)
@declared_option(
    shared.RANDOM_STATE, help="Seed; the same seed draws the same rows. Default: a fresh one."
)
@option(
    "--output",
    section=OUTPUT,
    metavar="URL",
    help="URL of the ids: .parquet, .csv (with clusters and weights) or .npy by its ending, else Zarr.",
)
@option(
    "--rows",
    section=OUTPUT,
    metavar="URL",
    help="Also write the rows to this URL: .parquet (with ids) by its ending, else Zarr.",
)
@option(
    "--weighted", section=OUTPUT, is_flag=True, help="Write --rows with the weights of the sample."
)
@overwrite_option
@takes_job
@option("--dry-run", is_flag=True, help="Show passes, bytes and memory, then exit.")
def command(
    model: str,
    source: str,
    size: int,
    how: str,
    random_state: int | None,
    output: str | None,
    rows: str | None,
    weighted: bool,
    overwrite: bool,
    opening: dict[str, Any],
    task: Task,
    dry_run: bool,
) -> None:
    """Draw rows of SOURCE as evenly as possible from the clusters of MODEL, in two passes.

    The clusters of the top level share --size evenly, then the clusters within each, down to rows. The
    output has the ids of the rows, or their numbers. Models of fit --algorithm hierarchical with
    --n-levels 2 or 3 give the most even samples.
    """
    if dry_run:
        _project(model, source, size, how, opening, task)
        return
    if output is None:
        raise click.UsageError("Missing option '--output': the URL to write the ids to.")
    if weighted and rows is None:
        raise click.UsageError("--weighted needs --rows, the URL of the rows to write.")
    from daskcluster import jobs
    from daskcluster.data.spec import looks_like_path
    from daskcluster.jobs.sample_outputs import check_rows
    from daskcluster.jobs.sampling import OUTPUT_KINDS

    check_rows(rows)

    urls: dict[str, Any] = {"model": model, "source": source, "output": output, "rows": rows}
    options: dict[str, Any] = {"size": size, "how": how, "random_state": random_state}
    options |= {"weighted": weighted, "overwrite": overwrite}
    if how not in shared.HOW and looks_like_path(how):  # else it names a column or an array
        urls["how"] = options.pop("how")
    may_be: dict[str, Any] = {"writes": ("output", "rows"), "kinds": OUTPUT_KINDS}
    task.run(jobs.sample, urls, options, opening, _rows_of_record, **may_be)


def _project(
    model: str,
    source: str,
    size: int,
    how: str,
    opening: Mapping[str, Any],
    task: Task,
) -> None:
    from daskcluster.cli.dry_run import of_a_sample, project_plan
    from daskcluster.jobs.balanced_sample import model_of, plan_sample
    from daskcluster.jobs.opening import open_metadata

    fitted = model_of(model, opening["storage_options"])
    dataset = open_metadata(source, opening)
    found = project_plan(dataset, plan_sample(fitted, dataset, size, how), task.place, "sample")
    record, rows = of_a_sample(found)
    task.console.emit({**record, "size": size}, rows)


def _rows_of_record(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    from daskcluster.host import format_bytes
    from daskcluster.models.balance import Balance
    from daskcluster.reports.tables import format_seconds

    levels = " in ".join(f"{size:,}" for size in record["levels"])
    balances = zip(record["before"], record["after"], strict=True)
    return [
        ("output", record["output"]),
        *([("written", record["rows"])] if record["rows"] else []),
        ("rows", f"{record['size']:,} of {record['n_rows']:,} x {record['n_features']:,}"),
        ("chosen", record["how"]),
        ("levels", f"{levels} clusters"),
        *(
            (name, str(Balance(**balance)))
            for level, both in enumerate(balances, 1)
            for name, balance in zip((f"level {level}", "  sample"), both, strict=True)
        ),
        ("seed", f"{record['seed']}"),
        ("passes", f"{record['passes']}, {format_bytes(record['bytes_read'])} read"),
        ("time", format_seconds(record["seconds"])),
    ]
