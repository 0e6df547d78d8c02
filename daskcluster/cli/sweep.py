"""``daskcluster sweep``."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from typing import Any

import click

from daskcluster.cli.detach import Task, takes_job
from daskcluster.cli.options import (
    OUTPUT,
    SectionedCommand,
    complete_path,
    declared_option,
    option,
    overwrite_option,
    takes_source,
)
from daskcluster.cli.values import ParamType
from daskcluster.methods.coreset.parameters import CORESET_SIZE
from daskcluster.methods.mixture.parameters import COVARIANCE_TYPE
from daskcluster.parameters import shared

TRYING = "Candidates"
SUFFIXES = (".json", ".png", ".svg")


class NumbersOfClusters(ParamType):
    """FIRST:LAST, FIRST:LAST:STEP, or comma-separated numbers."""

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
@click.argument("source", shell_complete=complete_path)
@takes_source()
@option(
    "-k",
    "--k",
    "numbers",
    section=TRYING,
    type=NumbersOfClusters(),
    default="2:32",
    show_default=True,
    help="Numbers of clusters: FIRST:LAST, FIRST:LAST:STEP, or 4,8,16. A range of more than 32 is refined.",
)
@option(
    "--criterion",
    section=TRYING,
    type=click.Choice(("knee", "silhouette", "bic")),
    default="knee",
    show_default=True,
    help="Criterion of the best number; bic fits Gaussian mixtures.",
)
@option(
    "--seeds",
    section=TRYING,
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Fits per number; the best one counts.",
)
@declared_option(
    CORESET_SIZE,
    section=TRYING,
    default=None,
    show_default=False,
    help="Rows of the coreset that is fitted. Default: 100 per cluster, at least 10,000.",
)
@option(
    "--check",
    section=TRYING,
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="How many of the results to measure on all rows, in one pass.",
)
@declared_option(
    shared.INIT.varied(other=""),
    section=TRYING,
    help="How the first centres of a fit are chosen.",
)
@declared_option(shared.METRIC, section=TRYING)
@declared_option(
    COVARIANCE_TYPE, section=TRYING, default="diag", help="Covariance of the mixtures of bic."
)
@declared_option(
    shared.RANDOM_STATE,
    section=TRYING,
    help="Seed; the same seed gives the same table. Default: a fresh one.",
)
@option(
    "--output",
    section=OUTPUT,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Also write the table (.json, also a URL) or the curves (.png, .svg; needs matplotlib).",
)
@overwrite_option
@takes_job
def command(
    source: str,
    numbers: dict[str, Any],
    seeds: int,
    coreset_size: int | None,
    output: str | None,
    overwrite: bool,
    opening: dict[str, Any],
    task: Task,
    **settings: Any,
) -> None:
    """Fit several numbers of clusters to SOURCE and report the best one.

    All fits are made on one small weighted sample, which takes two passes over the rows.
    """
    is_drawn = output is not None and not output.endswith(".json")
    from daskcluster import jobs

    settings |= {**numbers, "n_seeds": seeds}
    settings["coreset_size"] = "auto" if coreset_size is None else coreset_size
    if task.detach:
        if is_drawn:
            raise click.UsageError(
                "--detach writes no curves: give --output a name that ends in .json, or leave it out "
                "and see the table with daskcluster jobs status."
            )
        own = {"source": source, "output": output, "overwrite": overwrite}
        task.submit(jobs.sweep, {**own, **settings, **opening}, ("source", "output"))
        return
    if output is not None and is_drawn:
        from daskcluster.reports.pages import check_output

        check_output(output, SUFFIXES, overwrite=overwrite)
    with task.place.open() as engine, task.console.watching() as callbacks:
        record = jobs.sweep(
            source,
            output=None if is_drawn else output,
            overwrite=overwrite,
            name=task.name,
            engine=engine,
            callbacks=callbacks,
            **settings,
            **opening,
        ).as_dict()
    if output is not None and is_drawn:
        _draw(record, output)
    if task.console.as_json:
        task.console.emit({**record, "output": output}, [])
    else:
        show({**record, "output": output})


def show(record: Mapping[str, Any]) -> None:
    """Print the table, the best number and its caveats."""
    from rich.console import Console as Terminal
    from rich.table import Table

    from daskcluster.host import format_bytes
    from daskcluster.reports.k_selection import KSelection
    from daskcluster.reports.tables import format_seconds

    found = KSelection.of(record)
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
    if record["output"] is not None:
        terminal.print(f"written   {record['output']}", markup=False)


def _draw(record: Mapping[str, Any], path: str) -> None:
    from daskcluster.reports.k_selection import KSelection
    from daskcluster.reports.pages import write_output

    drawn = io.BytesIO()
    kind = os.path.splitext(path)[1].lower()[1:]
    KSelection.of(record).plot().figure.savefig(drawn, format=kind, dpi=150)
    write_output(path, drawn.getvalue())
