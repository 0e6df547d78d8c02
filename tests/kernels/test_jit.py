"""Compilation: the cache, the choice of the tile, and other CPUs in a process of their own."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import daskcluster
from daskcluster.errors import InvalidParameterError
from daskcluster.kernels import jit
from daskcluster.kernels import jit as features_module
from daskcluster.kernels.compiling import watched

PROGRAM = """
import hashlib, warnings
import numpy as np
warnings.simplefilter("error")
from daskcluster.kernels.accumulate import accumulate
from daskcluster.kernels.distance import sqdist_to_assigned
from daskcluster.kernels.jit import compilations, tile_name
from daskcluster.kernels.tile import nearest, pack
rng = np.random.default_rng(0)
rows = rng.standard_normal((333, 13)).astype(np.float32) + np.float32(50)
labels, second = np.empty((2, 333), np.int32)
scores, distances = np.empty((333, 2), np.float32), np.empty(333)
centres = rows[:29].copy()
sums, counts = np.zeros((29, 13)), np.zeros(29, np.int64)
nearest(rows, pack(centres), labels, second, scores)
sqdist_to_assigned(rows, centres, labels, distances)
accumulate(rows, labels, np.full(13, 1.5 * 2.0**20), sums, counts)
digest = hashlib.sha256()
for result in (labels, second, scores, distances, sums, counts):
    digest.update(result.tobytes())
print(tile_name(), digest.hexdigest(), *compilations())
"""


def run(**environment: str) -> list[str]:
    inherited = {
        k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "DASKCLUSTER_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**inherited, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("numba")


@pytest.fixture(scope="module")
def here(cache_folder: Path) -> list[str]:
    return run(NUMBA_CACHE_DIR=str(cache_folder))


def test_second_process_compiles_nothing(here: list[str], cache_folder: Path) -> None:
    _, digest, _, compiled = here
    assert int(compiled) > 0
    _, again, loaded, compiled = run(NUMBA_CACHE_DIR=str(cache_folder))
    assert again == digest
    assert int(compiled) == 0
    assert int(loaded) > 0


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("name", "cpu", "features"),
    [
        ("avx2", "haswell", "+sse2,+sse4.2,+avx,+avx2,+fma"),
        ("neon", None, None),
        ("portable", "haswell", "+sse2,+sse4.2,+avx,+avx2,+fma"),
    ],
)
def test_other_tiles_give_the_same_bits(
    here: list[str], cache_folder: Path, name: str, cpu: str | None, features: str | None
) -> None:
    environment = {"NUMBA_CACHE_DIR": str(cache_folder)}
    if name != "avx2":
        environment["DASKCLUSTER_TILE"] = name
    if cpu is not None and features is not None:
        if "avx2" not in jit.cpu_features():
            pytest.skip("this CPU has no AVX2 to run haswell code")
        environment |= {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}
    tile, digest, *_ = run(**environment)
    assert tile == name
    assert digest == here[1]


@pytest.mark.kernels
def test_a_cpu_of_which_nothing_is_known_gets_the_portable_tile(cache_folder: Path) -> None:
    tile, *_ = run(NUMBA_CACHE_DIR=str(cache_folder), NUMBA_CPU_NAME="nehalem")
    assert tile == "portable"


@pytest.mark.kernels
@pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="the CPU named is one for x86"
)
def test_a_target_without_fma_gives_the_same_bits(here: list[str], cache_folder: Path) -> None:
    plain = {
        "NUMBA_CPU_NAME": "nehalem",
        "NUMBA_CPU_FEATURES": "+sse2,+sse3,+ssse3,+sse4.1,+sse4.2",
    }
    tile, digest, *_ = run(NUMBA_CACHE_DIR=str(cache_folder), **plain)
    assert tile == "portable"
    assert digest == here[1]


@pytest.mark.kernels
def test_code_for_a_plain_cpu_has_the_tile_of_this_one(here: list[str], cache_folder: Path) -> None:
    if here[0] == "portable":
        pytest.skip("this CPU has no register tile")
    tile, digest, *_ = run(NUMBA_CACHE_DIR=str(cache_folder), NUMBA_CPU_NAME="generic")
    assert (tile, digest) == (here[0], here[1])


@pytest.mark.parametrize(
    ("cpu", "features", "there", "granted"),
    [
        ("generic", "", {"avx2", "fma", "avx512f", "avx512vl", "avx512dq"}, "avx512"),
        ("x86-64-v2", None, {"avx2", "fma", "avx512f"}, "avx2"),
        ("generic", "", {"avx2"}, ""),
        ("generic", "+avx", {"avx2", "fma"}, ""),
        (None, None, {"avx2", "fma"}, ""),
    ],
)
def test_intrinsics_may_use_what_a_plain_cpu_lacks(
    monkeypatch: pytest.MonkeyPatch,
    cpu: str | None,
    features: str | None,
    there: set[str],
    granted: str,
) -> None:
    host = dict.fromkeys(there, True)
    monkeypatch.setattr(features_module._CONFIG, "CPU_NAME", cpu)
    monkeypatch.setattr(features_module._CONFIG, "CPU_FEATURES", features)
    monkeypatch.setattr(features_module.binding, "get_host_cpu_features", lambda: host)
    wanted = ",".join(f"+{name}" for name in features_module.WANTED.get(granted, ()))
    assert features_module._granted() == wanted


def test_machines_that_run_other_code_share_no_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jit._CONFIG, "CACHE_DIR", str(tmp_path))
    own = Path(jit.__file__).with_name("tile.py")
    place = Path(jit.GivenFolder(run, str(own)).get_cache_path())
    assert len(place.relative_to(tmp_path).parts[0]) == 12  # a digest, and not where the package is
    places = set()
    for granted in ("", "+avx2,+fma", "+avx512f,+avx512vl,+avx512dq"):
        monkeypatch.setattr(jit, "GRANTED", granted)
        places.add(jit.GivenFolder(run, __file__).get_cache_path())
    assert len(places) == 3


def test_the_cache_of_another_version_is_not_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Its index may name classes that are gone, and numba unpickles it before it compares stamps.
    monkeypatch.setattr(jit._CONFIG, "CACHE_DIR", str(tmp_path))
    places = set()
    for digest in (1, 2):
        monkeypatch.setattr(jit, "digest_of_uses", lambda path, digest=digest: digest)
        places.add(jit.GivenFolder(run, __file__).get_cache_path())
    assert len(places) == 2


def test_unknown_tile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jit.OVERRIDE, "sse9")
    jit.tile_name.cache_clear()
    with pytest.raises(
        InvalidParameterError, match=r"DASKCLUSTER_TILE='sse9' should be one of avx"
    ):
        jit.tile_name()
    monkeypatch.undo()
    jit.tile_name.cache_clear()


def test_no_writable_cache_warns_once_and_still_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    real = jit.njit

    def without_cache(*, cache: bool, **options: object) -> object:
        if cache:
            raise RuntimeError("cannot cache function 'f': no locator available for file 'f.py'")
        return real(cache=False, **options)

    monkeypatch.setattr(jit, "njit", without_cache)
    jit._warn_uncached.cache_clear()
    with pytest.warns(RuntimeWarning, match="set NUMBA_CACHE_DIR"):
        jit.kernel(lambda x: x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        doubled = jit.kernel(lambda x: x + x)
    assert doubled(np.float32(2)) == 4


_INNER = """
from daskcluster.kernels.jit import kernel

@kernel
def inner(x):
    return x + {}
"""

_OUTER = """
from daskcluster.{place}.inner import inner
from daskcluster.kernels.jit import kernel

@kernel
def outer(x):
    return 2.0 * inner(x)
"""

_CALL = """
from daskcluster.kernels.outer import outer
from daskcluster.kernels.jit import compilations
print(outer(1.0), *compilations())
"""


@pytest.mark.parametrize("place", ["kernels", "methods.some.kernels"])
def test_a_kernel_is_compiled_anew_when_one_that_it_calls_is_edited(
    tmp_path: Path, place: str
) -> None:
    package = tmp_path / "daskcluster"
    (package / "kernels").mkdir(parents=True)
    own = Path(daskcluster.__file__).parent
    kernels = ("__init__", "compiling", "jit")
    for name in ("errors.py", "deprecation.py", *(f"kernels/{module}.py" for module in kernels)):
        shutil.copyfile(own / name, package / name)
    (package / "__init__.py").touch()
    inner = package.joinpath(*place.split("."), "inner.py")
    inner.parent.mkdir(parents=True, exist_ok=True)
    (package / "kernels" / "outer.py").write_text(_OUTER.format(place=place))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path)}
    # An edit within a second would leave byte code that looks as new as its source.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"

    def call(addend: float) -> list[str]:
        inner.write_text(_INNER.format(addend))
        words = [sys.executable, "-c", _CALL]
        found = subprocess.run(
            words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return found.stdout.split()

    assert call(1.0) == ["4.0", "0", "2"]
    assert call(1.0) == ["4.0", "1", "0"]  # what it calls is part of it
    assert call(5.0) == ["12.0", "0", "2"]
    (package / "kernels" / "other.py").write_text(_INNER.format(7.0))
    assert call(5.0) == ["12.0", "1", "0"]  # what it does not call is no part of it


def test_watchers_are_called_for_compiled_kernels_and_not_for_loaded_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit._CONFIG, "CACHE_DIR", str(tmp_path))
    heard: list[int] = []

    def plus_one(x):  # type: ignore[no-untyped-def]
        return max(x, 1) + 1  # for `max` numba compiles a function of its own

    for _ in range(2):
        with watched(heard.append):
            assert jit.kernel(plus_one)(2) == 3
        assert len(heard) == 1
    with watched(heard.append):
        jit.kernel(plus_one)(2.5)
    assert heard == [heard[0], heard[0] + 1]
