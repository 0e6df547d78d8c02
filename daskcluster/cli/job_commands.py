"""The command of a job, made of its declaration."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pkgutil import resolve_name
from typing import Any

import click

from daskcluster.cli.detach import Task, takes_job
from daskcluster.cli.options import (
    OTHER,
    OUTPUT,
    SectionedCommand,
    complete_path,
    declared_option,
    option,
    overwrite_option,
    takes_source,
)
from daskcluster.cli.parameter_flags import AlgorithmCommand, given_parameters, parameter_options
from daskcluster.cli.signals import after_a_commit
from daskcluster.jobs.spec import JobSpec

_RESUME = "Resume from the state at --checkpoint, if there is one."


def job_command(spec: JobSpec) -> click.Command:
    """Return the command of a job."""

    def call(opening: dict[str, Any], task: Task, **values: Any) -> None:
        _run(spec, given_parameters(values) if spec.algorithms else values, opening, task)

    flags: list[Any] = [click.argument(n, shell_complete=complete_path) for n in spec.arguments]
    flags.append(takes_source(*spec.without))
    shown = [(getattr(each, "section", "") or OTHER, each) for each in spec.parameters]
    flags += [declared_option(each, section=at) for at, each in shown if at != OUTPUT]
    for output in spec.outputs:
        more = {"type": click.Path(dir_okay=False)} if output.is_local else {}
        metavar = "FILE" if output.is_local else "URL"
        name = f"--{output.name}"
        flags.append(option(name, section=OUTPUT, metavar=metavar, help=output.help, **more))
    flags += [declared_option(each, section=at) for at, each in shown if at == OUTPUT]
    flags += [overwrite_option] * bool(spec.outputs)
    if spec.algorithms is not None:
        flags.append(parameter_options(required=("n_clusters",), catalogue=spec.algorithms))
    if spec.keeps:
        flags.append(option("--checkpoint", section=OUTPUT, metavar="URL", help=spec.keeps))
    if spec.keeps or spec.resumes:
        help_of_resume = spec.resumes or _RESUME
        flags.append(option("--resume", section=OUTPUT, is_flag=True, help=help_of_resume))
    flags.append(takes_job)
    if spec.plan:
        flags.append(
            option("--dry-run", is_flag=True, help="Show passes, bytes and memory, then exit.")
        )
    for flag in reversed(flags):
        call = flag(call)
    kind = SectionedCommand if spec.algorithms is None else AlgorithmCommand
    return click.command(spec.name, cls=kind, help=spec.help)(call)


def _run(spec: JobSpec, given: dict[str, Any], opening: Mapping[str, Any], task: Task) -> None:
    if given.pop("dry_run", False):
        from daskcluster.cli.dry_run import show_plan

        show_plan(spec, {**given, **opening}, task)
        return
    needs = list(spec.needs)
    if spec.keeps:
        needs.append(("resume", "checkpoint", "the URL of the state to resume from"))
    for flag, other, why in needs:
        if given.get(flag) and given.get(other) is None:
            raise click.UsageError(f"--{flag} needs --{other}, {why}.")
    for output in spec.outputs:
        url = given.setdefault(output.name, None)
        if url is None and output.what:
            raise click.UsageError(f"Missing option '--{output.name}': the URL to {output.what}.")
        if url is not None and output.is_local and (task.detach or task.name is not None):
            raise click.UsageError(
                f"--{output.name} needs a job of this process: leave out --name and --detach, or "
                f"--{output.name}."
            )
        if url is not None and output.check:
            resolve_name(output.check)(url)
    task.run(spec, given, opening, within=_deferred(spec, given, task))


def _deferred(spec: JobSpec, given: Mapping[str, Any], task: Task) -> AbstractContextManager[None]:
    """Defer signals to a commit, where the job makes some: one with a name does, if its algorithm can."""
    known = spec.algorithms
    can = known is None or "checkpoint" in known.find(given["algorithm"]).parameters
    stored = given.get("checkpoint") is not None or (task.name is not None and can)
    return after_a_commit(wanted=spec.commits and stored)
