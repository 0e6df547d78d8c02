"""The command ``daskcluster``: imports commands when they are called, turns errors into exit codes.

0 done, 1 failed, 2 bad usage, 130 interrupted, 143 terminated. Known errors are one line on stderr;
``--debug`` shows their traceback.
"""

from __future__ import annotations

import errno
import re
import warnings
from importlib import import_module
from typing import Any

import click

from daskcluster import __version__
from daskcluster.cli.signals import (
    INTERRUPTED,
    TERMINATED,
    Terminated,
    farewell,
    leave_quietly,
    listen,
)
from daskcluster.errors import DaskClusterError
from daskcluster.jobs.spec import declared_jobs

DEBUG = "daskcluster.debug"

COMMANDS = {
    "demo": "Generate a dataset, cluster it on a local Dask cluster, write a report.",
    "convert": "Convert npy, npz, csv or parquet files to Zarr.",
    "shuffle": "Write rows in random order, in bounded memory.",
    "info": "Describe a dataset or a model.",
    "fit": "Cluster a dataset and save the model.",
    "coreset": "Draw a small weighted sample that represents all rows.",
    "sample": "Draw rows evenly from the clusters of a model.",
    "dedup": "Find near-duplicates, and write which rows to keep.",
    "partition": "Divide rows into partitions of an index, of nearly equal sizes.",
    "predict": "Write the label of every row to Zarr.",
    "score": "Compute the sum of squared distances of a dataset under a model.",
    "sweep": "Fit several numbers of clusters and report the best one.",
    "stream": "Keep a model of a growing source up to date.",
    "stream-status": "Show the status of a stream.",
    "report": "Write a report on a model.",
    "warm-up": "Compile kernels before the first fit needs them.",
    "jobs": "List, show and cancel jobs on a Dask scheduler.",
}
"""Commands and their short help; each has a module of the same name (with _ for -), or is a job."""


class Failure(click.ClickException):
    """A known failure, shown as one line."""

    def __init__(self, error: BaseException) -> None:
        notes = getattr(error, "__notes__", [])
        text = " ".join(" ".join([str(error) or type(error).__name__, *notes]).split())
        super().__init__(_in_flags(text))


class Commands(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(dict.fromkeys((*COMMANDS, *declared_jobs())))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in declared_jobs():
            from daskcluster.cli.job_commands import job_command

            return job_command(declared_jobs()[cmd_name])
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(
            f"daskcluster.cli.{cmd_name.replace('-', '_')}"
        ).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table above, so that help imports no command.
        with formatter.section("Commands"):
            about = {name: spec.about for name, spec in declared_jobs().items()} | COMMANDS
            formatter.write_dl([(name, about[name]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        listen()
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except (KeyboardInterrupt, Terminated) as error:
            leave_quietly()
            click.echo(f"\n{_in_flags(farewell(error))}", err=True)
            ctx.exit(TERMINATED if isinstance(error, Terminated) else INTERRUPTED)
        except (DaskClusterError, OSError, MemoryError) as error:
            if ctx.meta.get(DEBUG) or getattr(error, "errno", None) == errno.EPIPE:
                raise
            raise Failure(error) from error


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"Warning: {' '.join(str(message).split())}", err=True)


def _in_flags(text: str) -> str:
    # Texts of the library name arguments; replace these by flags.
    text = re.sub(r"overwrite=True( \(--overwrite\))?", "--overwrite", text)
    return text.replace("resume=True", "--resume")


@click.group("daskcluster", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="daskcluster")
def main() -> None:
    """Cluster data larger than memory, on one machine or on a Dask cluster.

    Sources and outputs are paths or URLs (s3://, gs://, abfs://, memory://). Start with "daskcluster demo".
    """
