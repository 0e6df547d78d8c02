"""``daskcluster fit``."""

from __future__ import annotations

from typing import Any

import click

from daskcluster.cli.engines import Place
from daskcluster.cli.options import (
    array_option,
    engine_options,
    flatten_option,
    output_options,
    overwrite_option,
    parameter_options,
    storage_option,
    weights_option,
)
from daskcluster.cli.output import emit, watching
from daskcluster.parameters import KMEANS


@click.command("fit")
@click.argument("source")
@parameter_options(KMEANS, required=("n_clusters",))
@click.option("--model", metavar="URL", help="Where to save the model.")
@click.option("--labels", metavar="URL", help="Also write the label of every row, as Zarr.")
@array_option
@weights_option
@flatten_option
@overwrite_option
@storage_option
@engine_options
@click.option("--dry-run", is_flag=True, help="Say what it will cost, and do nothing.")
@output_options
def command(
    source: str,
    model: str | None,
    labels: str | None,
    array: str | None,
    weights: str | None,
    overwrite: bool,
    flatten: bool,
    storage_options: dict[str, Any] | None,
    scheduler: str,
    workers: int | None,
    threads: int | None,
    memory_limit: int | None,
    timeout: float,
    dry_run: bool,
    as_json: bool,
    progress: bool | None,
    **parameters: Any,
) -> None:
    """Cluster the rows of SOURCE and save the model.

    SOURCE is a Zarr array, an .npy file, or the URL of either.
    """
    place = Place(scheduler, workers, threads, memory_limit, timeout)
    place.check()
    if model is None and not dry_run:
        raise click.UsageError("Missing option '--model': the URL to save the model at.")
    if dry_run:
        from daskcluster.cli.dry_run import project_fit, rows_of_projection

        projection = project_fit(
            source, array, weights, storage_options, flatten, place, parameters
        )
        emit(projection, rows_of_projection(projection), as_json=as_json)
        return
    from daskcluster import jobs
    from daskcluster.reports.tables import rows_of_record

    # Before a cluster is started, too.
    outputs = {"model": str(model), **({} if labels is None else {"labels": labels})}
    jobs.check_outputs(outputs, {"source": source, "weights": weights}, storage_options, overwrite)
    with place.open() as engine, watching(progress) as callbacks:
        record = jobs.fit(
            source,
            model=str(model),
            labels=labels,
            array=array,
            weights=weights,
            storage_options=storage_options,
            flatten=flatten,
            overwrite=overwrite,
            engine=engine,
            callbacks=callbacks,
            **parameters,
        )
    emit(record.as_dict(), rows_of_record(record.as_dict()), as_json=as_json)
