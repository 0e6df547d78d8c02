"""``daskcluster demo``: a complete run on generated data."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from daskcluster.cli.engines import Place
from daskcluster.cli.options import declared_option, output_options
from daskcluster.cli.output import emit, watching
from daskcluster.cli.values import Size
from daskcluster.parameters import shared

QUICK_ROWS = 50_000
SPREAD = 1.5
"""Spread that makes the groups overlap a little, so that the fit is not trivial."""


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
@output_options
def command(
    n_rows: int,
    n_features: int,
    n_clusters: int,
    workers: int,
    memory_limit: int | None,
    random_state: int,
    output: str,
    quick: bool,
    overwrite: bool,
    as_json: bool,
    progress: bool | None,
) -> None:
    """Generate a Zarr dataset, cluster it on a local Dask cluster, and write model, labels and a report."""
    n_rows = min(n_rows, QUICK_ROWS) if quick else n_rows
    say = (lambda text: None) if as_json else click.echo
    paths = {
        name: os.path.join(output, file)
        for name, file in {
            "rows": "rows.zarr",
            "model": "model.zarr",
            "labels": "labels.zarr",
            "report": "report.html",
        }.items()
    }
    _refuse_existing(paths, overwrite)
    with watching(progress) as callbacks:
        say(f"1. {n_rows:,} rows of {n_features} features, {n_clusters} groups -> {paths['rows']}")
        _generate(paths["rows"], n_rows, n_features, n_clusters, overwrite, callbacks)
        where = f"a Dask cluster of {workers} processes" if workers else "threads of this process"
        say(f"2. k-means on {where} -> {paths['model']}, {paths['labels']}")
        place = Place(workers=workers or None, memory_limit=memory_limit)
        record = _fit(paths, n_clusters, random_state, overwrite, place, callbacks)
        say(f"3. The report -> {paths['report']}\n")
        _write_report(paths, record, overwrite, callbacks)
    _tell(paths, record, n_clusters, as_json)


def _refuse_existing(paths: dict[str, str], overwrite: bool) -> None:
    from daskcluster.models.persist import check_free
    from daskcluster.reports.pages import FORMATS, check_output
    from daskcluster.storage.staging import check_free as check_output_free

    os.makedirs(os.path.dirname(paths["report"]) or ".", exist_ok=True)
    check_output_free(paths["rows"], overwrite=overwrite)
    check_output_free(paths["labels"], overwrite=overwrite)
    check_free(paths["model"], overwrite=overwrite)
    check_output(paths["report"], FORMATS, overwrite=overwrite)


def _generate(
    url: str, n_rows: int, n_features: int, n_clusters: int, overwrite: bool, callbacks: Any
) -> None:
    from daskcluster.data.generate import generate
    from daskcluster.data.writer import good_chunk_rows
    from daskcluster.engine.local import default_threads

    # In 8 MB chunks, small data would have too few chunks for several workers.
    chunk_rows = min(good_chunk_rows(4 * n_features, n_rows), max(1024, -(-n_rows // 16)))
    generate(
        url,
        n_rows=n_rows,
        n_features=n_features,
        n_clusters=n_clusters,
        chunk_rows=chunk_rows,
        spread=SPREAD,
        n_threads=default_threads(),
        overwrite=overwrite,
        callbacks=callbacks,
    )


def _fit(
    paths: dict[str, str],
    n_clusters: int,
    random_state: int,
    overwrite: bool,
    place: Place,
    callbacks: Any,
) -> dict[str, Any]:
    from daskcluster import jobs

    with place.open() as engine:
        return jobs.fit(
            paths["rows"],
            n_clusters=n_clusters,
            model=paths["model"],
            labels=paths["labels"],
            random_state=random_state,
            overwrite=overwrite,
            engine=engine,
            callbacks=callbacks,
        ).as_dict()


def _write_report(
    paths: dict[str, str], record: dict[str, Any], overwrite: bool, callbacks: Any
) -> None:
    from daskcluster.jobs import examine
    from daskcluster.models.persist import load_document
    from daskcluster.reports.contents import MOST_EXAMPLES, Report
    from daskcluster.reports.tables import format_seconds

    facts = [("data", paths["rows"]), ("labels", paths["labels"])]
    facts.append(("time", format_seconds(record["seconds"])))
    model = load_document(paths["model"])
    seen = examine(model, paths["rows"], shown=MOST_EXAMPLES, callbacks=callbacks)
    clusters = seen.clusters(f"Clusters in {paths['rows']}")
    report = Report(model, title="daskcluster demo", data=clusters, facts=facts)
    report.save(paths["report"], overwrite=overwrite)


def _tell(paths: dict[str, str], record: dict[str, Any], n_clusters: int, as_json: bool) -> None:
    from daskcluster.reports.tables import rows_of_record

    emit({**record, "report": paths["report"], "source": paths["rows"]}, rows_of_record(record),
         as_json=as_json)  # fmt: skip
    if as_json:
        return
    quoted = {name: shlex.quote(path) for name, path in paths.items()}
    more = shlex.quote(os.path.join(os.path.dirname(paths["model"]), "more.zarr"))
    click.echo(
        "\nNext:\n"
        f"  daskcluster info {quoted['rows']}\n"
        f"  daskcluster info {quoted['model']}\n"
        f"  daskcluster fit {quoted['rows']} --n-clusters {2 * n_clusters} --model {more}\n"
        f"  daskcluster score {quoted['model']} {quoted['rows']}"
    )
