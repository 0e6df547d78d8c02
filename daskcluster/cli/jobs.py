"""``daskcluster jobs``: list, show and cancel the jobs of a scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from daskcluster.cli.detach import client_of
from daskcluster.cli.engines import Place
from daskcluster.cli.options import SectionedCommand, takes_console, takes_place
from daskcluster.cli.output import Console, emit

if TYPE_CHECKING:
    from distributed import Client

    from daskcluster.jobs.registry import JobStatus

_FOLLOW_SECONDS = 1.0


@click.group("jobs")
def command() -> None:
    """List, show and cancel jobs of a Dask scheduler: detached jobs and named ones."""


@contextmanager
def connected(place: Place) -> Iterator[Client]:
    """Yield a client of the given scheduler."""
    with place.open() as engine:
        yield client_of(engine)


@command.command("list", cls=SectionedCommand)
@takes_place
@takes_console
def list_command(place: Place, console: Console) -> None:
    """List the jobs of the scheduler, the latest first."""
    from daskcluster import jobs

    with connected(place) as client:
        found = jobs.list_jobs(client)
    lines = [(job.name, _in_short(job)) for job in found] or [("no jobs", "")]
    console.emit({"jobs": [job.as_dict() for job in found]}, lines)


@command.command("status", cls=SectionedCommand)
@click.argument("name")
@takes_place
@takes_console
@click.option("--wait", is_flag=True, help="Wait for the end of the job; exit with 1 if it failed.")
def status_command(name: str, place: Place, console: Console, wait: bool) -> None:
    """Show the status of the job NAME."""
    from daskcluster import jobs

    with connected(place) as client:
        found = jobs.wait(client, name) if wait else jobs.status(client, name)
    console.emit(found.as_dict(), _rows_of_status(found))
    if found.record is not None and not console.as_json:
        _show_record(found.kind, found.record)
    if wait and found.state != "done":
        raise SystemExit(1)


@command.command("logs", cls=SectionedCommand)
@click.argument("name")
@takes_place
@takes_console
@click.option("--follow", is_flag=True, help="Print new lines until the job ends.")
def logs_command(name: str, place: Place, console: Console, follow: bool) -> None:
    """Show the last log lines of the job NAME."""
    from daskcluster import jobs

    with connected(place) as client:
        shown = jobs.logs(client, name)
        if console.as_json:
            lines = [{"time": stamp, "text": text} for stamp, text in shown]
            console.emit({"name": name, "lines": lines}, [])
            return
        _show(shown)
        while follow and not jobs.status(client, name).is_over:
            time.sleep(_FOLLOW_SECONDS)
            newer = [line for line in jobs.logs(client, name) if line not in shown]
            _show(newer)
            shown += newer


@command.command("cancel", cls=SectionedCommand)
@click.argument("name")
@takes_place
@takes_console
@click.option("--wait", is_flag=True, help="Wait until the job has stopped.")
def cancel_command(name: str, place: Place, console: Console, wait: bool) -> None:
    """Ask the job NAME to stop. Its checkpoint is kept; a job of the same name resumes from it."""
    from daskcluster import jobs

    with connected(place) as client:
        found = jobs.cancel(client, name)
        if wait:
            found = jobs.wait(client, name)
    outcome = "was over already" if found.is_over and not wait else "was asked to stop"
    rows = _rows_of_status(found) if wait else [(name, f"{outcome} ({found.state})")]
    console.emit(found.as_dict(), rows)


def _show_record(kind: str, record: Mapping[str, Any]) -> None:
    """Show the record of a job whose result is not, or not entirely, in its output."""
    if kind == "sweep":
        from daskcluster.cli.sweep import show

        show(record)
    if kind == "score":
        from daskcluster.jobs.lines import lines_of_score

        emit({}, lines_of_score(record), as_json=False)


def _show(lines: list[tuple[float, str]]) -> None:
    for stamp, text in lines:
        click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(stamp))}  {text}")


def _in_short(job: JobStatus) -> str:
    parts = [f"{job.state:<9}", job.kind, job.output]
    if job.iteration:
        parts.append(f"iteration {job.iteration}")
    if job.rows_seen is not None:
        parts.append(f"{job.rows_seen:,} rows")
    return "  ".join(part for part in parts if part)


def _rows_of_status(job: JobStatus) -> list[tuple[str, str]]:
    found: dict[str, Any] = {
        "job": job.name,
        "state": job.state,
        "kind": job.kind,
        "output": job.output,
        "worker": job.worker,
        "attempt": job.attempt if job.attempt > 1 else "",
        "iteration": "" if job.iteration is None else f"{job.iteration} of {job.max_iter}",
        "inertia": "" if job.inertia is None else f"{job.inertia:.8g}",
        "rows seen": "" if job.rows_seen is None else f"{job.rows_seen:,}",
        "at": "" if job.share is None or job.is_over else f"{job.phase}, {job.share:.0%}",
        "error": job.error,
    }
    return [(name, str(value)) for name, value in found.items() if value != ""]
