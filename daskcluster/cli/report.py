"""``daskcluster report``: a report on a model as page, picture, text or numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
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
from daskcluster.errors import DatasetNotFoundError, InvalidParameterError, OutputExistsError

if TYPE_CHECKING:
    from daskcluster.models.persist import Model
    from daskcluster.reports.contents import Clusters, Report

FORMATS = (".html", ".png", ".md", ".json")


@click.command("report", cls=SectionedCommand)
@click.argument("model", shell_complete=complete_path)
@option(
    "--data",
    section=INPUT,
    metavar="SOURCE",
    help="Also evaluate the model on these rows, in one pass, and show example rows of its clusters.",
)
@takes_source()
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
    check_page(output, overwrite=overwrite)
    from daskcluster.models.persist import load_document
    from daskcluster.reports.charts import check_shape
    from daskcluster.reports.contents import Report

    found = load_document(model, opening["storage_options"])
    shape = None if image_shape is None else check_shape(image_shape, found.n_features)
    clusters = None if data is None else _evaluate(found, data, opening, place, console)
    write_report(output, Report(found, title=model, data=clusters, image_shape=shape))
    console.emit({"output": output, "model": model}, [("report", output)])


def _evaluate(
    model: Model, data: str, opening: dict[str, Any], place: Place, console: Console
) -> Clusters:
    from daskcluster.jobs import examine
    from daskcluster.jobs.opening import open_source
    from daskcluster.reports.contents import MOST_EXAMPLES, Clusters

    with place.open() as engine, console.watching() as callbacks:
        dataset = open_source(data, engine=engine, callbacks=callbacks, **opening)
        seen = examine(model, dataset, shown=MOST_EXAMPLES, engine=engine, callbacks=callbacks)
    return Clusters(
        title=f"Clusters in {data}",
        sizes=seen.scores.sizes,
        weights=seen.weights,
        costs=seen.scores.costs.sum(axis=0),
        facts=[("rows", f"{dataset.n_rows:,}"), ("inertia", f"{seen.scores.inertia:,.10g}")],
        examples=seen.examples,
    )


def write_report(path: str, report: Report) -> None:
    """Write a report in the format of the file's extension; the file appears only when complete."""
    from daskcluster.reports.charts import Chart
    from daskcluster.reports.pages import as_html, as_markdown, as_png

    kind = os.path.splitext(path)[1].lower()
    if kind == ".png":
        charts = [
            (section.title, part)
            for section in report.sections()
            for part in section.parts
            if isinstance(part, Chart)
        ]
        content = as_png(charts, report.title)
    elif kind == ".json":
        content = json.dumps(report.as_dict(), indent=1).encode()
    else:
        content = (as_markdown(report) if kind == ".md" else as_html(report)).encode()
    write_output(path, content)


def check_page(path: str, *, overwrite: bool, formats: Sequence[str] = FORMATS) -> None:
    """Raise, before any work, if a file exists, its folder does not, or its format is unknown."""
    if os.path.splitext(path)[1].lower() not in formats:
        raise InvalidParameterError(
            f"--output {path!r} should end in one of {', '.join(formats)}, which sets the format."
        )
    if os.path.lexists(path) and not overwrite:
        raise OutputExistsError(f"{path!r} exists; pass --overwrite or choose another name.")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise DatasetNotFoundError(
            f"The folder {folder!r} for {os.path.basename(path)!r} does not exist; create it."
        )


def write_output(path: str, content: bytes) -> None:
    """Write a file that appears only when complete."""
    from daskcluster.storage.files import write_file
    from daskcluster.storage.location import locate

    folder, name = os.path.split(os.path.abspath(path))
    write_file(locate(folder), name, content)
