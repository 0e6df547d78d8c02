"""``daskcluster report``, and ``daskcluster demo``: a complete run on generated data."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from daskcluster.cli.main import Console, EngineOptions
from daskcluster.cli.options import (
    INPUT,
    OUTPUT,
    ImageShape,
    SectionedCommand,
    Size,
    complete_path,
    declared_option,
    option,
    overwrite_option,
    takes_console,
    takes_engine,
    takes_source,
)
from daskcluster.parameters import shared

QUICK_ROWS = 50_000
SPREAD = 1.5
"""Spread that makes the groups overlap a little, so that the fit is not trivial."""


@click.command("report", cls=SectionedCommand)
@click.argument("model", shell_complete=complete_path)
@option(
    "--data",
    section=INPUT,
    metavar="SOURCE",
    help="Also evaluate the model on these rows, in one pass, and show example rows of its clusters.",
)
@takes_source("scale")
@option(
    "--image-shape",
    section=INPUT,
    type=ImageShape(),
    metavar="HxW[xC]",
    help="Shape of rows that are pictures, such as 28x28 or 32x32x3: show centres and rows as pictures.",
)
@option(
    "--output",
    section=OUTPUT,
    required=True,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="File to write: .html (page), .png (picture), .md (text) or .json (numbers).",
)
@overwrite_option
@takes_engine
@takes_console
def report(
    model: str,
    data: str | None,
    image_shape: tuple[int, ...] | None,
    output: str,
    overwrite: bool,
    opening: dict[str, Any],
    engine_options: EngineOptions,
    console: Console,
) -> None:
    """Write a self-contained report on MODEL: convergence, cost, clusters."""
    from daskcluster.reports.pages import FORMATS, check_output

    check_output(output, FORMATS, overwrite=overwrite)
    from daskcluster.data.spec import RowsSpec
    from daskcluster.estimators.opening import open_stored, prepared
    from daskcluster.jobs import examine
    from daskcluster.models.fitted import load_document
    from daskcluster.reports.charts import check_shape
    from daskcluster.reports.contents import MOST_EXAMPLES, Report

    found = load_document(model, opening["storage_options"])
    shape = None if image_shape is None else check_shape(image_shape, found.n_features)
    clusters = None
    if data is not None:
        spec = RowsSpec.among(opening, found.feature_names)
        where = {"weights": opening["weights"], "storage_options": opening["storage_options"]}
        with engine_options.open() as engine, console.watching() as callbacks:
            hearing: dict[str, Any] = {"engine": engine, "callbacks": callbacks}
            dataset = prepared(*open_stored(data, spec, **where, **hearing), **hearing)
            seen = examine(found, dataset, shown=MOST_EXAMPLES, **hearing)
        clusters = seen.clusters(f"Clusters in {data}")
    Report(found, title=model, data=clusters, image_shape=shape).save(output, overwrite=overwrite)
    console.emit({"output": output, "model": model}, [("report", output)])


@click.command("demo")
@click.option("--rows", "n_rows", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@click.option("--features", "n_features", type=click.IntRange(min=1), default=16, show_default=True)
@declared_option(shared.N_CLUSTERS, default=20)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Processes of the local Dask cluster; 0: threads of this process.",
)
@click.option("--memory-limit", type=Size(), help="Memory limit of all workers together.")
@declared_option(shared.RANDOM_STATE, default=0, show_default=True)
@click.option(
    "--output",
    default="daskcluster-demo",
    show_default=True,
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Folder for all outputs.",
)
@click.option("--quick", is_flag=True, help=f"{QUICK_ROWS:,} rows.")
@click.option("--overwrite", is_flag=True, help="Replace the outputs of an earlier demo.")
@takes_console
def demo(
    n_rows: int,
    n_features: int,
    n_clusters: int,
    workers: int,
    memory_limit: int | None,
    random_state: int,
    output: str,
    quick: bool,
    overwrite: bool,
    console: Console,
) -> None:
    """Generate a Zarr dataset, cluster it on a local Dask cluster, and write model, labels and a report."""
    from daskcluster import jobs
    from daskcluster.data.generate import generate
    from daskcluster.data.writer import good_chunk_rows
    from daskcluster.engine.local import default_threads
    from daskcluster.models.fitted import load_document
    from daskcluster.reports.contents import MOST_EXAMPLES, Report
    from daskcluster.reports.pages import FORMATS, check_output, format_seconds, rows_of_record

    n_rows = min(n_rows, QUICK_ROWS) if quick else n_rows
    say = (lambda text: None) if console.as_json else click.echo
    names = ("rows.zarr", "model.zarr", "labels.zarr", "report.html")
    rows, model, labels, page = (os.path.join(output, name) for name in names)
    os.makedirs(output or ".", exist_ok=True)
    jobs.check_outputs({"rows": rows, "model": model, "labels": labels}, {}, None, overwrite)
    check_output(page, FORMATS, overwrite=overwrite)
    with console.watching() as callbacks:
        say(f"1. {n_rows:,} rows of {n_features} features, {n_clusters} groups -> {rows}")
        # In 8 MB chunks, small data would have too few chunks for several workers.
        chunk_rows = min(good_chunk_rows(4 * n_features, n_rows), max(1024, -(-n_rows // 16)))
        generate(
            rows,
            n_rows=n_rows,
            n_features=n_features,
            n_clusters=n_clusters,
            chunk_rows=chunk_rows,
            spread=SPREAD,
            n_threads=default_threads(),
            overwrite=overwrite,
            callbacks=callbacks,
        )
        where = f"a Dask cluster of {workers} processes" if workers else "threads of this process"
        say(f"2. k-means on {where} -> {model}, {labels}")
        with EngineOptions(workers=workers or None, memory_limit=memory_limit).open() as engine:
            record = jobs.fit(
                rows,
                n_clusters=n_clusters,
                model=model,
                labels=labels,
                random_state=random_state,
                overwrite=overwrite,
                engine=engine,
                callbacks=callbacks,
            ).as_dict()
        say(f"3. The report -> {page}\n")
        facts = [("data", rows), ("labels", labels), ("time", format_seconds(record["seconds"]))]
        fitted = load_document(model)
        seen = jobs.examine(fitted, rows, shown=MOST_EXAMPLES, callbacks=callbacks)
        clusters = seen.clusters(f"Clusters in {rows}")
        found = Report(fitted, title="daskcluster demo", data=clusters, facts=facts)
        found.save(page, overwrite=overwrite)
    console.emit({**record, "report": page, "source": rows}, rows_of_record(record))
    rows, model, more = map(shlex.quote, (rows, model, os.path.join(output, "more.zarr")))
    say(
        "\nNext:\n"
        f"  daskcluster info {rows}\n"
        f"  daskcluster info {model}\n"
        f"  daskcluster fit {rows} --n-clusters {2 * n_clusters} --model {more}\n"
        f"  daskcluster score {model} {rows}"
    )
