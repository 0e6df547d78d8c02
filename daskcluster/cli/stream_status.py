"""``daskcluster stream-status``."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from daskcluster.cli.options import SectionedCommand, option, storage_option
from daskcluster.cli.values import Duration


@click.command("stream-status", cls=SectionedCommand)
@click.argument("state")
@storage_option
@option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@option("--watch", type=Duration(), help="Refresh at this interval until interrupted.")
def command(
    state: str, storage_options: dict[str, Any] | None, as_json: bool, watch: float | None
) -> None:
    """Show the status of the stream whose state is at STATE."""
    from daskcluster.methods.streaming.service import read_status

    if as_json and watch is not None:
        raise click.UsageError("--watch shows a table, which --json cannot; give only one of them.")
    found = read_status(state, storage_options)
    if as_json:
        click.echo(json.dumps(found))
        return
    if watch is None:
        for name, value in rows_of_status(found):
            click.echo(f"{name:<14}  {value}")
        return
    from daskcluster.reports.progress import live_table

    with live_table(f"stream at {state}") as show:
        while True:
            show(rows_of_status(read_status(state, storage_options)))
            time.sleep(watch)


def rows_of_status(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a status as names and values for display."""
    drift, updated = found["drift"], datetime.fromtimestamp(found["updated"], UTC)
    rows = [
        ("algorithm", str(found["algorithm"])),
        ("rows seen", f"{found['rows_seen']:,}"),
        ("remembered", f"{found['remembered']:,.6g}"),
        ("objects", f"{found['objects']:,} ({found['rejected']} rejected)"),
        ("model", str(found["model"] or "none yet")),
        ("clusters", str(found["n_clusters"] or "")),
        ("last cycle", f"{updated:%Y-%m-%d %H:%M:%S} UTC, {found['new_rows']:,} rows"),
        ("", f"in {found['seconds']:.3g} s"),
    ]
    if drift.get("ratio") is not None:
        high = ", HIGH" if drift["is_high"] else ""
        rows.append(("drift", f"{drift['ratio']:.3g} times the baseline{high}"))
    rows += [("odd", f"{count} {what}") for what, count in found["oddities"].items()]
    rows += [
        ("object", f"{each['name']}: {each['rows']:,} rows {each['note']}".rstrip())
        for each in found["last_objects"]
    ]
    return rows
