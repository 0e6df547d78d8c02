"""Flags of commands that run as jobs: ``--name`` and ``--detach``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from daskcluster.cli.engines import Place
from daskcluster.cli.options import WHERE, option, takes_console, takes_place
from daskcluster.cli.output import Console
from daskcluster.parameters.shared import METHODS

if TYPE_CHECKING:
    from distributed import Client

    from daskcluster.engine.dask import DaskEngine
    from daskcluster.engine.local import LocalEngine

_URLS = ("checkpoint", "state", "labels", "distances")


@dataclass(frozen=True)
class Task:
    """How and where a command runs its job: ``--name --detach``, its engine, and its output."""

    place: Place
    console: Console
    name: str | None = None
    detach: bool = False

    def run(
        self,
        job: Callable[..., Any],
        urls: Mapping[str, Any],
        options: Mapping[str, Any],
        opening: Mapping[str, Any],
        rows: Callable[[Mapping[str, Any]], Any],
        *,
        writes: Sequence[str] = ("output",),
        kinds: tuple[str, ...] = ("array",),
        within: AbstractContextManager[Any] | None = None,
    ) -> None:
        """Run the job here and print its record, or submit it with ``--detach``; see `submit`.

        Parameters
        ----------
        job, urls, options, opening
            See `submit`.
        rows : callable
            Makes lines of text of the record.
        writes : sequence of str
            Those of `urls` that are outputs, which are checked before a cluster is started.
        kinds : tuple of str
            What an output may replace.
        within : context manager, optional
            Holds around the job.
        """
        if self.detach:
            self.submit(job, urls, options, opening)
            return
        if writes and self.name is None:  # a job may replace its own outputs
            from daskcluster.jobs import check_outputs

            outputs = {name: urls[name] for name in writes}
            inputs = {name: urls[name] for name in ("source", "model") if name in urls}
            inputs = {n: url for n, url in inputs.items() if n not in writes}
            inputs |= {"weights": opening.get("weights")}
            stored, overwrite = opening["storage_options"], options["overwrite"]
            check_outputs(outputs, inputs, stored, overwrite, kinds=kinds)
        with (
            self.place.open() as engine,
            self.console.watching() as callbacks,
            within or nullcontext(),
        ):
            given = {**urls, **options, **opening, "name": self.name}
            record = job(**given, engine=engine, callbacks=callbacks).as_dict()
        self.console.emit(record, rows(record))

    def submit(
        self,
        job: Callable[..., Any],
        urls: Mapping[str, Any],
        options: Mapping[str, Any],
        opening: Mapping[str, Any] = {},
    ) -> None:
        """Submit the job to the cluster and print its name.

        Parameters
        ----------
        job : callable
        urls : mapping
            Arguments that are URLs or paths; made absolute, since workers have other working directories.
        options : mapping
            All other arguments.
        opening : mapping
            Arguments of `daskcluster.open_dataset`; weights may be a path.
        """
        from daskcluster import jobs
        from daskcluster.data.spec import looks_like_path

        given = {key: _absolute(url) for key, url in urls.items()}
        rows = dict(opening)
        weights = rows.get("weights")
        # Otherwise it names an array in the group of the rows, or a column of their table.
        if rows.get("array") is None and weights is not None and looks_like_path(weights):
            rows["weights"] = _absolute(weights)
        with self.place.open() as engine:
            future = jobs.submit(client_of(engine), job, name=self.name, **given, **options, **rows)
            name = self.name or future.key
        record = {"job": name, "scheduler": self.place.scheduler, **given}
        hint = f"daskcluster jobs status {name} --scheduler {self.place.scheduler}"
        self.console.emit(record, [("job", name), ("see", hint)])


def take_urls(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the parameters that are URLs from `given`, and return them."""
    names = [name for name in _URLS if given.get(name) is not None]
    if isinstance(given.get("init"), str) and given["init"] not in METHODS:
        names.append("init")
    return {name: given.pop(name) for name in names}


def _absolute(url: str | None) -> str | None:
    from daskcluster.storage.location import locate

    return None if url is None else locate(url).url


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
