"""``python -m tests.digests``: run small fits of every family, and compare their bits with digests.json."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time

from numpy._core import _multiarray_umath as numpy_core

from daskcluster.kernels.jit import tile_name
from tests.digests.digest import Digests, committed, differences, digests_of, message, write
from tests.digests.fits import FITS

_DISABLED = "NPY_DISABLE_CPU_FEATURES"


def main(arguments: list[str] | None = None) -> int:
    words = argparse.ArgumentParser(prog="python -m tests.digests", description=__doc__)
    words.add_argument("--write", action="store_true", help="write the new digests to digests.json")
    words.add_argument("--only", metavar="NAME", help="run only fits whose names contain NAME")
    words.add_argument(
        "--plain",
        action="store_true",
        help="run in a new process without the code paths of NumPy, BLAS and libm for newer CPUs",
    )
    wanted = words.parse_args(arguments)
    if wanted.plain:
        given = [word for word in arguments or sys.argv[1:] if word != "--plain"]
        command = [sys.executable, "-m", "tests.digests", *given]
        os.execve(sys.executable, command, {**os.environ, **plain_environment()})
    names = [name for name in FITS if wanted.only is None or wanted.only in name]
    if not names:
        words.error(f"no name of a fit contains {wanted.only!r}; the fits are: {', '.join(FITS)}")
    begin = time.perf_counter()
    found = {}
    for name in names:
        found[name] = digests_of(FITS[name]())
        spent = time.perf_counter() - begin
        unlike = differences({name: found[name]}, committed()).get(name)
        said = f", other bits: {', '.join(unlike)}" if unlike else ""
        sys.stderr.write(f"{len(found)}/{len(names)} {name}, {spent:.0f} s{said}\n")
    expected = f"{len(found)} fits in {time.perf_counter() - begin:.0f} s on the {tile_name()} tile"
    return _rewrite(found, expected) if wanted.write else _compare(found, expected)


def plain_environment() -> dict[str, str]:
    """Return variables that restrict NumPy, BLAS and libm to code that every CPU of this kind can run."""
    there = numpy_core.__cpu_features__
    left = [name for name in numpy_core.__cpu_dispatch__ if there.get(name)]
    names = " ".join([*os.environ.get(_DISABLED, "").split(), *left])
    found = {_DISABLED: names} if names else {}
    if platform.machine() == "x86_64":
        found["OPENBLAS_CORETYPE"] = "Nehalem"
        found["GLIBC_TUNABLES"] = "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-FMA,-FMA4"
    return found


def _compare(found: Digests, expected: str) -> int:
    unlike = differences(found, committed())
    if unlike:
        sys.stdout.write(message(unlike, len(found), tile_name()) + "\n")
        return 1
    sys.stdout.write(f"{expected}: same bits as committed\n")
    return 0


def _rewrite(found: Digests, expected: str) -> int:
    before = committed()
    changed = [f"  {name}: {', '.join(what)}" for name, what in differences(found, before).items()]
    write({**{name: one for name, one in before.items() if name in FITS}, **found})
    sys.stdout.write("\n".join([f"{expected}; {len(changed)} have new bits", *changed]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
