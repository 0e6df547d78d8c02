"""What ``daskcluster stream`` adds to its job, and ``daskcluster stream-status``."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from daskcluster.cli.execution import tell
from daskcluster.cli.job_commands import Task
from daskcluster.cli.options import Duration, SectionedCommand, option, storage_option

if TYPE_CHECKING:
    from daskcluster.methods.streaming.service import Cycle, DriftCommand, StreamMetrics

_SETTLE, _STALL = 10.0, 1800.0
"""Seconds: of ``--settle`` if the source is polled, and of ``--stall-after``."""


class StreamTask(Task):
    """A stream, of which the command prints every cycle, and serves metrics."""

    def check(self, given: dict[str, Any]) -> None:
        """Raise for flags that contradict each other."""
        every, port = given.get("every"), given.get("metrics_port")
        if given["once"] and every is not None:
            raise click.UsageError(
                "--once polls once and --every repeatedly; give only one of them."
            )
        if given.get("stall_after") is not None and port is None:
            raise click.UsageError(
                "--stall-after needs --metrics-port, which serves /health; give both."
            )
        if self.detach and not (given.get("on_drift") is None and port is None):
            raise click.UsageError(
                "--on-drift and --metrics-port work only in a loop of this process, but --detach runs "
                "the loop on the cluster; leave them out."
            )
        given.setdefault("settle", 0.0 if every is None else _SETTLE)
        super().check(given)

    @contextmanager
    def running(self, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield what the job gets of this process, with what hears its cycles."""
        from daskcluster.methods.streaming.service import DriftCommand, HealthCheck, StreamMetrics

        rest, port = given.get("every") or 0.0, given.get("metrics_port")
        health_check, reaction = HealthCheck(given.get("stall_after", _STALL), rest=rest), None
        own: tuple[Any, ...] = (health_check,)
        if given.get("on_drift") is not None:
            reaction = DriftCommand(tuple(shlex.split(given["on_drift"])))
            own = (*own, reaction)
        with super().running(given) as options, ExitStack() as stack:
            metrics = None
            if port is not None:
                address = given["metrics_address"]
                metrics = stack.enter_context(closing(StreamMetrics(health_check, address, port)))
                tell(f"Metrics at http://{address}:{metrics.port}/metrics")
            options["callbacks"] = (*options["callbacks"], *own)
            yield {**options, "heard": _teller(given["source"], metrics, reaction)}

    def show(self, record: dict[str, Any], given: Mapping[str, Any]) -> None:
        """Print nothing: every cycle was printed."""


def _teller(
    source: str, metrics: StreamMetrics | None, reaction: DriftCommand | None
) -> Callable[[Cycle], None]:
    """Return the callback that reports every cycle."""
    reported: set[str] = set()
    is_first = True

    def heard(cycle: Cycle) -> None:
        nonlocal reported, is_first
        if is_first and not cycle.objects:
            tell(f"Nothing to read at {source!r} yet; check the folder and the pattern.")
        is_first = False
        if metrics is not None:
            metrics.update(cycle)
        lines = [f"{finding.oddity}: {finding.text}" for finding in cycle.findings]
        for line in lines:
            if line not in reported:  # report a persistent finding once
                tell(line)
        reported = set(lines)
        for drift in cycle.drifts:
            ratio = drift["ratio"] or 0.0
            tell(f"drift: the error of new rows is {ratio:.3g} times its baseline")
        while reaction is not None and reaction.failures:
            tell(f"Warning: {reaction.failures.pop()}")
        click.echo(json.dumps(cycle.as_dict(), allow_nan=False))

    return heard


@click.command("stream-status", cls=SectionedCommand)
@click.argument("state")
@storage_option
@option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@option("--watch", type=Duration(), help="Refresh at this interval until interrupted.")
def stream_status(
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
