"""Declarations of jobs, from which commands, checks of outputs, dry runs and pages follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from daskcluster.deprecation import moved
from daskcluster.parameters.algorithm import Catalogue
from daskcluster.parameters.parameter import Parameter


@dataclass(frozen=True)
class Flag(Parameter):
    """A parameter of a job, and how its command shows it.

    Attributes
    ----------
    section : str
        Heading of the help under which it stands.
    metavar : str
    flags : tuple of str
        Names of the flag, if it is not that of the parameter.
    type : str
        ``"module:NAME"`` of the type of its values for click, if it is not that of the parameter.
    is_local : bool
        The command alone has it, not the function.
    """

    section: str = ""
    metavar: str = ""
    flags: tuple[str, ...] = ()
    type: str = ""
    is_local: bool = False


@dataclass(frozen=True, kw_only=True)
class Output:
    """A URL that a job writes.

    Attributes
    ----------
    name : str
        The argument of the job's function.
    help : str
    what : str
        Completes "the URL to ..." for a command that lacks it; empty if it is optional.
    metavar : str
        ``"FILE"`` for one file, or a URL.
    check : str
        ``"module:function"`` of what refuses a URL before anything else is done.
    """

    name: str
    help: str
    what: str = ""
    metavar: str = "URL"
    check: str = ""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job: a function of URLs and numbers that writes outputs and returns a record.

    Attributes
    ----------
    name : str
        The command.
    function : str
        ``"module:function"``. Its arguments are `arguments`, those of the rows, `parameters`, `outputs`,
        and ``name, engine, callbacks``, with ``overwrite`` if it has outputs.
    help : str
        What the command says of itself.
    about : str
        One line for the list of commands.
    arguments : tuple of str
        Positional arguments of the command.
    without : tuple of str
        What of the arguments of rows it does not take; see `daskcluster.cli.options.takes_source`.
    parameters : tuple of Parameter
    algorithms : Catalogue, or str, optional
        The parameters are those of its algorithms, and ``algorithm``. A str is its ``"module:NAME"``.
    extends : str
        ``"module:function"`` to which the function passes further arguments; so it has their defaults.
    reads : tuple of (str, str)
        Arguments that may be URLs of what is read, besides `arguments` and weights, with their names in
        errors.
    outputs : tuple of Output
        The first one is the main output, next to which the state of the job is.
    replaces : bool
        Outputs are written anew, with ``overwrite``; otherwise, they grow.
    kinds : tuple of str, or str
        Kinds of Zarr nodes that outputs may replace, or ``"module:function"`` of what returns them for the
        arguments.
    keeps : str
        What ``--checkpoint`` keeps, if the function has ``checkpoint`` and ``resume``.
    resumes : str
        What ``--resume`` does where there is no checkpoint.
    needs : tuple of (str, str, str)
        Flags without meaning alone: the flag, the one that it needs, and why.
    plan : str
        ``"module:function"`` for ``--dry-run``, called with the rows (none of which are read) and the
        arguments: returns a `Plan` or a `WorkPlan` of `daskcluster.estimators.plan`, or raises what the job
        would raise before its first pass.
    lines : str
        ``"module:function"`` of what makes lines of text of the record.
    task : str
        ``"module:class"`` of a `daskcluster.cli.job_commands.Task`, if the command has flags of its own.
    """

    name: str
    function: str
    help: str
    about: str = ""
    arguments: tuple[str, ...] = ("source",)
    without: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    algorithms: Catalogue | str | None = None
    extends: str = ""
    reads: tuple[tuple[str, str], ...] = ()
    outputs: tuple[Output, ...] = ()
    replaces: bool = True
    kinds: tuple[str, ...] | str = ("array",)
    keeps: str = ""
    resumes: str = ""
    needs: tuple[tuple[str, str, str], ...] = ()
    plan: str = ""
    lines: str = "daskcluster.reports.pages:rows_of_record"
    task: str = "daskcluster.cli.job_commands:Task"

    @property
    def function_name(self) -> str:
        return self.function.rpartition(":")[2]

    @property
    def catalogue(self) -> Catalogue | None:
        """The catalogue of its algorithms, imported."""
        known = self.algorithms
        return resolve_name(known) if isinstance(known, str) else known

    def kinds_of(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the kinds of Zarr nodes that outputs may replace."""
        return resolve_name(self.kinds)(given) if isinstance(self.kinds, str) else self.kinds

    def check_urls(self, given: Mapping[str, Any]) -> None:
        """Raise if an output has a URL that is refused whatever is there."""
        for each in self.outputs:
            if each.check and given.get(each.name) is not None:
                resolve_name(each.check)(given[each.name])

    def of_outputs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs among the arguments."""
        return {each.name: given[each.name] for each in self.outputs}


JOBS: dict[str, JobSpec] = {}
"""All jobs that are declared, by the names of their commands."""


PACE = frozenset({"every", "settle"})
"""Arguments that say how often a stream looks for rows: they may change from run to run."""


__getattr__ = moved(__name__, register_job="daskcluster.extending:register_job")
