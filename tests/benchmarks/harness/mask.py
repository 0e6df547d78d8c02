"""A processor with AVX-512 made to stand for one that has AVX2 only: ours and the peers are reported so."""

from __future__ import annotations

import os
from collections.abc import Mapping

MARK = "DASKCLUSTER_BENCH_CPU"
"""Environment variable of a process that runs so."""

AVX2 = "avx2"
_PEERS = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Haswell",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "FAISS_SIMD_LEVEL": "AVX2",
}
"""What NumPy, OpenBLAS (of NumPy, SciPy and Faiss), MKL (of oneDAL) and Faiss read when they are loaded."""

_TUNED_FOR = "znver3"
_WIDE = ("avx512", "avx10", "amx")


def is_masked() -> bool:
    """Return whether this process stands for a processor without AVX-512."""
    return os.environ.get(MARK) == AVX2


def without_avx512(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process in which nobody uses more than AVX2."""
    return {**environment, **_PEERS, **_numba(), MARK: AVX2}


def _numba() -> dict[str, str]:
    from daskcluster.kernels.jit import cpu_features

    narrow = sorted(name for name in cpu_features() if not name.startswith(_WIDE))
    features = ",".join(f"+{name}" for name in narrow)
    return {"NUMBA_CPU_NAME": _TUNED_FOR, "NUMBA_CPU_FEATURES": features}
