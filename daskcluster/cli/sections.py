"""Help in sections: options under the heading of what they belong to."""

from __future__ import annotations

from typing import Any

import click

from daskcluster.cli.values import click_type
from daskcluster.parameters.parameter import Parameter

OTHER = "Options"


class SectionedOption(click.Option):
    """An option that knows its section."""

    def __init__(self, *arguments: Any, section: str = OTHER, **settings: Any) -> None:
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
        # Those without a section, such as --help, are what nobody looks for.
        last = sections.pop(OTHER, [])
        for name, lines in [*sections.items(), *([(OTHER, last)] if last else [])]:
            with formatter.section(name):
                formatter.write_dl(lines)


def option(*names: str, section: str = OTHER, **settings: Any) -> Any:
    """Return the decorator of `click.option`, for an option in `section`."""
    return click.option(*names, cls=SectionedOption, section=section, **settings)


def declared_option(parameter: Parameter, *, section: str = OTHER, **settings: Any) -> Any:
    """Return the decorator for the flag of `parameter`; `settings` replace what it says."""
    default = parameter.default
    said = {"type": click_type(parameter), "help": parameter.help}
    said |= {} if default is None else {"default": default, "show_default": True}
    return option(parameter.flag, section=section, **{**said, **settings})
