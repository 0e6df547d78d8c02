"""What ``daskcluster bench`` has no room for: figures of papers, and comparisons with ourselves.

One command for each section: ``python -m tests.benchmarks stream [--quick] [--output FILE.md]``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.harness import Options, machine, say, write_section

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


SEEDED = (
    "nested-digits", "figure2", "figure3", "vc-gmm", "vrkm", "backward-euler", "kernel", "stream",
)  # fmt: skip
"""Those that average over seeds."""
SEEDS = 20
"""Of those that do not say how many they take by themselves."""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Print tables of ratios against other libraries, all measured in one run.",
        epilog="Comparisons with other libraries: daskcluster bench --list.",
    )
    found.add_argument(
        "name",
        choices=[*BENCHMARKS, "all", *REPRODUCTIONS, "reproduction"],
        help="one of them; all: those before it; reproduction: those after all",
    )
    found.add_argument("--quick", action="store_true", help="small shapes, to see that it runs")
    found.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("DASKCLUSTER_DATA"),
        metavar="DIR",
        help="folder with mnist.npz, birch2.npz, worms_2.npz, cifar10_test10k.npz, kddcup99_10pct.npz, "
        "text_la1.npz, cod_rna.npz; default $DASKCLUSTER_DATA; what is missing is generated or left out, "
        "and said",
    )
    found.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    found.add_argument("--repeats", type=int, default=5, help="runs of which the median counts")
    found.add_argument(
        "--output",
        type=Path,
        metavar="FILE.md",
        help="replace the table's section in this file; plots go to images/ beside it",
    )
    found.add_argument(
        "--scratch",
        type=Path,
        metavar="DIR",
        help="folder for data that is written; default: the system's temporary folder",
    )
    found.add_argument("--keep", action="store_true", help="leave that data for the next run")
    found.add_argument(
        "--seeds",
        type=int,
        help=f"random beginnings, of benchmarks that average over them; default {SEEDS} or as they say",
    )
    found.add_argument(
        "--sets",
        type=lambda text: tuple(text.split(",")),
        default=(),
        metavar="NAME,...",
        help="only these sets, of benchmarks that have several",
    )
    return found


def command(name: str, options: Options) -> str:
    """Return the command that repeats this run; paths of this machine are left out."""
    words = ["python -m tests.benchmarks", name]
    words += ["--quick"] if options.quick else []
    words += ["--data DIR"] if options.data is not None else []
    words += [f"--sets {','.join(options.sets)}"] if options.sets else []
    words += [f"--seeds {options.seeds}"] if name in SEEDED else []
    words += [f"--threads {options.threads}", f"--repeats {options.repeats}"]
    return " ".join(words)


def main(arguments: list[str] | None = None) -> None:
    asked = parser().parse_args(arguments)
    options = Options(
        quick=asked.quick,
        data=asked.data,
        threads=asked.threads,
        repeats=asked.repeats,
        scratch=asked.scratch,
        images=None if asked.output is None else asked.output.parent / "images",
        keep=asked.keep,
        sets=asked.sets,
    )
    modules = BENCHMARKS | REPRODUCTIONS
    for name in {"all": BENCHMARKS, "reproduction": REPRODUCTIONS}.get(asked.name, [asked.name]):
        benchmark = importlib.import_module(modules[name])
        seeds = getattr(benchmark, "SEEDS", SEEDS) if asked.seeds is None else asked.seeds
        options = replace(options, seeds=seeds)
        say(f"{name}: takes {benchmark.TAKES}")
        where, begin = machine(), time.perf_counter()
        parts = benchmark.run(options)
        took = f"Made by `{command(name, options)}` in {time.perf_counter() - begin:.0f} s."
        lines = [f"## {name}", "", took, "", *(f"- {line}" for line in where), ""]
        text = "\n".join(lines) + "\n" + "\n".join(part.markdown() for part in parts)
        sys.stdout.write(text)
        if asked.output is not None:
            write_section(asked.output, name, text)


if __name__ == "__main__":
    main()
