"""``daskcluster warm-up``: fills the cache of compiled kernels, for this processor or for named ones."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from llvmlite import binding

from daskcluster.cli.console import Console
from daskcluster.cli.options import SectionedCommand, takes_console
from daskcluster.host import host_capabilities
from daskcluster.kernels.jit import sources_digest

_V2 = "cx16 fxsr mmx popcnt sahf sse sse2 sse3 sse4.1 sse4.2 ssse3"
_V3 = f"{_V2} avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
CPUS = {
    "x86-64-v4": frozenset(f"{_V3} avx512bw avx512cd avx512dq avx512f avx512vl".split()),
    "x86-64-v3": frozenset(_V3.split()),
    "neoverse-n1": frozenset("crc dotprod fp-armv8 fullfp16 lse neon rcpc rdm".split()),
}
"""CPU features that compiled code may use, the best CPU first."""

DIGEST_FILE = "stamp"

_ARM_BITS = {
    "fp-armv8": 0, "neon": 1, "crc": 7, "lse": 8, "fullfp16": 10, "rdm": 12, "rcpc": 15, "dotprod": 20,
}  # fmt: skip
"""Documentation/arch/arm64/elf_hwcaps.rst of Linux."""


def runnable() -> list[str]:
    """Return the CPUs whose code this machine can run, the best first."""
    # On ARM, LLVM reads /proc/cpuinfo, which lacks some features and, on an emulated processor, describes
    # the host's processor. The hardware capabilities that Linux passes to each process are right in both
    # cases.
    there = {name for name, has in binding.get_host_cpu_features().items() if has}
    if platform.machine() == "aarch64":
        there |= {name for name, bit in _ARM_BITS.items() if host_capabilities() >> bit & 1}
    return [name for name, features in CPUS.items() if features <= there]


def settings(cpu: str) -> dict[str, str]:
    """Return the environment variables with which numba compiles for a CPU.

    Examples
    --------
    >>> settings("neoverse-n1")["NUMBA_CPU_FEATURES"]
    '+crc,+dotprod,+fp-armv8,+fullfp16,+lse,+neon,+rcpc,+rdm'
    """
    features = ",".join(f"+{name}" for name in sorted(CPUS[cpu]))
    return {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}


def take_shipped(shipped: Path, cache: Path, digest: int) -> str | None:
    """Copy the shipped kernels that suit this machine best into a cache.

    Parameters
    ----------
    shipped : Path
        Has one folder per CPU, as written by ``daskcluster warm-up``.
    cache : Path
        NUMBA_CACHE_DIR of later processes. Existing files are not replaced.
    digest : int
        Digest of the installed kernels, see `daskcluster.kernels.jit.sources_digest`.

    Returns
    -------
    str or None
        The CPU whose `settings` these processes need; None if no shipped kernels with this digest suit the
        machine.
    """
    for cpu in runnable():
        folder = shipped / cpu
        file = folder / DIGEST_FILE
        if file.is_file() and file.read_text() == str(digest):
            for source in (path for path in folder.rglob("*") if path.is_file()):
                target = cache / source.relative_to(folder)
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, target)
            return cpu
    return None


_ROWS, _FEATURES, _MOST_CLUSTERS = 2000, 6, 64


def fill() -> int:
    """Compile the kernels of fits for the CPU of this process; return their number.

    Notes
    -----
    In both dtypes, for one tile height: bounds, mini-batches, streams, coresets, mixtures, sparse rows. In
    float32, for all tile heights: `KMeans` without bounds or with one bound per row. The first fit that
    needs another kernel compiles it; all kernels with all heights would take ten times the space.
    """
    from scipy import sparse

    from daskcluster import KMeans
    from daskcluster.kernels.jit import compilations

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these fits are too short to converge
        for dtype in (np.float32, np.float64):
            rows: Any = np.random.default_rng(0).random((_ROWS, _FEATURES)).astype(dtype)
            for fit in _fits(rows):
                fit.fit(rows)
            few = sparse.csr_array(np.where(rows > 0.7, rows, 0))
            for init in ("k-means++", "k-means||"):
                KMeans(8, init=init, n_init=1, max_iter=4, random_state=0).fit(few)
    return compilations()[1]


def _fits(rows: np.ndarray) -> Iterator[Any]:
    import daskcluster as dc
    from daskcluster.kernels.tile import working_tile

    common: dict[str, Any] = {"random_state": 0, "max_iter": 4}
    heights = {40: 40}
    if rows.dtype == np.float32:
        numbers = range(_MOST_CLUSTERS, 1, -1)
        heights = {working_tile(k, rows.dtype).height: k for k in numbers}
    for k in sorted(heights.values()):
        for algorithm in ("lloyd", "hamerly"):
            yield dc.KMeans(k, algorithm=algorithm, init=rows[:k], tol=0.0, **common)
    for algorithm in ("elkan", "yinyang"):
        yield dc.KMeans(40, algorithm=algorithm, init=rows[:40], tol=0.0, **common)
    for init in ("k-means++", "k-means||"):
        yield dc.KMeans(8, init=init, n_init=1, **common)
    yield dc.MiniBatchKMeans(8, **common)
    yield dc.NestedMiniBatchKMeans(8, **common)
    yield dc.StreamingKMeans(8, random_state=0)
    yield dc.CoresetKMeans(8, random_state=0)
    yield dc.VariationalGaussianMixture(16, **common)


def ship(cpu: str, folder: Path) -> None:
    """Fill ``folder/cpu`` with kernels for one of `CPUS`, in another process.

    Parameters
    ----------
    cpu : str
        A CPU whose code this machine can run, since kernels are compiled by calling them.
    folder : Path
    """
    output = folder / cpu
    output.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **settings(cpu), "NUMBA_CACHE_DIR": str(output.resolve())}
    environment.pop("DASKCLUSTER_TILE", None)
    subprocess.run(
        [sys.executable, "-m", "daskcluster", "warm-up", "--json"], env=environment, check=True
    )
    (output / DIGEST_FILE).write_text(str(sources_digest()))


_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("warm-up", cls=SectionedCommand)
@click.option(
    "--output",
    metavar="FOLDER",
    type=_FOLDER,
    help="Write kernels for shipping to one subfolder per CPU: of x86-64-v3, x86-64-v4 and neoverse-n1, "
    "those whose code this machine can run. Default: fill this machine's own cache.",
)
@click.option(
    "--take",
    metavar="FOLDER",
    type=_FOLDER,
    help="Copy kernels that were shipped in FOLDER to NUMBA_CACHE_DIR, if they suit this machine and this "
    "version, and print shell commands that set the variables numba needs.",
)
@takes_console
def warm_up(output: Path | None, take: Path | None, console: Console) -> None:
    """Compile kernels before the first fit needs them; a minute or two for each CPU."""
    if take and output:
        raise click.UsageError("--take and --output are two uses of kernels; give one of them.")
    if take is not None:
        cache = os.environ.get("NUMBA_CACHE_DIR")
        if not cache:
            raise click.UsageError(
                "--take copies to NUMBA_CACHE_DIR, which is not set; set it to a folder."
            )
        cpu = take_shipped(take, Path(cache), sources_digest())
        for name, value in settings(cpu).items() if cpu else ():
            click.echo(f"export {name}={shlex.quote(value)}")
        return
    if output is None:
        with console.watching():
            compiled = fill()
        console.emit({"compiled": compiled}, [("compiled", f"{compiled} kernels")])
        return
    known = runnable()
    if not known:
        raise click.UsageError(
            f"--output fills folders for {', '.join(CPUS)}, and this machine can run code for none of "
            "them; fill them on a machine that can, or let the first fit on each machine compile its "
            "kernels."
        )
    for cpu in known:
        ship(cpu, output)
    console.emit(
        {"output": str(output), "cpus": known},
        [("output", str(output)), ("CPUs", ", ".join(known))],
    )
