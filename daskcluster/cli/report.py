"""``daskcluster report``."""

from __future__ import annotations

import os
from pathlib import Path
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
    weights_option,
)
from daskcluster.cli.output import emit, watching
from daskcluster.errors import DatasetNotFoundError, OutputExistsError


@click.command("report")
@click.argument("model")
@click.option(
    "--data", metavar="SOURCE", help="Also evaluate the model on these rows, in one pass."
)
@click.option("--output", required=True, type=click.Path(dir_okay=False), metavar="PAGE.html")
@array_option
@weights_option
@flatten_option
@overwrite_option
@storage_option
@engine_options
@output_options
def command(
    model: str,
    data: str | None,
    output: str,
    array: str | None,
    weights: str | None,
    flatten: bool,
    overwrite: bool,
    storage_options: dict[str, Any] | None,
    scheduler: str,
    workers: int | None,
    threads: int | None,
    memory_limit: int | None,
    timeout: float,
    as_json: bool,
    progress: bool | None,
) -> None:
    """Write a page about MODEL: summary, history, clusters. One file, nothing loaded from elsewhere."""
    place = Place(scheduler, workers, threads, memory_limit, timeout)
    place.check()
    check_page(output, overwrite=overwrite)
    from daskcluster.models.persist import load_document
    from daskcluster.reports.html import Clusters, render

    found = load_document(model, storage_options)
    clusters: Clusters | None = None
    if data is not None:
        from daskcluster.data.open import open_dataset
        from daskcluster.jobs import evaluate

        dataset = open_dataset(
            data, array=array, weights=weights, storage_options=storage_options, flatten=flatten
        )
        with place.open() as engine, watching(progress) as callbacks:
            seen = evaluate(found, dataset, engine=engine, callbacks=callbacks)
        clusters = Clusters(
            title=f"Clusters in {data}",
            sizes=seen.sizes,
            weights=seen.sizes if dataset.weights is None else seen.weights.sum(axis=0),
            costs=seen.costs.sum(axis=0),
            facts=[("rows", f"{dataset.n_rows:,}"), ("inertia", f"{seen.inertia:.10g}")],
        )
    write_page(output, render(found, title=model, data=clusters))
    emit({"output": output, "model": model}, [("report", output)], as_json=as_json)


def check_page(path: str, *, overwrite: bool) -> None:
    """Refuse a page that exists, or whose folder does not, before any work."""
    if os.path.lexists(path) and not overwrite:
        raise OutputExistsError(f"{path!r} exists; pass --overwrite or choose another name.")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise DatasetNotFoundError(f"The folder {folder!r} for the page does not exist; create it.")


def write_page(path: str, text: str) -> None:
    """Write a page, whole or not at all."""
    partial = Path(f"{path}.partial-{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
