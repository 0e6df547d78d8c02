"""``python -m tests.benchmarks calibrate``: measure the rates of this machine."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import click

from daskcluster.cli.console import Console
from daskcluster.cli.options import (
    OUTPUT,
    SectionedCommand,
    option,
    overwrite_option,
    takes_console,
)


@click.command("calibrate", cls=SectionedCommand)
@option(
    "--output",
    section=OUTPUT,
    metavar="FILE.json",
    required=True,
    help="File for the rates, for `python -m tests.benchmarks size --rates`.",
)
@overwrite_option
@takes_console
def command(output: str, overwrite: bool, console: Console) -> None:
    """Measure the cost of passes, reading and Dask on this machine, in about a minute.

    Run nothing else meanwhile.
    """
    if os.path.exists(output) and not overwrite:
        raise click.UsageError(f"{output} exists; pass --overwrite, or another --output.")
    from tests.benchmarks.scaling.model.calibrate import calibrate
    from tests.benchmarks.scaling.model.rates import save_rates

    def say(text: str) -> None:
        if console.progress is not False:
            click.echo(f"measuring: {text}", err=True)

    found = calibrate(say)
    save_rates(found.rates, output)
    record = {"output": output, "rates": asdict(found.rates), "errors": found.errors}
    console.emit(record, _lines(record))


def _lines(record: dict[str, Any]) -> list[tuple[str, str]]:
    rates, errors = record["rates"], record["errors"]
    lines = [("output", record["output"]), ("machine", rates["machine"])]
    for name, error in errors.items():
        costs = ", ".join(
            f"{value:.3g} s per {what}" for what, value in rates[name].items() if value
        )
        lines.append((name, f"{costs}; largest error over shapes {100 * error:.0f} %"))
    lines.append(("decode", f"{1e-6 / rates['decode']:,.0f} MB/s"))
    for role in ("client", "scheduler", "worker"):
        found = rates[role]
        lines.append(
            (
                role,
                f"{1e3 * found['a_task']:.3g} ms per task, {1e6 * found['a_handle']:.3g} us per handle, "
                f"{1e9 * found['a_byte']:.3g} ns per byte",
            )
        )
    return lines
