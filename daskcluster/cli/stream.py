"""``daskcluster stream``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from daskcluster.cli.detach import Task, takes_job
from daskcluster.cli.options import (
    INPUT,
    OUTPUT,
    complete_path,
    option,
    takes_source,
)
from daskcluster.cli.parameter_flags import (
    AlgorithmCommand,
    given_parameters,
    parameter_options,
)
from daskcluster.cli.values import Duration
from daskcluster.methods.streaming.streams import STREAMS
from daskcluster.parameters.shared import METHODS

if TYPE_CHECKING:
    from daskcluster.methods.streaming.service import (
        Cycle,
        DriftCommand,
        HealthCheck,
        StreamMetrics,
    )

LOOP = "Loop"
SETTLE = 10.0
"""Default of ``--settle`` if the source is polled."""
STALL = 1800.0
"""Default of ``--stall-after`` in seconds."""


class StreamCommand(AlgorithmCommand):
    """A command that runs an algorithm for streams."""

    catalogue = STREAMS


@click.command("stream", cls=StreamCommand)
@click.argument("source", shell_complete=complete_path)
@option(
    "--order",
    section=INPUT,
    type=click.Choice(["name", "time"]),
    default="name",
    show_default=True,
    help="Order of objects that are present at the same time.",
)
@option(
    "--settle",
    section=INPUT,
    type=Duration(),
    help="Read an object once it has not changed for this time.  [default: 0 with --once, else 10s]",
)
@option(
    "--allow-missing",
    section=INPUT,
    is_flag=True,
    help="Read missing chunks as the fill value.",
)
@takes_source("flatten", "grid", "scale")
@option(
    "--state", section=OUTPUT, required=True, metavar="URL", help="URL of the state of the stream."
)
@option(
    "--labels",
    section=OUTPUT,
    metavar="URL",
    help="Also write the labels of new rows: one growing array, or one array per object.",
)
@option("--distances", section=OUTPUT, metavar="URL", help="Also write their distances.")
@option(
    "--once", section=LOOP, is_flag=True, help="Poll the source once.  [default without --every]"
)
@option("--every", section=LOOP, type=Duration(), help="Poll the source at this interval: 30s, 5m.")
@option(
    "--on-drift",
    section=LOOP,
    metavar="COMMAND",
    help="Run this command when new rows no longer fit; it receives details as JSON on standard input.",
)
@option(
    "--metrics-port",
    section=LOOP,
    type=click.IntRange(0, 65535),
    help="Serve Prometheus metrics and /health at this port (0: any free port).",
)
@option(
    "--metrics-address",
    section=LOOP,
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on.",
)
@option(
    "--stall-after",
    section=LOOP,
    type=Duration(),
    help="/health returns 503 after this time without work, not counting the wait between polls.  "
    "[default: 30m]",
)
@parameter_options(required=("n_clusters",), catalogue=STREAMS)
@takes_job
def command(
    source: str,
    once: bool,
    every: float | None,
    settle: float | None,
    on_drift: str | None,
    metrics_port: int | None,
    metrics_address: str,
    stall_after: float | None,
    opening: dict[str, Any],
    task: Task,
    **flags: Any,
) -> None:
    """Keep a model of SOURCE up to date: read every row once, optionally forget old ones.

    SOURCE is a Zarr array that grows, a folder or prefix to which Zarr arrays, groups and Parquet files are
    added, or a pattern of their names. The last line of stdout is one JSON object, with "rows_seen" and
    "model_version".
    """
    if once and every is not None:
        raise click.UsageError("--once polls once and --every repeatedly; give only one of them.")
    if stall_after is not None and metrics_port is None:
        raise click.UsageError(
            "--stall-after needs --metrics-port, which serves /health; give both."
        )
    from daskcluster import jobs
    from daskcluster.methods.streaming.service import DriftCommand, HealthCheck

    given = given_parameters(flags)
    given["settle"] = (0.0 if every is None else SETTLE) if settle is None else settle
    if task.detach:
        if on_drift is not None or metrics_port is not None:
            raise click.UsageError(
                "--on-drift and --metrics-port work only in a loop of this process, but --detach runs "
                "the loop on the cluster; leave them out."
            )
        shown = ["source", "checkpoint", "state", "labels", "distances"]
        shown += ["init"] * (given.get("init", METHODS[0]) not in METHODS)
        every_argument = {"source": source, "every": every, **given, **opening}
        task.submit(jobs.stream, every_argument, [each for each in shown if each in every_argument])
        return
    reaction = None if on_drift is None else DriftCommand(tuple(shlex.split(on_drift)))
    health_check = HealthCheck(STALL if stall_after is None else stall_after, rest=every or 0.0)
    own = (health_check,) if reaction is None else (health_check, reaction)
    with (
        task.place.open() as engine,
        task.console.watching() as callbacks,
        _served(metrics_port, metrics_address, health_check) as metrics,
    ):
        jobs.stream(
            source,
            every=every,
            heard=_teller(source, metrics, reaction),
            name=task.name,
            engine=engine,
            callbacks=(*callbacks, *own),
            **given,
            **opening,
        )


@contextmanager
def _served(
    port: int | None, address: str, health_check: HealthCheck
) -> Iterator[StreamMetrics | None]:
    """Yield the server of metrics and health at a port; None if no port is given."""
    if port is None:
        yield None
        return
    from daskcluster.methods.streaming.service import StreamMetrics

    with closing(StreamMetrics(health_check, address, port)) as metrics:
        click.echo(f"Metrics at http://{address}:{metrics.port}/metrics", err=True)
        yield metrics


def _teller(
    source: str, metrics: StreamMetrics | None, reaction: DriftCommand | None
) -> Callable[[Cycle], None]:
    """Return the callback that reports every cycle."""
    reported: set[str] = set()
    is_first = True

    def heard(cycle: Cycle) -> None:
        nonlocal reported, is_first
        if is_first and not cycle.objects:
            click.echo(
                f"Nothing to read at {source!r} yet; check the folder and the pattern.", err=True
            )
        is_first = False
        if metrics is not None:
            metrics.update(cycle)
        lines = [f"{finding.oddity}: {finding.text}" for finding in cycle.findings]
        for line in lines:
            if line not in reported:  # report a persistent finding once
                click.echo(line, err=True)
        reported = set(lines)
        for drift in cycle.drifts:
            ratio = drift["ratio"] or 0.0
            click.echo(f"drift: the error of new rows is {ratio:.3g} times its baseline", err=True)
        while reaction is not None and reaction.failures:
            click.echo(f"Warning: {reaction.failures.pop()}", err=True)
        click.echo(json.dumps(cycle.as_dict(), allow_nan=False))

    return heard
