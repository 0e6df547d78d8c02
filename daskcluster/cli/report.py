"""``daskcluster report``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskcluster.cli.engines import Place
from daskcluster.cli.options import (
    INPUT,
    OUTPUT,
    overwrite_option,
    takes_console,
    takes_place,
    takes_source,
)
from daskcluster.cli.output import Console
from daskcluster.cli.sections import SectionedCommand, option
from daskcluster.errors import DatasetNotFoundError, OutputExistsError

if TYPE_CHECKING:
    from daskcluster.models.kinds import Model
    from daskcluster.reports.html import Clusters


@click.command("report", cls=SectionedCommand)
@click.argument("model")
@option(
    "--data",
    section=INPUT,
    metavar="SOURCE",
    help="Also evaluate the model on these rows, in one pass.",
)
@takes_source()
@option(
    "--output",
    section=OUTPUT,
    required=True,
    type=click.Path(dir_okay=False),
    metavar="PAGE.html",
    help="The page to write.",
)
@overwrite_option
@takes_place
@takes_console
def command(
    model: str,
    data: str | None,
    output: str,
    overwrite: bool,
    opening: dict[str, Any],
    place: Place,
    console: Console,
) -> None:
    """Write a page about MODEL: summary, history, clusters. One file, nothing loaded from elsewhere."""
    check_page(output, overwrite=overwrite)
    from daskcluster.models.persist import load_document
    from daskcluster.reports.html import render

    found = load_document(model, opening["storage_options"])
    clusters = None if data is None else _evaluate(found, data, opening, place, console)
    write_page(output, render(found, title=model, data=clusters))
    console.emit({"output": output, "model": model}, [("report", output)])


def _evaluate(
    model: Model, data: str, opening: dict[str, Any], place: Place, console: Console
) -> Clusters:
    from daskcluster.data.open import open_dataset
    from daskcluster.jobs import evaluate
    from daskcluster.reports.html import Clusters

    dataset = open_dataset(data, **opening)
    with place.open() as engine, console.watching() as callbacks:
        seen = evaluate(model, dataset, engine=engine, callbacks=callbacks)
    return Clusters(
        title=f"Clusters in {data}",
        sizes=seen.sizes,
        weights=seen.sizes if dataset.weights is None else seen.weights.sum(axis=0),
        costs=seen.costs.sum(axis=0),
        facts=[("rows", f"{dataset.n_rows:,}"), ("inertia", f"{seen.inertia:.10g}")],
    )


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
