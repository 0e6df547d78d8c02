"""``python -m tests.benchmarks calibrate``."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import click

from daskcluster.cli.options import (
    OUTPUT,
    SectionedCommand,
    option,
    overwrite_option,
    takes_console,
)
from daskcluster.cli.output import Console


@click.command("calibrate", cls=SectionedCommand)
@option(
    "--output",
    section=OUTPUT,
    metavar="FILE.json",
    required=True,
    help="Where to write the rates, for `python -m tests.benchmarks size --rates`.",
)
@overwrite_option
@takes_console
def command(output: str, overwrite: bool, console: Console) -> None:
    """Measure what passes, reading and Dask cost on this machine; takes about a minute.

    Nothing else should run meanwhile.
    """
    if os.path.exists(output) and not overwrite:
        raise click.UsageError(f"{output} exists; give --overwrite, or another --output.")
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
        costs = ", ".join(f"{value:.3g} s a {what}" for what, value in rates[name].items() if value)
        lines.append((name, f"{costs}; shapes differ by up to {100 * error:.0f} %"))
    lines.append(("decode", f"{1e-6 / rates['decode']:,.0f} MB a second"))
    for role in ("client", "scheduler", "worker"):
        found = rates[role]
        lines.append(
            (
                role,
                f"{1e3 * found['a_task']:.3g} ms a task, {1e6 * found['a_handle']:.3g} us a handle, "
                f"{1e9 * found['a_byte']:.3g} ns a byte",
            )
        )
    return lines
