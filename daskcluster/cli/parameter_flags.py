"""The flags of ``fit``: those of all algorithms together, each read as the chosen one has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from daskcluster.cli.sections import SectionedCommand, option
from daskcluster.cli.values import ParamType, click_type
from daskcluster.errors import InvalidParameterError
from daskcluster.parameters.catalogue import (
    ALGORITHMS,
    check_parameters,
    find_algorithm,
    parameters_by_name,
)
from daskcluster.parameters.table import Parameter

F = TypeVar("F", bound=Callable[..., Any])

EVERY = "Clustering"

Variants = Mapping[str, Parameter]
"""One parameter as each algorithm that has it has it."""


def parameter_options(required: Sequence[str] = ()) -> Callable[[F], F]:
    """Give a command ``--algorithm`` and one flag for every parameter of any algorithm."""

    def decorate(function: F) -> F:
        for name, variants in reversed(parameters_by_name().items()):
            function = _flag(name, variants, required=name in required)(function)
        return _algorithm(function)

    return decorate


def given_parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those that were given: of all others the estimator's own defaults hold."""
    return {name: value for name, value in values.items() if value is not None}


class AlgorithmCommand(SectionedCommand):
    """A command whose help ends with what each algorithm is."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Algorithms"):
            formatter.write_dl([(name, entry.about) for name, entry in ALGORITHMS.items()])


def _algorithm(function: F) -> F:
    decorated: F = option(
        "--algorithm",
        section=EVERY,
        type=click.Choice(list(ALGORITHMS)),
        default=next(iter(ALGORITHMS)),
        show_default=True,
        is_eager=True,  # other flags are read as it has them
        metavar="NAME",
        help="One of those at the end.",
    )(function)
    return decorated


def _flag(name: str, variants: Variants, *, required: bool) -> Any:
    first = next(iter(variants.values()))
    section = _section(variants)
    text = _help(variants, required=required)
    if first.kind is bool:
        flags = f"{first.flag}/--no-{first.flag[2:]}"
        return option(flags, name, section=section, default=None, help=text, callback=_check_switch)
    return option(
        first.flag,
        name,
        section=section,
        required=required,
        type=AsTheAlgorithmHasIt(name),
        metavar=_metavar(variants),
        help=text,
    )


class AsTheAlgorithmHasIt(ParamType):
    """A value of the chosen algorithm's parameter; what that algorithm lacks is bad usage."""

    name = "value"

    def __init__(self, parameter: str) -> None:
        self._parameter = parameter

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return click_type(_chosen(ctx, self._parameter)).convert(value, param, ctx)


def _check_switch(ctx: click.Context, param: click.Parameter, value: bool | None) -> bool | None:
    if value is not None:
        _chosen(ctx, str(param.name))
    return value


def _chosen(ctx: click.Context, name: str) -> Parameter:
    algorithm = ctx.params["algorithm"]
    try:
        check_parameters(algorithm, [name])
    except InvalidParameterError as error:
        raise click.UsageError(str(error), ctx) from error
    return find_algorithm(algorithm).parameters[name]


# -- help -----------------------------------------------------------------------------------------


def _metavar(variants: Variants) -> str:
    parts: dict[str, None] = {}
    for parameter in variants.values():
        names = list(parameter.choices)
        if not names:
            names = [{int: "INTEGER", float: "FLOAT"}.get(parameter.kind, "TEXT")]
        extra = ["URL"] if parameter.other else []
        parts |= dict.fromkeys([*names, *extra, parameter.word, parameter.off])
    return " | ".join(part for part in parts if part)


def _help(variants: Variants, *, required: bool) -> str:
    first = next(iter(variants.values()))
    facts = [] if required else _defaults(variants)
    if first.least is not None:
        facts.append(f">= {first.least:g}")
    shown = f"  [{'; '.join(facts)}]" if facts else ""
    return f"{first.help}{shown}"


def _section(variants: Variants) -> str:
    """Return the heading under which a flag stands: the algorithms that have it, or lack it."""
    lacking = [name for name in ALGORITHMS if name not in variants]
    if not lacking:
        return EVERY
    if len(lacking) < len(variants):
        return f"Not with {', '.join(lacking)}"
    return f"Only with {', '.join(variants)}"


def _defaults(variants: Variants) -> list[str]:
    by_text: dict[str, list[str]] = {}
    for name, parameter in variants.items():
        if parameter.default is not None:
            by_text.setdefault(_word(parameter), []).append(name)
    if not by_text:
        return []
    common = max(by_text, key=lambda text: len(by_text[text]))
    rest = [f"{text} for {', '.join(names)}" for text, names in by_text.items() if text != common]
    return [", ".join([f"default: {common}", *rest])]


def _word(parameter: Parameter) -> str:
    if parameter.default is False and parameter.off:
        return parameter.off
    if isinstance(parameter.default, bool):
        return parameter.flag if parameter.default else f"--no-{parameter.flag[2:]}"
    return str(parameter.default)
