"""``daskcluster sweep``."""

from __future__ import annotations

import io
import json
import os
import re
from typing import TYPE_CHECKING, Any

import click

from daskcluster.cli.engines import Place
from daskcluster.cli.options import (
    OUTPUT,
    overwrite_option,
    takes_console,
    takes_place,
    takes_source,
)
from daskcluster.cli.output import Console
from daskcluster.cli.report import check_page, write_output
from daskcluster.cli.sections import SectionedCommand, option
from daskcluster.cli.values import ParamType
from daskcluster.parameters.mixture import COVARIANCE_TYPES
from daskcluster.parameters.shared import METHODS, METRICS

if TYPE_CHECKING:
    from daskcluster.reports.k_selection import KSelection

TRYING = "What is tried"
SUFFIXES = (".json", ".png", ".svg")


class NumbersOfClusters(ParamType):
    """FIRST:LAST, FIRST:LAST:STEP, or numbers with commas between them."""

    name = "first:last"

    def convert(self, value: Any, param: Any, ctx: Any) -> dict[str, Any]:
        found = value if isinstance(value, dict) else _numbers(str(value).replace(" ", ""))
        if found is None:
            self.fail(
                f"{value!r} should be a range such as 2:64 or 10:100:10, or 4,8,16.", param, ctx
            )
        return found


def _numbers(text: str) -> dict[str, Any] | None:
    if re.fullmatch(r"\d+(,\d+)*", text):
        return {"ks": [int(part) for part in text.split(",")]}
    if not re.fullmatch(r"\d+:\d+(:\d+)?", text):
        return None
    first, last, *step = (int(part) for part in text.split(":"))
    if not 1 <= first <= last or step == [0]:
        return None
    if step:
        return {"ks": list(range(first, last + 1, step[0]))}
    return {"k_min": first, "k_max": last}


@click.command("sweep", cls=SectionedCommand)
@click.argument("source")
@takes_source()
@option(
    "--k",
    "numbers",
    section=TRYING,
    type=NumbersOfClusters(),
    default="2:32",
    show_default=True,
    help="Numbers of clusters: FIRST:LAST, FIRST:LAST:STEP, or 4,8,16. Of a long range 24 are tried.",
)
@option(
    "--criterion",
    section=TRYING,
    type=click.Choice(("knee", "silhouette", "bic")),
    default="knee",
    show_default=True,
    help="By what the best is chosen; bic fits Gaussian mixtures.",
)
@option(
    "--seeds",
    section=TRYING,
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Fits of each number, of which the best counts.",
)
@option(
    "--coreset-size",
    section=TRYING,
    type=click.IntRange(min=1),
    help="Rows that the fits are made on. Default: 100 for each cluster, at least 10,000.",
)
@option(
    "--check",
    section=TRYING,
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="How many are measured on all rows, in one pass.",
)
@option(
    "--init",
    section=TRYING,
    type=click.Choice(METHODS),
    default="auto",
    show_default=True,
    help="How the first centres of a fit are chosen.",
)
@option(
    "--metric",
    section=TRYING,
    type=click.Choice(METRICS),
    default="euclidean",
    show_default=True,
    help="Distance; cosine is spherical k-means.",
)
@option(
    "--covariance-type",
    section=TRYING,
    type=click.Choice(COVARIANCE_TYPES),
    default="diag",
    show_default=True,
    help="Of the mixtures of --criterion bic.",
)
@option(
    "--random-state",
    section=TRYING,
    type=click.IntRange(min=0),
    help="Seed; the same seed gives the same table. Default: a fresh one.",
)
@option(
    "--output",
    section=OUTPUT,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Also write the table (.json) or the curves (.png, .svg; needs matplotlib).",
)
@overwrite_option
@takes_place
@takes_console
def command(
    source: str,
    numbers: dict[str, Any],
    seeds: int,
    coreset_size: int | None,
    output: str | None,
    overwrite: bool,
    opening: dict[str, Any],
    place: Place,
    console: Console,
    **settings: Any,
) -> None:
    """Fit several numbers of clusters to SOURCE and say which one is best.

    All fits are made on one small weighted sample, which takes two passes over the rows.
    """
    if output is not None:
        check_page(output, overwrite=overwrite, formats=SUFFIXES)
    from daskcluster.data.open import open_dataset
    from daskcluster.jobs.selection import select_k

    dataset = open_dataset(source, **opening)
    with place.open() as engine, console.watching() as callbacks:
        found = select_k(
            dataset,
            **numbers,
            n_seeds=seeds,
            coreset_size="auto" if coreset_size is None else coreset_size,
            engine=engine,
            callbacks=callbacks,
            **settings,
        )
    if output is not None:
        _write(found, output)
    if console.as_json:
        console.emit({**found.as_dict(), "output": output}, [])
    else:
        show(found, output)


def show(found: KSelection, output: str | None = None) -> None:
    """Print the table, the best number and what speaks against it."""
    from rich.console import Console as Terminal
    from rich.table import Table

    from daskcluster.host import format_bytes
    from daskcluster.reports.tables import format_seconds

    head, rows = found.texts()
    table = Table(box=None, pad_edge=False)
    for name in head:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row, style="bold" if row[0] == str(found.best_k) else None)
    terminal = Terminal(highlight=False)
    terminal.print(table)
    terminal.print(f"best      k={found.best_k} by {found.criterion}")
    for note in found.notes:
        terminal.print(f"note      {note}", markup=False)
    work = f"{found.passes}, {format_bytes(found.bytes_read)} read"
    terminal.print(f"passes    {work}, {format_seconds(found.seconds)}")
    if output is not None:
        terminal.print(f"written   {output}", markup=False)


def _write(found: KSelection, path: str) -> None:
    kind = os.path.splitext(path)[1].lower()
    if kind == ".json":
        content = json.dumps(found.as_dict(), allow_nan=False, indent=1).encode()
    else:
        written = io.BytesIO()
        found.plot().figure.savefig(written, format=kind[1:], dpi=150)
        content = written.getvalue()
    write_output(path, content)
