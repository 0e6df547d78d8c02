"""``daskcluster report``: a report on a model as page, picture, text or numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from daskcluster.cli.engines import Place
from daskcluster.cli.options import (
    INPUT,
    OUTPUT,
    SectionedCommand,
    complete_path,
    option,
    overwrite_option,
    takes_console,
    takes_place,
    takes_source,
)
from daskcluster.cli.output import Console
from daskcluster.cli.values import ImageShape

if TYPE_CHECKING:
    from daskcluster.models.persist import Model
    from daskcluster.reports.contents import Clusters


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
@takes_place
@takes_console
def command(
    model: str,
    data: str | None,
    image_shape: tuple[int, ...] | None,
    output: str,
    overwrite: bool,
    opening: dict[str, Any],
    place: Place,
    console: Console,
) -> None:
    """Write a self-contained report on MODEL: convergence, cost, clusters."""
    from daskcluster.reports.pages import FORMATS, check_output

    check_output(output, FORMATS, overwrite=overwrite)
    from daskcluster.models.persist import load_document
    from daskcluster.reports.charts import check_shape
    from daskcluster.reports.contents import Report

    found = load_document(model, opening["storage_options"])
    shape = None if image_shape is None else check_shape(image_shape, found.n_features)
    clusters = None if data is None else _evaluate(found, data, opening, place, console)
    report = Report(found, title=model, data=clusters, image_shape=shape)
    report.save(output, overwrite=overwrite)
    console.emit({"output": output, "model": model}, [("report", output)])


def _evaluate(
    model: Model, data: str, opening: dict[str, Any], place: Place, console: Console
) -> Clusters:
    from daskcluster.data.spec import RowsSpec
    from daskcluster.estimators.opening import open_stored
    from daskcluster.estimators.prepared import prepared
    from daskcluster.jobs import examine
    from daskcluster.reports.contents import MOST_EXAMPLES

    with place.open() as engine, console.watching() as callbacks:
        spec = RowsSpec.among(opening, model.feature_names)
        where = {"weights": opening["weights"], "storage_options": opening["storage_options"]}
        opened = open_stored(data, spec, engine=engine, callbacks=callbacks, **where)
        dataset = prepared(*opened, engine=engine, callbacks=callbacks)
        seen = examine(model, dataset, shown=MOST_EXAMPLES, engine=engine, callbacks=callbacks)
    return seen.clusters(f"Clusters in {data}")
