"""``python -m tests.benchmarks NAME``: comparisons, figures of papers, and a model of clusters' sizes.

Comparisons with other libraries are cells that are kept (``compare``); each other name writes one section.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from daskcluster.cli.main import Commands
from tests.benchmarks.harness.machine import machine
from tests.benchmarks.harness.page import write_section
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings

BENCHMARKS = {
    "bounds-ooc": "tests.benchmarks.bench_bounds_ooc",
    "nested-digits": "tests.benchmarks.nested_digits",
    "stream": "tests.benchmarks.bench_stream",
    "stream-drift": "tests.benchmarks.bench_stream_drift",
    "kernel-rows": "tests.benchmarks.bench_kernel_rows",
    "scaling": "tests.benchmarks.scaling",
    "hierarchical": "tests.benchmarks.hierarchical",
    "allocator": "tests.benchmarks.bench_allocator",
}
"""Comparisons with ourselves."""
REPRODUCTIONS = {
    "backward-euler": "tests.benchmarks.backward_euler",
    "figure2": "tests.benchmarks.figure2",
    "figure3": "tests.benchmarks.figure3",
    "kernel": "tests.benchmarks.kernel_kmeans",
    "table1": "tests.benchmarks.table1",
    "vc-gmm": "tests.benchmarks.vc_gmm",
    "vrkm": "tests.benchmarks.vrkm",
}
"""Figures and tables of papers, on stand-ins for their data: hours, so they are not part of `all`."""
GROUPS = {"all": list(BENCHMARKS), "reproduction": list(REPRODUCTIONS)}
COMMANDS = {
    "compare": "tests.benchmarks.harness.compare",
    "size": "tests.benchmarks.scaling.size",
    "calibrate": "tests.benchmarks.scaling.calibrate",
}
"""Those with options of their own; each module has its ``command``."""

SEEDED = (
    "nested-digits", "figure2", "figure3", "vc-gmm", "vrkm", "backward-euler", "kernel", "stream",
)  # fmt: skip
"""Those that average over seeds."""
SEEDS = 20
"""Of those that do not say how many they take by themselves."""


class Benchmarks(Commands):
    """One command for each benchmark; its module is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *BENCHMARKS, "all", *REPRODUCTIONS, "reproduction"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            return importlib.import_module(COMMANDS[cmd_name]).command
        if cmd_name in self.list_commands(ctx):
            return section_command(cmd_name)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        click.Group.format_commands(self, ctx, formatter)


@click.group("python -m tests.benchmarks", cls=Benchmarks)
def main() -> None:
    """Print tables of ratios, all measured in one run; the figures of papers; sizes of clusters."""


def section_command(name: str) -> click.Command:
    """Return the command that writes the section `name`, or all those of a group."""
    about = f"The sections {', '.join(GROUPS[name])}." if name in GROUPS else f"The section {name}."
    folder = click.Path(file_okay=False, path_type=Path)
    options = [
        click.Option(["--quick"], is_flag=True, help="Small shapes, to see that it runs."),
        click.Option(
            ["--data"],
            type=folder,
            envvar="DASKCLUSTER_DATA",
            metavar="DIR",
            help="Folder with mnist.npz, birch2.npz, worms_2.npz, cifar10_test10k.npz, "
            "kddcup99_10pct.npz, text_la1.npz, cod_rna.npz. Default: $DASKCLUSTER_DATA; what is "
            "missing is generated or left out, and said.",
        ),
        click.Option(["--threads"], type=int, default=min(2, os.cpu_count() or 1)),
        click.Option(["--repeats"], type=int, default=5, help="Runs of which the median counts."),
        click.Option(
            ["--output"],
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE.md",
            help="Replace the section in this file; plots go to images/ next to it.",
        ),
        click.Option(
            ["--scratch"],
            type=folder,
            metavar="DIR",
            help="For data that is written. Default: the system's temporary folder.",
        ),
        click.Option(["--keep"], is_flag=True, help="Leave that data for the next run."),
        click.Option(
            ["--seeds"],
            type=int,
            help="Random beginnings, of benchmarks that average over them; "
            f"default {SEEDS} or as they say.",
        ),
        click.Option(
            ["--sets"],
            callback=lambda ctx, option, text: tuple(text.split(",")) if text else (),
            metavar="NAME,...",
            help="Only these sets, of benchmarks that have several.",
        ),
    ]

    def write(**asked: Any) -> None:
        write_sections(GROUPS.get(name, [name]), **asked)

    return click.Command(name, callback=write, params=options, help=about, short_help=about)


def write_sections(
    names: list[str], *, output: Path | None, seeds: int | None, **asked: Any
) -> None:
    """Run benchmarks; print each section, and put it into `output`."""
    settings = Settings(images=None if output is None else output.parent / "images", **asked)
    for name in names:
        benchmark = importlib.import_module((BENCHMARKS | REPRODUCTIONS)[name])
        many = getattr(benchmark, "SEEDS", SEEDS) if seeds is None else seeds
        settings = replace(settings, seeds=many)
        say(f"{name}: takes {benchmark.TAKES}")
        where, begin = machine(), time.perf_counter()
        parts = benchmark.run(settings)
        took = f"Made by `{command(name, settings)}` in {time.perf_counter() - begin:.0f} s."
        lines = [f"## {name}", "", took, "", *(f"- {line}" for line in where), ""]
        text = "\n".join(lines) + "\n" + "\n".join(part.markdown() for part in parts)
        sys.stdout.write(text)
        if output is not None:
            write_section(output, name, text)


def command(name: str, settings: Settings) -> str:
    """Return the command that repeats this run; paths of this machine are left out."""
    words = ["python -m tests.benchmarks", name]
    words += ["--quick"] if settings.quick else []
    words += ["--data DIR"] if settings.data is not None else []
    words += [f"--sets {','.join(settings.sets)}"] if settings.sets else []
    words += [f"--seeds {settings.seeds}"] if name in SEEDED else []
    words += [f"--threads {settings.threads}", f"--repeats {settings.repeats}"]
    return " ".join(words)


if __name__ == "__main__":
    main()
