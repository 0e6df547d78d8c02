"""Flags that several commands share, and the types of their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from daskcluster.cli.main import DEBUG
from daskcluster.parameters import Parameter

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # generic only in newer releases of click
    ParamType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


class Size(ParamType):
    """A number of bytes such as 800MB, 1.5GiB or 2e9."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().lower()
        match = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?i?)b?", text)
        try:
            number = float(match.group(1)) if match else 0.0
            size = int(number * {**_UNITS, **_BINARY}[match.group(2) if match else ""])
        except (ValueError, KeyError):
            size = 0
        if size < 1:
            self.fail(f"{value!r} is not a size such as 800MB, 1.5GiB or 2e9.", param, ctx)
        return size


class NumberOrWord(ParamType):
    """A number, or one word that stands beside numbers."""

    def __init__(self, number: ParamType, word: str) -> None:
        self.name = f"{number.name}|{word}"
        self._number = number
        self._word = word

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return value if value == self._word else self._number.convert(value, param, ctx)


class NameOrUrl(ParamType):
    """One of some names, or a URL; a word that can be neither is refused at once."""

    def __init__(self, names: Sequence[str], other: str) -> None:
        self.name = "name|url"
        self._names = tuple(names)
        self._other = other

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        text = str(value)
        if text not in self._names and not re.search(r"[/.\\]", text):
            names = ", ".join(self._names)
            self.fail(f"{text!r} should be one of {names}, or {self._other}.", param, ctx)
        return text


class StorageOption(ParamType):
    """KEY=VALUE for a file system; a dotted key reaches into a nested option."""

    name = "key=value"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not (key and equals):
            # The text itself is not repeated: it may be a secret.
            self.fail("should be KEY=VALUE, for example endpoint_url=http://host:9000.", param, ctx)
        plain: Any = {"true": True, "false": False}.get(text.lower(), text)
        from daskcluster.data.secrets import looks_secret

        if any(looks_secret(part, plain) for part in key.split(".")):
            self.fail(
                f"{key} looks like a secret, and command lines are visible to others; leave it out and "
                "give credentials through the environment (such as AWS_ACCESS_KEY_ID) or the "
                "cloud's own files.",
                param,
                ctx,
            )
        return key, plain


def _gather(ctx: Any, param: Any, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any] | None:
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
    if parameter.choices:
        if parameter.other:
            return NameOrUrl(parameter.choices, parameter.other)
        return click.Choice(parameter.choices)
    least = parameter.least
    if parameter.kind is int:
        number: ParamType = click.IntRange(min=None if least is None else int(least))
    else:
        number = click.FloatRange(min=least)
    return NumberOrWord(number, parameter.word) if parameter.word else number


def parameter_options(table: Sequence[Parameter], required: Sequence[str] = ()) -> Decorator[Any]:
    """Give a command one flag for every parameter of `table`."""

    def decorate(function: F) -> F:
        for parameter in reversed(table):
            # An explicit default, even None, would satisfy a required flag.
            needed = parameter.name in required
            default = {"required": True} if needed else {"default": parameter.default}
            function = click.option(
                parameter.flag,
                parameter.name,
                type=click_type(parameter),
                show_default=not needed and parameter.default is not None,
                help=parameter.help,
                **default,
            )(function)
        return function

    return decorate


def _set_debug(ctx: click.Context, param: Any, value: bool) -> None:
    ctx.meta[DEBUG] = value


def _decorate(*options: Decorator[Any]) -> Decorator[Any]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


array_option = click.option(
    "--array", metavar="NAME", help="Name of the array, where the source is a Zarr group."
)
weights_option = click.option(
    "--weights", metavar="NAME|URL", help="Row weights: an array in the same group, or a URL."
)
flatten_option = click.option(
    "--flatten",
    is_flag=True,
    help="Take (..., features) arrays such as rasters as rows of features.",
)
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace outputs that exist.")
storage_option = click.option(
    "--storage-option",
    "storage_options",
    type=StorageOption(),
    multiple=True,
    callback=_gather,
    help="Option of the file system, e.g. endpoint_url=http://host:9000, anon=true or "
    "client_kwargs.region_name=eu-west-1; repeatable. Secrets come from the environment.",
)

engine_options = _decorate(
    click.option(
        "--scheduler",
        default="local",
        show_default=True,
        metavar="ADDRESS|local",
        help="A Dask scheduler, or threads of this process.",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        help="Start a Dask cluster of that many processes on this machine.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(min=1),
        help="Threads of this process, or of each worker of --workers. Default: all cores, or 1.",
    ),
    click.option(
        "--memory-limit",
        type=Size(),
        help="For the workers together, e.g. 4GB. Default: all there is.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=10.0,
        show_default=True,
        help="Seconds to wait for the scheduler.",
    ),
)

output_options = _decorate(
    click.option("--json", "as_json", is_flag=True, help="End with one JSON object on stdout."),
    click.option(
        "--progress/--no-progress", default=None, help="Default: if stderr is a terminal."
    ),
    click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_set_debug,
        help="Show where an error came from.",
    ),
)
