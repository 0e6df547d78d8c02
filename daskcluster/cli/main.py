"""The command ``daskcluster``: imports commands when called, turns errors and signals into exit codes.

0 done, 1 failed, 2 bad usage, 130 interrupted, 143 terminated. Known errors are one line on stderr;
``--debug`` shows their traceback.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any

import click

from daskcluster import __version__
from daskcluster.errors import DaskClusterError
from daskcluster.interrupts import deferred
from daskcluster.jobs.spec import JOBS, declared_jobs

INTERRUPTED = 130
TERMINATED = 143
_MOMENT_SECONDS = 0.05


class Terminated(SystemExit):
    """SIGTERM was received: exit with the same clean-up as after an error."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


_ERRORS: Mapping[int, type[BaseException]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
}


def listen() -> None:
    """Turn SIGTERM into an exception, and Control-C into a quiet one.

    Containers are stopped with SIGTERM; partial outputs must be removed and worker processes stopped.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGTERM, _hear)
    # A shell makes background processes ignore Control-C; leave that as it is.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _hear)


def _hear(number: int, frame: FrameType | None) -> None:
    raise _error_of(number)


def _error_of(number: int) -> BaseException:
    leave_quietly()
    return _ERRORS[number]()


def leave_quietly() -> None:
    """Silence errors of half-constructed objects when they are freed after an interrupt."""
    sys.unraisablehook = _come_again
    warnings.simplefilter("ignore")


def _come_again(lost: sys.UnraisableHookArgs) -> None:
    # It was raised in a finalizer, where Python cannot propagate it: raise it again in a moment.
    main = threading.main_thread().ident
    for number in (one for one, error in _ERRORS.items() if lost.exc_type is error):
        again = threading.Timer(_MOMENT_SECONDS, signal.pthread_kill, [main, number])
        again.daemon = True
        again.start()


@contextmanager
def after_a_commit(*, wanted: bool) -> Iterator[None]:
    """If `wanted`, defer signals to the end of an iteration, where the fit commits its state."""
    if not wanted:
        yield
        return
    with deferred({signal.Signals(one): partial(_error_of, one) for one in _ERRORS}):
        yield


DEBUG = "daskcluster.debug"

COMMANDS = {
    "demo": "Generate a dataset, cluster it on a local Dask cluster, write a report.",
    "convert": "Convert files of rows, such as npy, csv, jsonl, parquet or arrow, to Zarr.",
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
"""Commands and their short help."""
_MODULES = {
    "datasets": ("convert", "shuffle", "info"),
    "reports": ("demo", "report"),
    "job_commands": ("jobs", "stream-status"),
    "warm_up": ("warm-up",),
}
"""Where the commands are that are no jobs."""


class Failure(click.ClickException):
    """A known failure, shown as one line."""

    def __init__(self, error: BaseException) -> None:
        notes = getattr(error, "__notes__", [])
        text = " ".join(" ".join([str(error) or type(error).__name__, *notes]).split())
        super().__init__(_in_flags(text))


class Commands(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        # Only other packages have more, and help is to import little.
        more = declared_jobs() if JOBS or os.environ.get("DASKCLUSTER_PRELOAD") else {}
        return list(dict.fromkeys((*COMMANDS, *more)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for module, names in _MODULES.items():
            if cmd_name in names:
                found = import_module(f"daskcluster.cli.{module}")
                command: click.Command = getattr(found, cmd_name.replace("-", "_"))
                return command
        if cmd_name not in declared_jobs():
            return None
        from daskcluster.cli.job_commands import job_command

        return job_command(declared_jobs()[cmd_name])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        about = {name: spec.about for name, spec in JOBS.items()} | COMMANDS
        with formatter.section("Commands"):
            formatter.write_dl([(name, about[name]) for name in names])

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
            click.echo(f"\n{_in_flags(text)}", err=True)
            ctx.exit(TERMINATED if is_terminated else INTERRUPTED)
        except (DaskClusterError, OSError, MemoryError) as error:
            if ctx.meta.get(DEBUG) or getattr(error, "errno", None) == errno.EPIPE:
                raise
            raise Failure(error) from error


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
