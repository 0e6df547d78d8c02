"""The command of a job, made of its declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pkgutil import resolve_name
from typing import Any

import click

from daskcluster.cli.execution import Console, Place
from daskcluster.cli.main import after_a_commit
from daskcluster.cli.options import (
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
    takes_console,
    takes_place,
    takes_source,
)
from daskcluster.jobs.spec import JobSpec
from daskcluster.parameters.shared import METHODS

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
        place: Place,
        console: Console,
        name: str | None,
        detach: bool,
        **values: Any,
    ) -> None:
        given = (values if catalogue is None else given_parameters(values)) | opening
        resolve_name(spec.task)(spec, place, console, name, detach).carry_out(given)

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
    decorators += [takes_place, *_JOB_OPTIONS, takes_console]
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
    place : Place
    console : Console
    name : str or None
        ``--name``.
    detach : bool
    """

    spec: JobSpec
    place: Place
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
        if self.detach and not self.place.is_remote:
            raise click.UsageError(
                "--detach leaves the work to a Dask cluster: give its address with --scheduler."
            )
        spec, is_dry = self.spec, given.pop("dry_run", False)
        self.check(given)
        is_new = bool(spec.outputs) and spec.replaces and self.name is None
        if is_dry:
            from daskcluster.cli.dry_run import show_plan

            show_plan(spec, given, self.place, self.console, is_new=is_new)
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
        if is_new:
            # A job may replace its own outputs.
            from daskcluster.jobs.run import check_outputs_of

            check_outputs_of(spec, values, values["overwrite"])
        # Signals wait for a commit where the job makes some: one with a name does, if its algorithm can.
        known = spec.catalogue
        can = known is None or "checkpoint" in known.find(values["algorithm"]).parameters
        stored = values.get("checkpoint") is not None or (self.name is not None and can)
        with (
            self.running(given) as options,
            after_a_commit(wanted=spec.commits and stored),
        ):
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
            url = given.setdefault(output.name, None)
            if url is not None and output.is_local and (self.detach or self.name is not None):
                raise click.UsageError(
                    f"--{output.name} needs a job of this process: leave out --name and --detach, or "
                    f"--{output.name}."
                )

    @contextmanager
    def running(self, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield what the job gets of this process: its engine and callbacks."""
        with self.place.open() as engine, self.console.watching() as callbacks:
            yield {"engine": engine, "callbacks": callbacks}

    def show(self, record: dict[str, Any], given: Mapping[str, Any]) -> None:
        """Print the record of the job."""
        self.console.emit(record, resolve_name(self.spec.lines)(record))

    def _submit(self, given: Mapping[str, Any]) -> None:
        from daskcluster import jobs
        from daskcluster.jobs.arguments import absolute

        spec = self.spec
        given = absolute(given)  # workers have other working directories
        shown = [*spec.arguments, *spec.of_outputs(given), "checkpoint"]
        shown += ["init"] * (given.get("init", METHODS[0]) not in METHODS)
        with self.place.connect() as client:
            future = jobs.submit(client, resolve_name(spec.function), name=self.name, **given)
            name = self.name or future.key
        record = {"job": name, "scheduler": self.place.scheduler}
        record |= {each: given[each] for each in shown if each in given}
        hint = f"daskcluster jobs status {name} --scheduler {self.place.scheduler}"
        self.console.emit(record, [("job", name), ("see", hint)])


class SweepTask(Task):
    """A sweep, of which two flags are several arguments."""

    def check(self, given: dict[str, Any]) -> None:
        """Bring the flags to what `daskcluster.jobs.sweep` takes."""
        given |= given.pop("numbers")
        given["coreset_size"] = given["coreset_size"] or "auto"
        super().check(given)
