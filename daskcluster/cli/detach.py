"""Flags of commands that run as jobs: ``--name`` and ``--detach``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from daskcluster.cli.engines import Place
from daskcluster.cli.options import WHERE, option, takes_console, takes_place
from daskcluster.cli.output import Console
from daskcluster.jobs.spec import JobSpec
from daskcluster.parameters.shared import METHODS

if TYPE_CHECKING:
    from distributed import Client

    from daskcluster.engine.dask import DaskEngine
    from daskcluster.engine.local import LocalEngine


@dataclass(frozen=True)
class Task:
    """How and where a command runs its job: ``--name --detach``, its engine, and its output."""

    place: Place
    console: Console
    name: str | None = None
    detach: bool = False

    def run(
        self,
        spec: JobSpec,
        given: Mapping[str, Any],
        opening: Mapping[str, Any],
        *,
        within: AbstractContextManager[Any],
    ) -> None:
        """Run the job here and print its record, or submit it with ``--detach``; see `submit`.

        Parameters
        ----------
        spec : JobSpec
        given, opening : mapping
            Arguments of the job, and those of its rows.
        within : context manager
            Holds around the job.
        """
        from pkgutil import resolve_name

        job, values = resolve_name(spec.function), {**given, **opening}
        if self.detach:
            urls = [*spec.arguments, *spec.of_outputs(values), "checkpoint"]
            urls += ["init"] * (values.get("init", METHODS[0]) not in METHODS)
            self.submit(job, values, [each for each in urls if each in values])
            return
        if spec.outputs and self.name is None:  # a job may replace its own outputs
            from daskcluster.jobs.outputs import check_outputs

            inputs = {name: values.get(name) for name in (*spec.arguments, "weights")}
            outputs, kinds = spec.of_outputs(values), spec.kinds_of(values)
            stored, overwrite = values["storage_options"], values["overwrite"]
            check_outputs(outputs, inputs, stored, overwrite, kinds=kinds)
        with self.place.open() as engine, self.console.watching() as callbacks, within:
            record = job(**values, name=self.name, engine=engine, callbacks=callbacks).as_dict()
        self.console.emit(record, resolve_name(spec.lines)(record))

    def submit(
        self, job: Callable[..., Any], given: Mapping[str, Any], shown: Collection[str]
    ) -> None:
        """Submit the job to the cluster and print its name.

        Parameters
        ----------
        job : callable
        given : mapping
            Its arguments. Paths are made absolute, since workers have other working directories.
        shown : collection of str
            Names of the arguments that are printed.
        """
        from daskcluster import jobs
        from daskcluster.jobs.arguments import absolute

        given = absolute(given)
        with self.place.open() as engine:
            future = jobs.submit(client_of(engine), job, name=self.name, **given)
            name = self.name or future.key
        record = {"job": name, "scheduler": self.place.scheduler}
        record |= {each: given[each] for each in shown}
        hint = f"daskcluster jobs status {name} --scheduler {self.place.scheduler}"
        self.console.emit(record, [("job", name), ("see", hint)])


def client_of(engine: LocalEngine | DaskEngine) -> Client:
    """Return the client of the engine; raise if no scheduler was given."""
    client: Client | None = getattr(engine, "client", None)
    if client is None:
        raise click.UsageError("Missing option '--scheduler': the address of the scheduler.")
    return client


def takes_job(function: Callable[..., Any]) -> Any:
    """Add the flags of a job, its engine and its output to a command; pass them as ``task``, checked."""

    @wraps(function)
    def call(
        *arguments: Any,
        name: str | None,
        detach: bool,
        place: Place,
        console: Console,
        **values: Any,
    ) -> Any:
        if detach and not place.is_remote:
            raise click.UsageError(
                "--detach leaves the work to a Dask cluster: give its address with --scheduler."
            )
        return function(*arguments, task=Task(place, console, name, detach), **values)

    call = option(
        "--detach",
        section=WHERE,
        is_flag=True,
        help="Submit a job to --scheduler and return; see daskcluster jobs.",
    )(takes_console(call))
    call = option(
        "--name",
        section=WHERE,
        metavar="NAME",
        help="Name of the job. Run the same command with the same name to resume it.",
    )(call)
    return takes_place(call)
