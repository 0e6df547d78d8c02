"""Types of flag values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from daskcluster.parameters.parameter import Parameter

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # not generic in older releases of click
    ParamType = click.ParamType

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


class ImageShape(ParamType):
    """Height, width and optionally channels of an image, such as 28x28 or 32x32x3."""

    name = "HxW[xC]"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"[1-9][0-9]*(x[1-9][0-9]*){1,2}", str(value)):
            self.fail(f"{value!r} is not a shape such as 28x28 or 32x32x3.", param, ctx)
        return tuple(int(size) for size in str(value).split("x"))


class Duration(ParamType):
    """A time such as 30s, 5m, 2h or 7d, in seconds; a bare number is seconds."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        from daskcluster.parameters.checks import seconds_of

        text = str(value).strip()
        seconds = seconds_of(text)
        if seconds is None and re.fullmatch(r"[0-9]*\.?[0-9]+", text):
            seconds = float(text)
        if seconds is None:
            self.fail(f"{value!r} is not a time such as 30s, 5m, 2h or 7d.", param, ctx)
        return seconds


class ValueOrWord(ParamType):
    """The values of another type, or one word that stands for itself or for a value."""

    def __init__(self, other: ParamType, word: str, meaning: Any = None) -> None:
        self.name = f"{other.name}|{word}"
        self._other = other
        self._word = word
        self._meaning = word if meaning is None else meaning

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return self._meaning if value == self._word else self._other.convert(value, param, ctx)


class NameOrUrl(ParamType):
    """One of some names, or a URL; any other word is refused at once."""

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


class Names(ParamType):
    """Comma-separated names, or one word for all of them."""

    name = "names"

    def __init__(self, known: Sequence[str], word: str) -> None:
        self._known, self._word = tuple(known), word

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        given = tuple(name.strip() for name in str(value).split(",") if name.strip())
        if given == (self._word,):
            return self._known
        for name in given:
            if name not in self._known:
                self.fail(f"{name!r} should be one of {', '.join(self._known)}.", param, ctx)
        return given


class StorageOption(ParamType):
    """KEY=VALUE for a file system; a dotted key reaches into a nested option."""

    name = "key=value"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not (key and equals):
            # Do not repeat the text: it may be a secret.
            self.fail("should be KEY=VALUE, for example endpoint_url=http://host:9000.", param, ctx)
        plain: Any = {"true": True, "false": False}.get(text.lower(), text)
        from daskcluster.storage.location import looks_secret

        if any(looks_secret(part, plain) for part in key.split(".")):
            self.fail(
                f"{key} looks like a secret, and command lines are visible to others; leave it out and "
                "give credentials through the environment (such as AWS_ACCESS_KEY_ID) or the "
                "cloud's own files.",
                param,
                ctx,
            )
        return key, plain


def gather_options(ctx: Any, param: Any, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any] | None:
    """Return the pairs of `StorageOption` as one mapping; dotted keys become nested mappings."""
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
    if parameter.kind is tuple:
        return Names(tuple(parameter.choices), parameter.word)
    found = _plain_type(parameter)
    if parameter.word:
        found = ValueOrWord(found, parameter.word)
    return ValueOrWord(found, parameter.off, meaning=False) if parameter.off else found


def _plain_type(parameter: Parameter) -> ParamType:
    if parameter.choices:
        if parameter.other:
            return NameOrUrl(tuple(parameter.choices), parameter.other)
        return click.Choice(tuple(parameter.choices))
    if parameter.kind is bool:
        return click.BOOL
    if parameter.kind is str:
        return click.STRING
    of_kind: Any = click.IntRange if parameter.kind is int else click.FloatRange
    return of_kind(
        min=parameter.gt if parameter.ge is None else parameter.ge,
        max=parameter.lt if parameter.le is None else parameter.le,
        min_open=parameter.gt is not None,
        max_open=parameter.lt is not None,
    )
