"""Flags that several commands share, types of their values, and the flags of declared parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial, wraps
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from daskcluster.cli.console import DEBUG, Console, EngineOptions
from daskcluster.errors import InvalidParameterError
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.parameters.algorithm import Catalogue
from daskcluster.parameters.parameter import Parameter

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # not generic in older releases of click
    ParamType = click.ParamType


class TextType(ParamType):
    """A type whose values are read from text; other values are as they should be.

    Parameters
    ----------
    name : str
        What help calls such a value.
    read : callable (str) -> object
        Returns the value; a ValueError is shown to the user.
    """

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _size(text: str) -> int:
    from dask.utils import parse_bytes

    try:
        size = parse_bytes(text) if re.match(r"\s*\.?[0-9]", text) else 0
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise ValueError(f"{text!r} is not a size such as 800MB, 1.5GiB or 2e9.")
    return size


def _duration(text: str) -> float:
    from daskcluster.parameters.checks import seconds_of

    seconds = seconds_of(text.strip())
    if seconds is None and re.fullmatch(r"[0-9]*\.?[0-9]+", text.strip()):
        seconds = float(text)
    if seconds is None:
        raise ValueError(f"{text!r} is not a time such as 30s, 5m, 2h or 7d.")
    return seconds


def _numbers_of_clusters(text: str) -> dict[str, Any]:
    given = text.replace(" ", "")
    if re.fullmatch(r"\d+(,\d+)*", given):
        return {"ks": [int(part) for part in given.split(",")]}
    parts = given.split(":") if re.fullmatch(r"\d+:\d+(:\d+)?", given) else ["0", "0"]
    first, last, *step = map(int, parts)
    if not 1 <= first <= last or step == [0]:
        expected = "should be a range such as 2:64 or 10:100:10, or 4,8,16."
        raise ValueError(f"{text!r} {expected}")
    if step:
        return {"ks": list(range(first, last + 1, step[0]))}
    return {"k_min": first, "k_max": last}


def _storage_option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        # Do not repeat the text: it may be a secret.
        raise ValueError("should be KEY=VALUE, for example endpoint_url=http://host:9000.")
    plain: Any = {"true": True, "false": False}.get(value.lower(), value)
    from daskcluster.storage.location import looks_secret

    if any(looks_secret(part, plain) for part in key.split(".")):
        raise ValueError(
            f"{key} looks like a secret, and command lines are visible to others; leave it out and "
            "give credentials through the environment (such as AWS_ACCESS_KEY_ID) or the "
            "cloud's own files."
        )
    return key, plain


SIZE = TextType("size", _size)
"""A number of bytes such as 800MB, 1.5GiB or 2e9."""
DURATION = TextType("time", _duration)
"""A time such as 30s, 5m, 2h or 7d, in seconds; a bare number is seconds."""
NUMBERS_OF_CLUSTERS = TextType("first:last", _numbers_of_clusters)
"""FIRST:LAST, FIRST:LAST:STEP, or comma-separated numbers; arguments of `daskcluster.select_k`."""
STORAGE_OPTION = TextType("key=value", _storage_option)
"""KEY=VALUE for a file system; a dotted key reaches into a nested option."""


class ValueOrWord(ParamType):
    """The values of another type, or one word that stands for itself or for a value."""

    def __init__(self, other: ParamType, word: str, meaning: Any = None) -> None:
        self.name = f"{other.name}|{word}"
        self._other = other
        self._word = word
        self._meaning = word if meaning is None else meaning

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return self._meaning if value == self._word else self._other.convert(value, param, ctx)


def name_or_url(names: Sequence[str], other: str) -> TextType:
    """Return the type of one of some names, or a URL; any other word is refused at once."""

    def read(text: str) -> str:
        if text not in names and not re.search(r"[/.\\]", text):
            raise ValueError(f"{text!r} should be one of {', '.join(names)}, or {other}.")
        return text

    return TextType("name|url", read)


def names_of(known: Sequence[str], word: str) -> TextType:
    """Return the type of comma-separated names, or one word for all of them."""

    def read(text: str) -> tuple[str, ...]:
        given = tuple(name.strip() for name in text.split(",") if name.strip())
        if given == (word,):
            return tuple(known)
        for name in given:
            if name not in known:
                raise ValueError(f"{name!r} should be one of {', '.join(known)}.")
        return given

    return TextType("names", read)


def gather_options(ctx: Any, param: Any, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any] | None:
    """Return the pairs of `STORAGE_OPTION` as one mapping; dotted keys become nested mappings."""
    options: dict[str, Any] = {}
    for key, value in pairs:
        *outer, last = key.split(".")
        inner = options
        for name in outer:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return options or None


def click_type(parameter: Parameter) -> ParamType:
    """Return the type of a parameter's flag."""
    found: ParamType = click.STRING
    choices = tuple(parameter.choices)
    if getattr(parameter, "type", ""):
        own: ParamType = resolve_name(parameter.type)  # type: ignore[attr-defined]
        return own
    if parameter.kind is tuple:
        return names_of(choices, parameter.word)
    if choices:
        found = name_or_url(choices, parameter.other) if parameter.other else click.Choice(choices)
    elif parameter.kind is bool:
        found = click.BOOL
    elif parameter.kind in (int, float):
        of_kind: Any = click.IntRange if parameter.kind is int else click.FloatRange
        found = of_kind(
            min=parameter.gt if parameter.ge is None else parameter.ge,
            max=parameter.lt if parameter.le is None else parameter.le,
            min_open=parameter.gt is not None,
            max_open=parameter.lt is not None,
        )
    if parameter.word:
        found = ValueOrWord(found, parameter.word)
    return ValueOrWord(found, parameter.off, meaning=False) if parameter.off else found


OTHER = "Options"
_PATHS = re.compile(r"\b(URL|FILE|DIR)\b")


class SectionedOption(click.Option):
    """An option with a section."""

    def __init__(self, *arguments: Any, section: str = OTHER, **settings: Any) -> None:
        if _PATHS.search(settings.get("metavar") or ""):
            settings.setdefault("shell_complete", complete_path)
        super().__init__(*arguments, **settings)
        self.section = section

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the names and the help, with limits as all flags have them."""
        found = super().get_help_record(ctx)
        return None if found is None else (found[0], found[1].replace("x>=", ">= "))


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


def declared_option(parameter: Parameter, **settings: Any) -> Any:
    """Return the decorator for the flag of `parameter`; `settings` override its fields."""
    default = parameter.default
    said: dict[str, Any] = {"help": parameter.help}
    said["section"] = getattr(parameter, "section", "") or OTHER
    said |= {"is_flag": True} if parameter.kind is bool else {"type": click_type(parameter)}
    if parameter.kind is not bool and default is not None:
        said |= {"default": default, "show_default": default != ()}
    if getattr(parameter, "metavar", ""):
        said["metavar"] = parameter.metavar  # type: ignore[attr-defined]
    names = getattr(parameter, "flags", ()) or (parameter.flag,)
    return option(*names, parameter.name, **{**said, **settings})


F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]

INPUT = "Input"
OUTPUT = "Output"
WHERE = "Execution"
SHOWN = "Display"


def _mark_debug(ctx: click.Context, param: Any, value: bool) -> None:
    ctx.meta[DEBUG] = value


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


_input, _where, _shown = (partial(option, section=each) for each in (INPUT, WHERE, SHOWN))

storage_option = _input(
    "--storage-option",
    "storage_options",
    type=STORAGE_OPTION,
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
            help="Rows that lack a value (NaN, null, masked): an error (the default, unless the fit of a "
            "model left them out), left out, filled with means, or partial distances (k-means).",
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
                asked = {each: at for each, at in table.items() if at not in (None, (), [])}
                values["columns"] = asked or None  # an id may be in a column without a name
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
    _where(
        "--scheduler",
        default="local",
        show_default=True,
        envvar="DASK_SCHEDULER_ADDRESS",
        show_envvar=True,
        metavar="ADDRESS|local",
        help="Address of a Dask scheduler; without it, threads of this process.",
    ),
    _where(
        "--workers",
        type=click.IntRange(min=1),
        help="Start a Dask cluster of this many processes on this machine.",
    ),
    _where(
        "--threads",
        type=click.IntRange(min=1),
        help="Threads of this process (default: all cores), or of each worker of --workers (default: 1).",
    ),
    _where(
        "--memory-limit",
        type=SIZE,
        help="Memory of all workers together, e.g. 4GB. Default: all of the machine.",
    ),
    _where(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=10.0,
        show_default=True,
        help="Seconds to wait for the scheduler.",
    ),
    _where(
        "--tls-ca",
        metavar="FILE",
        help="PEM file of the authority that the cluster trusts, for a scheduler with TLS.",
    ),
    _where("--tls-cert", metavar="FILE", help="PEM file of the client's certificate."),
    _where(
        "--tls-key",
        metavar="FILE",
        help="PEM file of the client's key, without passphrase. Default: in the certificate's file.",
    ),
)

output_options = _decorate(
    _shown("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout."),
    _shown(
        "--progress/--no-progress",
        default=None,
        help="Default: if stderr is a terminal.",
    ),
    _shown(
        "-q",
        "--quiet",
        is_flag=True,
        help="Show no progress and no table, only warnings and errors (and --json).",
    ),
    _shown(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_mark_debug,
        help="Show the traceback of an error.",
    ),
)


def takes_engine(function: F) -> F:
    """Add the flags of the engine to a command; pass them as ``engine_options``, checked."""

    @wraps(function)
    def call(*arguments: Any, **values: Any) -> Any:
        engine_options = EngineOptions(
            **{each.name: values.pop(each.name) for each in fields(EngineOptions)}
        )
        found = click.get_current_context().get_parameter_source("scheduler")
        if (
            found is ParameterSource.ENVIRONMENT
            and (engine_options.workers or engine_options.threads) is not None
        ):
            engine_options = replace(
                engine_options, scheduler="local"
            )  # a flag counts for more than the environment
        engine_options.check()
        return function(*arguments, engine_options=engine_options, **values)

    decorated: F = engine_options(call)
    return decorated


def takes_console(function: F) -> F:
    """Add the flags of the output to a command; pass them as ``console``."""

    @wraps(function)
    def call(*arguments: Any, **values: Any) -> Any:
        console = Console(**{each.name: values.pop(each.name) for each in fields(Console)})
        return function(*arguments, console=console, **values)

    decorated: F = output_options(call)
    return decorated


EVERY = "Clustering"

Variants = Mapping[str, Parameter]
"""A parameter's declaration in each algorithm that has it."""


def parameter_options(
    required: Sequence[str] = (), catalogue: Catalogue = ALGORITHMS
) -> Callable[[F], F]:
    """Add ``--algorithm`` and one flag for every parameter of any algorithm to a command."""

    def decorate(function: F) -> F:
        for name, variants in reversed(catalogue.parameters().items()):
            function = _flag(name, variants, catalogue, required=name in required)(function)
        named: F = option(
            "--algorithm",
            section=EVERY,
            type=click.Choice(list(catalogue)),
            default=next(iter(catalogue)),
            show_default=True,
            is_eager=True,  # other flags are parsed by its parameters
            metavar="NAME",
            help="An algorithm; see the list below.",
        )(function)
        return named

    return decorate


def given_parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that were given; for others, the estimator's defaults apply."""
    return {name: value for name, value in values.items() if value is not None}


class AlgorithmCommand(SectionedCommand):
    """A command whose help ends with a list of the algorithms."""

    catalogue: Catalogue = ALGORITHMS

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Algorithms"):
            formatter.write_dl([(name, entry.about) for name, entry in self.catalogue.items()])


def _flag(name: str, variants: Variants, catalogue: Catalogue, *, required: bool) -> Any:
    first = next(iter(variants.values()))
    facts = [] if required else _defaults(variants)
    facts += [first.limits] if first.limits else []
    section = _section(variants, catalogue)
    settings: dict[str, Any] = {"section": section, "help": first.help}
    if section.startswith("Only"):  # others are many, and mean nearly the same everywhere
        (common, _), *rest = _by_text({each: found.help for each, found in variants.items()})
        others = (f"With {', '.join(names)}: {text[0].lower()}{text[1:]}" for text, names in rest)
        settings["help"] = " ".join([common, *others])
    if facts:
        settings["help"] += f"  [{'; '.join(facts)}]"

    def read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        if value is None:
            return None
        return click_type(_chosen(ctx, name, catalogue)).convert(value, param, ctx)

    settings["callback"] = read  # once the algorithm is known
    if first.kind is bool:
        return option(f"{first.flag}/--no-{first.flag[2:]}", name, default=None, **settings)
    metavars: dict[str, None] = {}
    for parameter in variants.values():
        kind = {int: "INTEGER", float: "FLOAT"}.get(parameter.kind, "TEXT")
        names = [*(parameter.choices or [kind]), "URL" if parameter.other else ""]
        metavars |= dict.fromkeys([*names, parameter.word, parameter.off])
    return option(
        first.flag,
        *(["-k"] if name == "n_clusters" else []),
        name,
        required=required,
        type=TextType("value", str),
        metavar=" | ".join(filter(None, metavars)),
        **settings,
    )


def _chosen(ctx: click.Context, name: str, catalogue: Catalogue) -> Parameter:
    algorithm = ctx.params["algorithm"]
    try:
        catalogue.check(algorithm, [name])
    except InvalidParameterError as error:
        raise click.UsageError(str(error), ctx) from error
    return catalogue.find(algorithm).parameters[name]


def _section(variants: Variants, catalogue: Catalogue) -> str:
    """Return the heading of a flag: the algorithms that have it, or lack it."""
    lacking = [name for name in catalogue if name not in variants]
    if not lacking:
        return EVERY
    if len(lacking) < len(variants):
        return f"Not with {', '.join(lacking)}"
    return f"Only with {', '.join(variants)}"


def _defaults(variants: Variants) -> list[str]:
    texts: dict[str, str] = {}
    for name, parameter in variants.items():
        default = parameter.default
        if default is None:
            continue
        texts[name] = str(default)
        if default is False and parameter.off:
            texts[name] = parameter.off
        elif isinstance(default, bool):
            texts[name] = parameter.flag if default else f"--no-{parameter.flag[2:]}"
    return [f"default: {_joined(_by_text(texts))}"] if texts else []


def _by_text(texts: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Return each text with the algorithms that have it; the commonest first."""
    by_text: dict[str, list[str]] = {}
    for name, text in texts.items():
        by_text.setdefault(text, []).append(name)
    return sorted(by_text.items(), key=lambda found: -len(found[1]))


def _joined(texts: Sequence[tuple[str, list[str]]]) -> str:
    (common, _), *rest = texts
    return ", ".join([common, *(f"{text} for {', '.join(names)}" for text, names in rest)])
