"""The flags of ``fit``: one for each parameter of any algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from daskcluster.cli.options import SectionedCommand, option
from daskcluster.cli.values import ParamType, click_type
from daskcluster.errors import InvalidParameterError
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.parameters.algorithm import Catalogue
from daskcluster.parameters.parameter import Parameter

F = TypeVar("F", bound=Callable[..., Any])

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
        return _algorithm(catalogue)(function)

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


def _algorithm(catalogue: Catalogue) -> Any:
    return option(
        "--algorithm",
        section=EVERY,
        type=click.Choice(list(catalogue)),
        default=next(iter(catalogue)),
        show_default=True,
        is_eager=True,  # other flags are parsed by its parameters
        metavar="NAME",
        help="An algorithm; see the list below.",
    )


def _flag(name: str, variants: Variants, catalogue: Catalogue, *, required: bool) -> Any:
    first = next(iter(variants.values()))
    section = _section(variants, catalogue)
    text = _help(variants, required=required)
    if first.kind is bool:
        flags = f"{first.flag}/--no-{first.flag[2:]}"
        check = _switch_check(catalogue)
        return option(flags, name, section=section, default=None, help=text, callback=check)
    return option(
        first.flag,
        *(["-k"] if name == "n_clusters" else []),
        name,
        section=section,
        required=required,
        type=AsTheAlgorithmHasIt(name, catalogue),
        metavar=_metavar(variants),
        help=text,
    )


class AsTheAlgorithmHasIt(ParamType):
    """A value of a parameter of the chosen algorithm; a usage error if the algorithm lacks it."""

    name = "value"

    def __init__(self, parameter: str, catalogue: Catalogue = ALGORITHMS) -> None:
        self._parameter, self._catalogue = parameter, catalogue

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        chosen = _chosen(ctx, self._parameter, self._catalogue)
        return click_type(chosen).convert(value, param, ctx)


def _switch_check(catalogue: Catalogue) -> Callable[..., bool | None]:
    def check(ctx: click.Context, param: click.Parameter, value: bool | None) -> bool | None:
        if value is not None:
            _chosen(ctx, str(param.name), catalogue)
        return value

    return check


def _chosen(ctx: click.Context, name: str, catalogue: Catalogue) -> Parameter:
    algorithm = ctx.params["algorithm"]
    try:
        catalogue.check(algorithm, [name])
    except InvalidParameterError as error:
        raise click.UsageError(str(error), ctx) from error
    return catalogue.find(algorithm).parameters[name]


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
    facts += [first.limits] if first.limits else []
    shown = f"  [{'; '.join(facts)}]" if facts else ""
    return f"{first.help}{shown}"


def _section(variants: Variants, catalogue: Catalogue) -> str:
    """Return the heading of a flag: the algorithms that have it, or lack it."""
    lacking = [name for name in catalogue if name not in variants]
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
