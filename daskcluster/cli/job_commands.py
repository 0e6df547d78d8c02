"""The commands of jobs, made of their declarations, and those that show jobs of a scheduler and streams."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import click

from daskcluster.cli.console import Console, EngineOptions, reader_is_gone, tell
from daskcluster.cli.options import (
    DURATION,
    INPUT,
    OUTPUT,
    WHERE,
    AlgorithmCommand,
    SectionedCommand,
    complete_path,
    declared_option,
    given_parameters,
    option,
    overwrite_option,
    parameter_options,
    storage_option,
    takes_console,
    takes_engine,
    takes_source,
)
from daskcluster.jobs.spec import JobSpec
from daskcluster.parameters.shared import METHODS

if TYPE_CHECKING:
    from daskcluster.jobs.registry import JobStatus
    from daskcluster.methods.streaming.service import Cycle, StreamMetrics


_JOB_OPTIONS = (
    option(
        "--name",
        section=WHERE,
        metavar="NAME",
        help="Name of the job. Run the same command with the same name to resume it.",
    ),
    option(
        "--detach",
        section=WHERE,
        is_flag=True,
        help="Submit a job to --scheduler and return; see daskcluster jobs.",
    ),
)
_RESUME = "Resume from the state at --checkpoint, if there is one."


def job_command(spec: JobSpec) -> click.Command:
    """Return the command of a job."""
    catalogue = spec.catalogue

    def call(
        opening: dict[str, Any],
        engine_options: EngineOptions,
        console: Console,
        name: str | None,
        detach: bool,
        **values: Any,
    ) -> None:
        given = (values if catalogue is None else given_parameters(values)) | opening
        resolve_name(spec.task)(spec, engine_options, console, name, detach).carry_out(given)

    # Flags of the input come first, those of the output last.
    ranked = [(1, takes_source(*spec.without))]
    for each in spec.parameters:
        rank = {INPUT: 0, OUTPUT: 4}.get(getattr(each, "section", ""), 2)
        ranked.append((rank, declared_option(each)))
    for output in spec.outputs:
        settings: dict[str, Any] = {"metavar": output.metavar, "help": output.help}
        if output.metavar == "FILE":
            settings["type"] = click.Path(dir_okay=False)
        ranked.append((3, option(f"--{output.name}", section=OUTPUT, **settings)))
    decorators = [click.argument(n, shell_complete=complete_path) for n in spec.arguments]
    decorators += [flag for _, flag in sorted(ranked, key=itemgetter(0))]
    if spec.outputs and spec.replaces:
        decorators.append(overwrite_option)
    if catalogue is not None:
        decorators.append(parameter_options(required=("n_clusters",), catalogue=catalogue))
    if spec.keeps:
        decorators.append(option("--checkpoint", section=OUTPUT, metavar="URL", help=spec.keeps))
    if spec.keeps or spec.resumes:
        text = spec.resumes or _RESUME
        decorators.append(option("--resume", section=OUTPUT, is_flag=True, help=text))
    decorators += [takes_engine, *_JOB_OPTIONS, takes_console]
    if spec.plan:
        decorators.append(
            option("--dry-run", is_flag=True, help="Show passes, bytes and memory, then exit.")
        )
    for decorate in reversed(decorators):
        call = decorate(call)
    if catalogue is None:
        return click.command(spec.name, cls=SectionedCommand, help=spec.help)(call)
    command = click.command(spec.name, cls=AlgorithmCommand, help=spec.help)(call)
    command.catalogue = catalogue
    return command


@dataclass
class Task:
    """A job of a command: how and where it runs, and what is shown of it.

    Attributes
    ----------
    spec : JobSpec
    engine_options : EngineOptions
    console : Console
    name : str or None
        ``--name``.
    detach : bool
    """

    spec: JobSpec
    engine_options: EngineOptions
    console: Console
    name: str | None = None
    detach: bool = False

    def carry_out(self, given: dict[str, Any]) -> None:
        """Run the job, submit it with ``--detach``, or show its plan with ``--dry-run``.

        Parameters
        ----------
        given : dict
            Arguments of the job, and values of flags that the command alone has.
        """
        if self.detach and not self.engine_options.is_remote:
            raise click.UsageError(
                "--detach leaves the work to a Dask cluster: give its address with --scheduler."
            )
        spec, is_dry = self.spec, given.pop("dry_run", False)
        self.check(given)
        # A job with a name may replace its own outputs, and workers look at those of a detached one.
        is_seen = bool(spec.outputs) and spec.replaces and not self.detach
        if is_dry:
            from daskcluster.cli.dry_run import show_plan

            replaces = is_seen and (given["overwrite"] or self.name is not None)
            overwrite = replaces if is_seen else None
            show_plan(spec, given, self.engine_options, self.console, overwrite=overwrite)
            return
        for output in spec.outputs:
            if given[output.name] is None and output.what:
                raise click.UsageError(
                    f"Missing option '--{output.name}': the URL to {output.what}."
                )
        spec.check_urls(given)
        own = [each.name for each in spec.parameters if getattr(each, "is_local", False)]
        values = {name: value for name, value in given.items() if name not in own}
        if self.detach:
            self._submit(values)
            return
        if is_seen and self.name is None:
            from daskcluster.jobs.run import check_outputs_of

            check_outputs_of(spec, values, values["overwrite"])
        with self.running(given) as options:
            job = resolve_name(spec.function)
            record = job(**{**values, **options}, name=self.name).as_dict()
        self.show(record, given)

    def check(self, given: dict[str, Any]) -> None:
        """Raise for flags that contradict each other; bring others to what the job takes."""
        needs = list(self.spec.needs)
        if self.spec.keeps:
            needs.append(("resume", "checkpoint", "the URL of the state to resume from"))
        for flag, other, why in needs:
            if given.get(flag) and given.get(other) is None:
                raise click.UsageError(f"--{flag} needs --{other}, {why}.")
        for output in self.spec.outputs:
            given.setdefault(output.name, None)

    @contextmanager
    def running(self, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield what the job gets of this process: its engine and callbacks."""
        with self.engine_options.open() as engine, self.console.watching() as callbacks:
            yield {"engine": engine, "callbacks": callbacks}

    def show(self, record: dict[str, Any], given: Mapping[str, Any]) -> None:
        """Print the record of the job."""
        self.console.emit(record, resolve_name(self.spec.lines)(record))

    def _submit(self, given: Mapping[str, Any]) -> None:
        from daskcluster import jobs
        from daskcluster.jobs.identity import absolute

        spec = self.spec
        given = absolute(given)  # workers have other working directories
        shown = [*spec.arguments, *spec.of_outputs(given), "checkpoint"]
        shown += ["init"] * (given.get("init", METHODS[0]) not in METHODS)
        with self.engine_options.connect() as client:
            future = jobs.submit(client, resolve_name(spec.function), name=self.name, **given)
            name = self.name or future.key
        record = {"job": name, "scheduler": self.engine_options.scheduler}
        record |= {each: given[each] for each in shown if each in given}
        hint = f"daskcluster jobs status {name} --scheduler {self.engine_options.scheduler}"
        self.console.emit(record, [("job", name), ("see", hint)])


class SweepTask(Task):
    """A sweep, of which two flags are several arguments."""

    def check(self, given: dict[str, Any]) -> None:
        """Bring the flags to what `daskcluster.jobs.sweep` takes."""
        given |= given.pop("numbers")
        given["coreset_size"] = given["coreset_size"] or "auto"
        super().check(given)


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
        if self.detach and port is not None:
            raise click.UsageError(
                "--metrics-port works only in a loop of this process, but --detach runs the loop on the "
                "cluster; leave it out."
            )
        if given["settle"] is None:
            given["settle"] = 0.0 if every is None else _SETTLE
        super().check(given)

    @contextmanager
    def running(self, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield what the job gets of this process, with what hears its cycles."""
        from daskcluster.methods.streaming.service import HealthCheck, StreamMetrics

        rest, port = given.get("every") or 0.0, given.get("metrics_port")
        health_check = HealthCheck(given["stall_after"] or _STALL, rest=rest)
        with super().running(given) as options, ExitStack() as stack:
            metrics = None
            if port is not None:
                address = given["metrics_address"]
                metrics = stack.enter_context(closing(StreamMetrics(health_check, address, port)))
                tell(f"Metrics at http://{address}:{metrics.port}/metrics")
            options["callbacks"] = (*options["callbacks"], health_check)
            yield {**options, "heard": _teller(given["source"], metrics)}

    def show(self, record: dict[str, Any], given: Mapping[str, Any]) -> None:
        """Print nothing: every cycle was printed."""


def _teller(source: str, metrics: StreamMetrics | None) -> Callable[[Cycle], None]:
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
        click.echo(json.dumps(cycle.as_dict(), allow_nan=False))

    return heard


@click.command("stream-status", cls=SectionedCommand)
@click.argument("state")
@storage_option
@option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@option("--watch", type=DURATION, help="Refresh at this interval until interrupted: 5s, 1m.")
def stream_status(
    state: str, storage_options: dict[str, Any] | None, as_json: bool, watch: float | None
) -> None:
    """Show the status of the stream whose state is at STATE."""
    from daskcluster.methods.streaming.service import read_status

    while True:
        found = read_status(state, storage_options)
        if as_json:
            click.echo(json.dumps(found))
        else:
            text = "\n".join(f"{name:<14}  {value}" for name, value in rows_of_status(found))
            if watch is not None:
                click.clear()  # a terminal only
            click.echo(text)
        if watch is None or reader_is_gone():
            return
        time.sleep(watch)


def rows_of_status(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a status as names and values for display."""
    from daskcluster.reports.pages import rows_of_record

    drift, updated = found["drift"], datetime.fromtimestamp(found["updated"], UTC)
    rows = rows_of_record({**found, "updated": f"{updated:%Y-%m-%d %H:%M:%S} UTC"})
    if drift.get("ratio") is not None:
        high = ", HIGH" if drift["is_high"] else ""
        rows.append(("drift", f"{drift['ratio']:.3g} times the baseline{high}"))
    rows += [("odd", f"{count} {what}") for what, count in found["oddities"].items()]
    rows += [
        ("object", f"{each['name']}: {each['rows']:,} rows {each['note']}".rstrip())
        for each in found["last_objects"]
    ]
    return rows


_FOLLOW_SECONDS = 1.0
_OF_STATUS = (
    "name state kind output worker attempt iteration max_iter inertia rows_seen phase share error"
).split()


@click.group("jobs")
def jobs() -> None:
    """List, show and cancel jobs of a Dask scheduler: detached jobs and named ones."""


@jobs.command("list", cls=SectionedCommand)
@takes_engine
@takes_console
def list_command(engine_options: EngineOptions, console: Console) -> None:
    """List the jobs of the scheduler, the latest first."""
    from daskcluster.jobs import list_jobs

    with engine_options.connect() as client:
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
@takes_engine
@takes_console
@click.option("--wait", is_flag=True, help="Wait for the end of the job; exit with 1 if it failed.")
def status_command(name: str, engine_options: EngineOptions, console: Console, wait: bool) -> None:
    """Show the status of the job NAME."""
    from daskcluster import jobs
    from daskcluster.jobs.catalogue import spec_of

    with engine_options.connect() as client:
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
@takes_engine
@takes_console
@click.option("--follow", is_flag=True, help="Print new lines until the job ends.")
def logs_command(name: str, engine_options: EngineOptions, console: Console, follow: bool) -> None:
    """Show the last log lines of the job NAME."""
    from daskcluster import jobs

    with engine_options.connect() as client:
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
            if not follow or reader_is_gone() or jobs.status(client, name).is_over:
                return
            time.sleep(_FOLLOW_SECONDS)
            newer = [line for line in jobs.logs(client, name) if line not in shown]
            shown += newer


@jobs.command("cancel", cls=SectionedCommand)
@click.argument("name")
@takes_engine
@takes_console
@click.option("--wait", is_flag=True, help="Wait until the job has stopped.")
def cancel_command(name: str, engine_options: EngineOptions, console: Console, wait: bool) -> None:
    """Ask the job NAME to stop. Its checkpoint is kept; a job of the same name resumes from it."""
    from daskcluster import jobs

    with engine_options.connect() as client:
        found = jobs.cancel(client, name)
        if wait:
            found = jobs.wait(client, name)
    outcome = "was over already" if found.is_over and not wait else "was asked to stop"
    rows = _rows_of_status(found) if wait else [(name, f"{outcome} ({found.state})")]
    console.emit(found.as_dict(), rows)


def _rows_of_status(job: JobStatus) -> list[tuple[str, str]]:
    from daskcluster.reports.pages import rows_of_record

    return rows_of_record({name: getattr(job, name) for name in _OF_STATUS})
