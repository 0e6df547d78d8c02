"""``daskcluster score``."""

from __future__ import annotations

from typing import Any

import click

from daskcluster.cli.engines import Place
from daskcluster.cli.options import takes_console, takes_place, takes_source
from daskcluster.cli.output import Console
from daskcluster.cli.sections import SectionedCommand


@click.command("score", cls=SectionedCommand)
@click.argument("model")
@click.argument("source")
@takes_source()
@takes_place
@takes_console
def command(
    model: str, source: str, opening: dict[str, Any], place: Place, console: Console
) -> None:
    """Sum of squared distances of the rows of SOURCE to the centres of MODEL, in one pass."""
    from daskcluster import jobs
    from daskcluster.reports.tables import rows_of_record

    with place.open() as engine, console.watching() as callbacks:
        record = jobs.score(model, source, engine=engine, callbacks=callbacks, **opening).as_dict()
    console.emit(record, rows_of_record(record))
