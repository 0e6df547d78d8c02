"""``daskcluster jobs``: list, show and cancel the jobs of a scheduler."""

from __future__ import annotations

import time
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import click

from daskcluster.cli.execution import Console, Place
from daskcluster.cli.options import SectionedCommand, takes_console, takes_place

if TYPE_CHECKING:
    from daskcluster.jobs.registry import JobStatus

_FOLLOW_SECONDS = 1.0


@click.group("jobs")
def jobs() -> None:
    """List, show and cancel jobs of a Dask scheduler: detached jobs and named ones."""


@jobs.command("list", cls=SectionedCommand)
@takes_place
@takes_console
def list_command(place: Place, console: Console) -> None:
    """List the jobs of the scheduler, the latest first."""
    from daskcluster.jobs import list_jobs

    with place.connect() as client:
        found = list_jobs(client)
    lines = []
    for job in found:
        parts = [f"{job.state:<9}", job.kind, job.output]
        parts += [f"iteration {job.iteration}"] if job.iteration else []
        parts += [] if job.rows_seen is None else [f"{job.rows_seen:,} rows"]
        lines.append((job.name, "  ".join(filter(None, parts))))
    console.emit({"jobs": [job.as_dict() for job in found]}, lines or [("no jobs", "")])


@jobs.command("status", cls=SectionedCommand)
@click.argument("name")
@takes_place
@takes_console
@click.option("--wait", is_flag=True, help="Wait for the end of the job; exit with 1 if it failed.")
def status_command(name: str, place: Place, console: Console, wait: bool) -> None:
    """Show the status of the job NAME."""
    from daskcluster import jobs
    from daskcluster.jobs.spec import spec_of

    with place.connect() as client:
        found = jobs.wait(client, name) if wait else jobs.status(client, name)
    console.emit(found.as_dict(), _rows_of_status(found))
    spec = spec_of(found.kind)
    # Their result is not, or not entirely, in their output.
    if (
        spec is not None
        and spec.name in ("sweep", "score")
        and found.record
        and not console.as_json
    ):
        console.emit({}, resolve_name(spec.lines)(found.record))
    if wait and found.state != "done":
        raise SystemExit(1)


@jobs.command("logs", cls=SectionedCommand)
@click.argument("name")
@takes_place
@takes_console
@click.option("--follow", is_flag=True, help="Print new lines until the job ends.")
def logs_command(name: str, place: Place, console: Console, follow: bool) -> None:
    """Show the last log lines of the job NAME."""
    from daskcluster import jobs

    with place.connect() as client:
        shown = jobs.logs(client, name)
        if console.as_json:
            lines = [{"time": stamp, "text": text} for stamp, text in shown]
            console.emit({"name": name, "lines": lines}, [])
            return
        newer = shown
        while True:
            for stamp, text in newer:
                local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stamp))
                click.echo(f"{local}  {text}")
            if not follow or jobs.status(client, name).is_over:
                return
            time.sleep(_FOLLOW_SECONDS)
            newer = [line for line in jobs.logs(client, name) if line not in shown]
            shown += newer


@jobs.command("cancel", cls=SectionedCommand)
@click.argument("name")
@takes_place
@takes_console
@click.option("--wait", is_flag=True, help="Wait until the job has stopped.")
def cancel_command(name: str, place: Place, console: Console, wait: bool) -> None:
    """Ask the job NAME to stop. Its checkpoint is kept; a job of the same name resumes from it."""
    from daskcluster import jobs

    with place.connect() as client:
        found = jobs.cancel(client, name)
        if wait:
            found = jobs.wait(client, name)
    outcome = "was over already" if found.is_over and not wait else "was asked to stop"
    rows = _rows_of_status(found) if wait else [(name, f"{outcome} ({found.state})")]
    console.emit(found.as_dict(), rows)


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
