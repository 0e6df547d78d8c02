"""``daskcluster score``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from daskcluster.cli.detach import Task, takes_job
from daskcluster.cli.options import (
    SectionedCommand,
    complete_path,
    declared_option,
    option,
    takes_source,
)
from daskcluster.errors import InvalidParameterError
from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import MEASURES, check_measures

WHAT = "Measures"


def _names(ctx: click.Context, param: click.Parameter, text: str) -> tuple[str, ...]:
    given = [name.strip() for name in text.split(",") if name.strip()]
    try:
        return tuple(MEASURES) if given == ["all"] else check_measures(given)
    except InvalidParameterError as error:
        raise click.BadParameter(str(error), ctx, param) from error


@click.command("score", cls=SectionedCommand)
@click.argument("model", shell_complete=complete_path)
@click.argument("source", shell_complete=complete_path)
@takes_source("scale")
@option(
    "--metrics",
    section=WHAT,
    metavar="NAMES",
    default="",
    callback=_names,
    help="Also measure MODEL's clustering of these rows: all, or a comma-separated list of: "
    + "; ".join(f"{name}: {about}" for name, about in MEASURES.items())
    + ".",
)
@option(
    "--sample-size",
    section=WHAT,
    type=click.IntRange(min=3),
    default=10_000,
    show_default=True,
    help="Rows sampled for the silhouette; all rows if there are fewer.",
)
@declared_option(shared.RANDOM_STATE, section=WHAT, help="Seed of the sample for the silhouette.")
@takes_job
def command(
    model: str,
    source: str,
    metrics: tuple[str, ...],
    sample_size: int,
    random_state: int | None,
    opening: dict[str, Any],
    task: Task,
) -> None:
    """Compute the inertia of MODEL on SOURCE: the sum of squared distances to its centres, in one pass.

    With --metrics, also how compact and how far apart the clusters are that MODEL makes of these rows.
    """
    from daskcluster import jobs

    measured: dict[str, Any] = {
        "metrics": metrics,
        "sample_size": sample_size,
        "random_state": random_state,
    }
    urls = {"model": model, "source": source}
    task.run(jobs.score, urls, measured, opening, rows_of_score, writes=())


def rows_of_score(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines with the measured values."""
    from daskcluster.reports.tables import rows_of_record

    measured = [
        (name.replace("-", " "), f"{value:.6g}")
        for name, value in (record["metrics"] or {}).items()
    ]
    return [*rows_of_record(record), *measured]
