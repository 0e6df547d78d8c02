"""The chart on README.md: the time of a Lloyd iteration by library, from the published table."""

from __future__ import annotations

from pathlib import Path

import click

from tests.benchmarks.harness.bars import Bars, draw_bars
from tests.published import DOCS, Table, first_number, published

NAME = "speed.svg"


def bars_of(table: Table) -> Bars:
    """Return the seconds of each library over ours, for each shape."""
    programs = table.header[2 : table.header.index("best peer / ours")]
    groups = {}
    for cells in table.lines:
        n, d, k = cells[0].split(", ")
        seconds = [first_number(cell) for cell in cells[2 : 2 + len(programs)]]
        times = {name: one / seconds[0] for name, one in zip(programs, seconds, strict=True)}
        groups[f"{n} x {d},\nk = {k}"] = times
    return Bars("time of an iteration / ours", groups)


@click.command("speed")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=DOCS / "images",
    metavar="DIR",
    help="Folder of the chart.",
)
def command(output: Path) -> None:
    """Draw the chart of README.md from the published table; measures nothing."""
    bars = bars_of(published("lloyd", "Seconds per Lloyd iteration"))
    drawn = draw_bars(NAME, "Time of a Lloyd iteration of each library", bars, output, line=1)
    click.echo(drawn.markdown())
