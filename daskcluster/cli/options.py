"""Flags that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from daskcluster.cli.engines import Place
from daskcluster.cli.main import DEBUG
from daskcluster.cli.output import QUIET, Console
from daskcluster.cli.values import Size, StorageOption, click_type, gather_options
from daskcluster.parameters.parameter import Parameter

OTHER = "Options"
_PATHS = re.compile(r"\b(URL|FILE|DIR)\b")


class SectionedOption(click.Option):
    """An option with a section."""

    def __init__(self, *arguments: Any, section: str = OTHER, **settings: Any) -> None:
        if _PATHS.search(settings.get("metavar") or ""):
            settings.setdefault("shell_complete", complete_path)
        super().__init__(*arguments, **settings)
        self.section = section


class SectionedCommand(click.Command):
    """A command whose help lists options by section, in the order in which sections appear."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            line = parameter.get_help_record(ctx)
            if line is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "section", OTHER), []).append(line)
        # Options without a section, such as --help, come last.
        last = sections.pop(OTHER, [])
        for name, lines in [*sections.items(), *([(OTHER, last)] if last else [])]:
            with formatter.section(name):
                formatter.write_dl(lines)


def option(*names: str, section: str = OTHER, **settings: Any) -> Any:
    """Return the decorator of `click.option`, for an option in `section`."""
    return click.option(*names, cls=SectionedOption, section=section, **settings)


def declared_option(parameter: Parameter, *, section: str = OTHER, **settings: Any) -> Any:
    """Return the decorator for the flag of `parameter`; `settings` override its fields."""
    default = parameter.default
    said: dict[str, Any] = {"help": parameter.help}
    said |= {"is_flag": True} if parameter.kind is bool else {"type": click_type(parameter)}
    if parameter.kind is not bool and default is not None:
        said |= {"default": default, "show_default": default != ()}
    if getattr(parameter, "metavar", ""):
        said["metavar"] = parameter.metavar  # type: ignore[attr-defined]
    return option(parameter.flag, section=section, **{**said, **settings})


F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]

INPUT = "Input"
OUTPUT = "Output"
WHERE = "Execution"
SHOWN = "Display"


def _set_debug(ctx: click.Context, param: Any, value: bool) -> None:
    ctx.meta[DEBUG] = value


def _set_quiet(ctx: click.Context, param: Any, value: bool) -> None:
    ctx.meta[QUIET] = value


def complete_path(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete a path."""
    return [CompletionItem(incomplete, type="file")]


def _decorate(*options: Decorator[Any]) -> Decorator[Any]:
    def decorate(function: F) -> F:
        for each in reversed(options):
            function = each(function)
        return function

    return decorate


def _split_names(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _input(*names: str, **settings: Any) -> Any:
    return option(*names, section=INPUT, **settings)


storage_option = _input(
    "--storage-option",
    "storage_options",
    type=StorageOption(),
    multiple=True,
    callback=gather_options,
    help="Option of the file system, e.g. endpoint_url=http://host:9000, anon=true or "
    "client_kwargs.region_name=eu-west-1; repeatable. Secrets come from the environment.",
)

ROWS: dict[str, tuple[Decorator[Any], ...]] = {
    "array": (_input("--array", metavar="NAME", help="Name of the array in a Zarr group."),),
    "weights": (
        _input(
            "--weights",
            metavar="NAME|URL",
            help="Row weights: the name of an array in the same group or of a column of the same table, "
            "or a URL.",
        ),
    ),
    "flatten": (
        _input(
            "--flatten",
            is_flag=True,
            help="Flatten arrays of shape (..., features), such as rasters, to rows.",
        ),
    ),
    "storage_options": (storage_option,),
    "columns": (
        _input(
            "--columns",
            metavar="A,B,...",
            callback=_split_names,
            help="Columns of a table that are features: numbers, or lists of numbers. Default: its one "
            "list column, else all.",
        ),
        _input(
            "--drop",
            metavar="A,B,...",
            callback=_split_names,
            help="Columns of a table that are no features.",
        ),
        _input(
            "--id-column",
            metavar="NAME",
            help="Column of a table that names its rows: no feature, and written next to labels.",
        ),
        _input(
            "--nulls",
            type=click.Choice(("error", "drop")),
            help="An older name of --missing drop.",
        ),
    ),
    "missing": (
        _input(
            "--missing",
            type=click.Choice(("error", "drop", "mean", "partial")),
            help="Rows that lack a value (NaN, null, masked): an error (the default, unless the fit of "
            "MODEL left them out), left out, filled with means, or partial distances (k-means).",
        ),
    ),
    "grid": (
        _input(
            "--features",
            metavar="DIM,...",
            callback=_split_names,
            help="Of a grid, such as a raster: names or numbers of the dimensions that hold the features.",
        ),
        _input(
            "--nodata",
            type=float,
            help="Of a grid: the value of cells without data, which are left out; nan for NaN alone.",
        ),
    ),
    "decode": (
        _input(
            "--decode/--no-decode",
            default=None,
            help="Whether attributes of a stored array, such as scale_factor, decode its numbers. Default: "
            "they do.",
        ),
    ),
    "scale": (
        _input(
            "--scale",
            type=click.Choice(("standard", "minmax")),
            help="Scale the features first; the scaling takes one pass and is saved in models.",
        ),
    ),
}
"""Flags by the arguments of jobs and of `daskcluster.open_dataset` that they make."""


def takes_source(*without: str) -> Decorator[Any]:
    """Add the flags of a source to a command; pass them as ``opening``, arguments of jobs.

    Parameters
    ----------
    *without : {"array", "weights", "flatten", "columns", "missing", "grid", "decode", "scale"}
        What the command does not have.
    """
    names = [name for name in ROWS if name not in without]

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*arguments: Any, **values: Any) -> Any:
            if "columns" in names:
                table = {
                    each: values.pop(each) for each in ("columns", "drop", "id_column", "nulls")
                }
                values["columns"] = {each: value for each, value in table.items() if value} or None
            if "grid" in names:
                axes, nodata = values.pop("features") or (), values.pop("nodata")
                found = [int(each) if each.lstrip("-").isdecimal() else each for each in axes]
                grid = {"features": found} if found else {}
                values["grid"] = grid | ({} if nodata is None else {"nodata": nodata}) or None
            opening = {name: values.pop(name) for name in names}
            if opening.get("missing") is None:  # each job has a default
                opening.pop("missing", None)
            return function(*arguments, opening=opening, **values)

        return _decorate(*(flag for name in names for flag in ROWS[name]))(call)

    return decorate


overwrite_option = option(
    "--overwrite", section=OUTPUT, is_flag=True, help="Replace outputs that exist."
)
engine_options = _decorate(
    option(
        "--scheduler",
        section=WHERE,
        default="local",
        show_default=True,
        envvar="DASK_SCHEDULER_ADDRESS",
        show_envvar=True,
        metavar="ADDRESS|local",
        help="Address of a Dask scheduler; without it, threads of this process.",
    ),
    option(
        "--workers",
        section=WHERE,
        type=click.IntRange(min=1),
        help="Start a Dask cluster of this many processes on this machine.",
    ),
    option(
        "--threads",
        section=WHERE,
        type=click.IntRange(min=1),
        help="Threads of this process (default: all cores), or of each worker of --workers (default: 1).",
    ),
    option(
        "--memory-limit",
        section=WHERE,
        type=Size(),
        help="Memory of all workers together, e.g. 4GB. Default: all of the machine.",
    ),
    option(
        "--timeout",
        section=WHERE,
        type=click.FloatRange(min=0, min_open=True),
        default=10.0,
        show_default=True,
        help="Seconds to wait for the scheduler.",
    ),
    option(
        "--tls-ca",
        section=WHERE,
        metavar="FILE",
        help="PEM file of the authority that the cluster trusts, for a scheduler with TLS.",
    ),
    option(
        "--tls-cert", section=WHERE, metavar="FILE", help="PEM file of the client's certificate."
    ),
    option(
        "--tls-key",
        section=WHERE,
        metavar="FILE",
        help="PEM file of the client's key, without passphrase. Default: in the certificate's file.",
    ),
)

output_options = _decorate(
    option(
        "--json", "as_json", section=SHOWN, is_flag=True, help="Print the result as JSON on stdout."
    ),
    option(
        "--progress/--no-progress",
        section=SHOWN,
        default=None,
        help="Default: if stderr is a terminal.",
    ),
    option(
        "-q",
        "--quiet",
        section=SHOWN,
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_set_quiet,
        help="Show no progress and no table, only warnings and errors (and --json).",
    ),
    option(
        "--debug",
        section=SHOWN,
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_set_debug,
        help="Show the traceback of an error.",
    ),
)


def takes_place(function: F) -> F:
    """Add the flags of the engine to a command; pass them as ``place``, checked."""

    @wraps(function)
    def call(
        *arguments: Any,
        scheduler: str,
        workers: int | None,
        threads: int | None,
        memory_limit: int | None,
        timeout: float,
        tls_ca: str | None,
        tls_cert: str | None,
        tls_key: str | None,
        **values: Any,
    ) -> Any:
        found = click.get_current_context().get_parameter_source("scheduler")
        if found is ParameterSource.ENVIRONMENT and (workers or threads) is not None:
            scheduler = "local"  # a flag counts for more than the environment
        tls = tls_ca, tls_cert, tls_key
        place = Place(scheduler, workers, threads, memory_limit, timeout, *tls)
        place.check()
        return function(*arguments, place=place, **values)

    decorated: F = engine_options(call)
    return decorated


def takes_console(function: F) -> F:
    """Add the flags of the output to a command; pass them as ``console``."""

    @wraps(function)
    def call(*arguments: Any, as_json: bool, progress: bool | None, **values: Any) -> Any:
        return function(*arguments, console=Console(as_json, progress), **values)

    decorated: F = output_options(call)
    return decorated
