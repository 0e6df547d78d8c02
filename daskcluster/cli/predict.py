"""``daskcluster predict``."""

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
    storage_option,
)
from daskcluster.cli.output import emit, watching


@click.command("predict")
@click.argument("model")
@click.argument("source")
@click.option("--output", required=True, metavar="URL", help="Where to write the labels, as Zarr.")
@array_option
@flatten_option
@overwrite_option
@storage_option
@engine_options
@output_options
def command(
    model: str,
    source: str,
    output: str,
    array: str | None,
    overwrite: bool,
    flatten: bool,
    storage_options: dict[str, Any] | None,
    scheduler: str,
    workers: int | None,
    threads: int | None,
    memory_limit: int | None,
    timeout: float,
    as_json: bool,
    progress: bool | None,
) -> None:
    """Write the label of every row of SOURCE under MODEL: a 1-D int32 Zarr array, one pass."""
    place = Place(scheduler, workers, threads, memory_limit, timeout)
    place.check()
    from daskcluster import jobs
    from daskcluster.reports.tables import rows_of_record

    # Before a cluster is started, too.
    inputs = {"source": source, "model": model}
    jobs.check_outputs({"output": output}, inputs, storage_options, overwrite)
    with place.open() as engine, watching(progress) as callbacks:
        record = jobs.predict(
            model,
            source,
            output=output,
            array=array,
            storage_options=storage_options,
            flatten=flatten,
            overwrite=overwrite,
            engine=engine,
            callbacks=callbacks,
        ).as_dict()
    emit(record, rows_of_record(record), as_json=as_json)
