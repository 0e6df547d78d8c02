"""Restrict our kernels and the peers to AVX2 on a processor with AVX-512, as on one of 2013 to 2020."""

from __future__ import annotations

import os
from collections.abc import Mapping

MARK = "DASKCLUSTER_BENCH_CPU"
"""Environment variable of a restricted process."""

AVX2 = "avx2"
_PEERS = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Haswell",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "FAISS_SIMD_LEVEL": "AVX2",
}
"""Variables that NumPy, OpenBLAS (NumPy, SciPy, Faiss), MKL (oneDAL) and Faiss read on loading."""

_TUNED_FOR = "znver3"
# The last one multiplies integers of 8 bits; most processors without AVX-512 lack it.
_WIDE = ("avx512", "avx10", "amx", "avxvnni")


def is_masked() -> bool:
    """Return whether this process is restricted to AVX2."""
    return os.environ.get(MARK) == AVX2


def without_avx512(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process in which all libraries are restricted to AVX2."""
    return {**environment, **_PEERS, **_numba(), MARK: AVX2}


def _numba() -> dict[str, str]:
    from daskcluster.kernels.jit import cpu_features

    narrow = sorted(name for name in cpu_features() if not name.startswith(_WIDE))
    features = ",".join(f"+{name}" for name in narrow)
    return {"NUMBA_CPU_NAME": _TUNED_FOR, "NUMBA_CPU_FEATURES": features}
