"""The machine's FMA peak: independent chains of vector FMAs that never leave the registers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from daskcluster.kernels import emit
from daskcluster.kernels.jit import kernel, tile_name

CHAINS = 16
"""Independent chains: more than latency times throughput of known FMA units, and few enough for 32
registers. With 16 registers, half as many are used."""

_BYTES = {"avx512": 64, "avx2": 32, "neon": 16, "portable": 16}


@intrinsic(prefer_literal=True)
def _spin(typingctx: Any, rounds: Any, seed: Any, lanes: Any, chains: Any) -> Any:
    if not all(isinstance(kind, types.IntegerLiteral) for kind in (lanes, chains)):
        return None
    signature = seed(types.intp, seed, lanes, chains)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = emit.splat(builder, args[1], lanes.literal_value)

        def advance(_: Any, sums: list[Any]) -> list[Any]:
            return [emit.fma(builder, total, value, value) for total in sums]

        total, *rest = emit.loop(builder, args[0], 1, [value] * chains.literal_value, advance)
        for other in rest:
            total = builder.fadd(total, other)
        return builder.extract_element(total, ir.Constant(emit.I32, 0))

    return signature, codegen


@cache
def _spinner(lanes: int, chains: int) -> Any:
    def build(lanes: int, chains: int) -> Any:
        def spin(rounds, seeds):  # type: ignore[no-untyped-def]
            seeds[0] = _spin(rounds, seeds[0], lanes, chains)

        return kernel(spin)

    return build(lanes, chains)


def fma_peak(dtype: Any = np.float32, threads: int = 1, seconds: float = 0.3) -> float:
    """Return FLOP/s (two per lane and FMA) of `threads` threads: the best of several bursts."""
    kind, name = np.dtype(dtype), tile_name()
    lanes = _BYTES[name] // kind.itemsize
    chains = CHAINS if name in ("avx512", "neon") else CHAINS // 2 + 2
    spin = _spinner(lanes, chains)
    rounds = 200_000
    spin(rounds, np.full(1, 0.5, kind))
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            seeds = [np.full(1, 0.5, kind) for _ in range(threads)]
            begin = time.perf_counter()
            list(pool.map(spin, [rounds] * threads, seeds))
            took = time.perf_counter() - begin
            best = max(best, 2.0 * lanes * chains * rounds * threads / took)
    return best
