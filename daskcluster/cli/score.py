"""``daskcluster score``."""

from __future__ import annotations

from typing import Any

import click

from daskcluster.cli.engines import Place
from daskcluster.cli.options import (
    array_option,
    engine_options,
    flatten_option,
    output_options,
    storage_option,
    weights_option,
)
from daskcluster.cli.output import emit, watching


@click.command("score")
@click.argument("model")
@click.argument("source")
@array_option
@weights_option
@flatten_option
@storage_option
@engine_options
@output_options
def command(
    model: str,
    source: str,
    array: str | None,
    weights: str | None,
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
    """Sum of squared distances of the rows of SOURCE to the centres of MODEL, in one pass."""
    place = Place(scheduler, workers, threads, memory_limit, timeout)
    place.check()
    from daskcluster import jobs
    from daskcluster.reports.tables import rows_of_record

    with place.open() as engine, watching(progress) as callbacks:
        record = jobs.score(
            model,
            source,
            array=array,
            weights=weights,
            storage_options=storage_options,
            flatten=flatten,
            engine=engine,
            callbacks=callbacks,
        ).as_dict()
    emit(record, rows_of_record(record), as_json=as_json)
