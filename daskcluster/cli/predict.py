"""``daskcluster predict``."""

from __future__ import annotations

from typing import Any

import click

from daskcluster.cli.detach import Task, takes_job
from daskcluster.cli.options import (
    OUTPUT,
    SectionedCommand,
    complete_path,
    option,
    overwrite_option,
    takes_source,
)


@click.command("predict", cls=SectionedCommand)
@click.argument("model", shell_complete=complete_path)
@click.argument("source", shell_complete=complete_path)
@takes_source("weights", "scale")
@option(
    "--output",
    section=OUTPUT,
    required=True,
    metavar="URL",
    help="URL of the labels: .parquet, .csv (both with ids), .npy, or .tif (GeoTIFF of a map) by its "
    "ending, else Zarr.",
)
@option(
    "--n-nearest",
    section=OUTPUT,
    type=click.IntRange(min=1),
    help="Write that many nearest centres of every row, nearest first.",
)
@option("--distances", section=OUTPUT, is_flag=True, help="Also write Euclidean distances.")
@option(
    "--level",
    section=OUTPUT,
    type=click.IntRange(min=1),
    default=1,
    help="For a model of several levels: write the clusters of this one, from 1 (the default).",
)
@option(
    "--posteriors",
    section=OUTPUT,
    metavar="URL",
    help="For a mixture: also write the posteriors of every row to this Zarr group.",
)
@overwrite_option
@option(
    "--resume",
    section=OUTPUT,
    is_flag=True,
    help="Resume an interrupted call; an interrupted run keeps finished chunks for the next one.",
)
@takes_job
def command(
    model: str,
    source: str,
    output: str,
    posteriors: str | None,
    n_nearest: int | None,
    distances: bool,
    level: int,
    overwrite: bool,
    resume: bool,
    opening: dict[str, Any],
    task: Task,
) -> None:
    """Write the label of every row of SOURCE under MODEL, in one pass.

    A GeoTIFF, --nodata and --missing drop take one more pass, which finds what is missing.

    The output is a 1-D int32 Zarr array, or a file with the ids of the rows. With --distances it is a Zarr
    group of the arrays label and distance, or a file with both columns. Labels of a raster are a map.

    With --posteriors, a second pass writes a Zarr group with the arrays components (int32) and
    probabilities (float32): for every row its most probable components, largest first.
    """
    from daskcluster import jobs
    from daskcluster.data.label_files import is_file_output
    from daskcluster.jobs.outputs import kinds_of_labels
    from daskcluster.reports.tables import rows_of_record

    is_file_output(output, maps=True)  # refuses endings of other files
    urls = {"model": model, "source": source, "output": output, "posteriors": posteriors}
    options: dict[str, Any] = {"overwrite": overwrite, "resume": resume}
    options |= {"n_nearest": n_nearest, "distances": distances, "level": level}
    checked: dict[str, Any] = {"writes": ("output", "posteriors")}
    checked["kinds"] = kinds_of_labels(source, opening.get("grid"), distances=distances)
    task.run(jobs.predict, urls, options, opening, rows_of_record, **checked)
