"""The flags of one table of parameters, for commands that run one algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from daskcluster.cli.sections import option
from daskcluster.cli.values import click_type
from daskcluster.parameters.table import Parameter

F = TypeVar("F", bound=Callable[..., Any])


def table_options(
    table: Sequence[Parameter], section: str, required: Sequence[str] = ()
) -> Callable[[F], F]:
    """Give a command a flag for every parameter of a table; those that are not given are None."""

    def decorate(function: F) -> F:
        for parameter in reversed(table):
            function = _flag(parameter, section, required=parameter.name in required)(function)
        return function

    return decorate


def _flag(parameter: Parameter, section: str, *, required: bool) -> Any:
    facts = []
    if parameter.default is not None and not required:
        facts.append(f"default: {parameter.default}")
    if parameter.least is not None:
        facts.append(f">= {parameter.least:g}")
    shown = f"  [{'; '.join(facts)}]" if facts else ""
    return option(
        parameter.flag,
        parameter.name,
        section=section,
        required=required,
        type=click_type(parameter),
        help=f"{parameter.help}{shown}",
    )
