"""The command ``daskcluster``: imports commands when called, turns errors and signals into exit codes.

0 done, 1 failed, 2 bad usage, 3 done but a check that was asked for did not hold, 130 interrupted,
143 terminated. Known errors are one line on stderr;
``--debug`` shows their traceback.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import Any

import click

from daskcluster import __version__
from daskcluster.cli.console import (
    DEBUG,
    INTERRUPTED,
    TERMINATED,
    Failure,
    Terminated,
    in_flags,
    leave_quietly,
    listen,
    secure_streams,
)
from daskcluster.errors import DaskClusterError
from daskcluster.jobs.spec import JOBS

COMMANDS = {
    "demo": "Generate a dataset, cluster it on a local Dask cluster, write a report.",
    "convert": "Convert files of rows, such as npy, csv, parquet or arrow, to Zarr.",
    "shuffle": "Write rows in random order, in bounded memory.",
    "info": "Describe a dataset or a model.",
    "fit": "Cluster a dataset and save the model.",
    "coreset": "Draw a small weighted sample that represents all rows.",
    "sample": "Draw rows evenly from the clusters of a model.",
    "dedup": "Find near-duplicates, and write which rows to keep.",
    "partition": "Divide rows into partitions of an index, of nearly equal sizes.",
    "predict": "Write the label of every row under a model.",
    "score": "Compute the sum of squared distances of a dataset under a model.",
    "sweep": "Fit several numbers of clusters and report the best one.",
    "stream": "Keep a model of a growing source up to date.",
    "stream-status": "Show the status of a stream.",
    "report": "Write a report on a model.",
    "warm-up": "Compile kernels before the first fit needs them.",
    "jobs": "List, show and cancel jobs on a Dask scheduler.",
}
"""Commands and their short help."""
_MODULES = {
    "commands": ("convert", "shuffle", "info", "demo", "report"),
    "job_commands": ("jobs", "stream-status"),
    "warm_up": ("warm-up",),
}
"""Where the commands are that are no jobs."""


class Commands(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        # Only other packages have more, and help is to import little.
        if JOBS or os.environ.get("DASKCLUSTER_PRELOAD"):
            import_module("daskcluster.jobs.catalogue")
        return list(dict.fromkeys((*COMMANDS, *JOBS)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for module, names in _MODULES.items():
            if cmd_name in names:
                found = import_module(f"daskcluster.cli.{module}")
                command: click.Command = getattr(found, cmd_name.replace("-", "_"))
                return command
        from daskcluster.jobs.catalogue import declared_jobs

        if cmd_name not in declared_jobs():
            return None
        from daskcluster.cli.job_commands import job_command

        return job_command(declared_jobs()[cmd_name])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        about = {name: spec.about for name, spec in JOBS.items()} | COMMANDS
        with formatter.section("Commands"):
            formatter.write_dl([(name, about[name]) for name in names])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        secure_streams()
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        listen()
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_, **__: click.echo(
                    f"Warning: {' '.join(str(message).split())}", err=True
                )
                return super().invoke(ctx)
        except (KeyboardInterrupt, Terminated) as error:
            leave_quietly()
            is_terminated = isinstance(error, Terminated)
            what = "Terminated" if is_terminated else "Interrupted"
            notes = getattr(error, "__notes__", [])
            text = " ".join([f"{what}; no half-written output was left.", *notes])
            click.echo(f"\n{in_flags(text)}", err=True)
            ctx.exit(TERMINATED if is_terminated else INTERRUPTED)
        except (DaskClusterError, OSError, MemoryError) as error:
            if ctx.meta.get(DEBUG):
                raise
            raise Failure(error) from error


@click.group("daskcluster", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="daskcluster")
def main() -> None:
    """Cluster data larger than memory, on one machine or on a Dask cluster.

    Sources and outputs are paths or URLs (s3://, gs://, abfs://, memory://). Start with "daskcluster demo".
    """
