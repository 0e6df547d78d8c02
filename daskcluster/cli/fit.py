"""``daskcluster fit``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from daskcluster.cli.detach import Task, take_urls, takes_job
from daskcluster.cli.options import (
    OUTPUT,
    complete_path,
    option,
    overwrite_option,
    takes_source,
)
from daskcluster.cli.parameter_flags import (
    AlgorithmCommand,
    given_parameters,
    parameter_options,
)
from daskcluster.cli.signals import after_a_commit
from daskcluster.methods.catalogue import ALGORITHMS


@click.command("fit", cls=AlgorithmCommand)
@click.argument("source", shell_complete=complete_path)
@takes_source()
@option("--model", section=OUTPUT, metavar="URL", help="Where to save the model.")
@option(
    "--labels",
    section=OUTPUT,
    metavar="URL",
    help="Also write the label of every row: .parquet, .csv (both with ids), .npy, or .tif (GeoTIFF of a "
    "map) by its ending, else Zarr.",
)
@option(
    "--distances",
    section=OUTPUT,
    is_flag=True,
    help="Also write Euclidean distances to the centres, with --labels.",
)
@overwrite_option
@parameter_options(required=("n_clusters",))
@takes_job
@option(
    "--resume",
    section=OUTPUT,
    is_flag=True,
    help="Resume from the state at --checkpoint, if there is one.",
)
@option("--dry-run", is_flag=True, help="Show passes, bytes and memory, then exit.")
def command(
    source: str,
    model: str | None,
    labels: str | None,
    distances: bool,
    overwrite: bool,
    algorithm: str,
    opening: dict[str, Any],
    task: Task,
    resume: bool,
    dry_run: bool,
    **flags: Any,
) -> None:
    """Cluster the rows of SOURCE and save the model.

    SOURCE is the path or URL of a Zarr array, of .npy, .npz, .parquet, .csv, .h5, .h5ad (AnnData) or .tif
    (GeoTIFF) files, or a folder or a pattern of such files.
    """
    given = given_parameters(flags)
    if dry_run:
        from daskcluster.cli.dry_run import project_fit, rows_of_projection

        projection = project_fit(source, opening, task.place, algorithm, given)
        task.console.emit(projection, rows_of_projection(projection))
        return
    if resume and "checkpoint" not in given:
        raise click.UsageError("--resume needs --checkpoint, the URL of the state to resume from.")
    if model is None:
        raise click.UsageError("Missing option '--model': the URL to save the model at.")
    if distances and labels is None:
        raise click.UsageError("--distances needs --labels, to which they are added.")
    from daskcluster import jobs
    from daskcluster.data.label_files import is_file_output
    from daskcluster.jobs.outputs import kinds_of_labels
    from daskcluster.reports.tables import rows_of_record

    is_file_output(labels or "", maps=True)  # refuses endings of other files
    options = {"overwrite": overwrite, "algorithm": algorithm, "resume": resume}
    options |= {"distances": True} if distances else {}
    within = after_a_commit(wanted=_keeps_state(algorithm, given, task))
    urls = {"source": source, "model": model, "labels": labels} | take_urls(given)
    task.run(
        jobs.fit,
        urls,
        {**options, **given},
        opening,
        rows_of_record,
        writes=("model", "labels"),
        kinds=kinds_of_labels(source, opening.get("grid"), distances=distances),
        within=within,
    )


def _keeps_state(algorithm: str, given: Mapping[str, Any], task: Task) -> bool:
    # A job always saves the state of its fit, if the algorithm has checkpoints.
    named = task.name is not None and "checkpoint" in ALGORITHMS.find(algorithm).parameters
    return named or "checkpoint" in given
