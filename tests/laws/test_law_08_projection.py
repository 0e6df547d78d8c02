"""Law 8: measured peaks stay within the projection, on threads and workers; long runs do not grow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from distributed import Client

from daskcluster import open_dataset
from daskcluster.cli.console import EngineOptions
from daskcluster.cli.dry_run import project_plan
from daskcluster.data.generate import generate
from daskcluster.engine.connect import local_cluster
from daskcluster.engine.dask import DaskEngine
from daskcluster.methods.catalogue import ALGORITHMS, plan_of

MB = 1 << 20
LIMIT = 620 * MB
MARGIN = 24 * MB
"""Compiled code that is loaded when it is first used."""

FAMILIES: dict[str, dict[str, Any]] = {
    "lloyd": {"init": "k-means||", "max_iter": 4, "tol": 0.0},
    "hamerly": {"init": "random", "n_init": 1, "max_iter": 6, "tol": 0.0},
    "yinyang": {"init": "random", "n_init": 1, "max_iter": 6, "tol": 0.0},
    "elkan": {"init": "random", "n_init": 1, "max_iter": 6, "tol": 0.0},
    "mini-batch": {"max_iter": 2, "batch_size": 10_000},
    "nested": {"init": "random", "max_iter": 12},
    "vrkm++": {"init": "random", "max_iter": 2},
    "backward-euler": {"max_iter": 10},
    "coreset": {"coreset_size": 10_000},
    "kernel": {"max_iter": 3},
    "mini-batch-kernel": {"max_iter": 6},
    "hierarchical": {"n_coarse": 4, "refine_iter": 8},
    "streaming": {"coreset_size": 5_000},
    "var-gmm": {"max_iter": 3},
    "vc-gmm": {"max_iter": 3},
}
IN_CI = ("lloyd",)
ROOM_FOR_BOUNDS = {"hamerly": 160 * MB, "yinyang": 200 * MB, "elkan": 500 * MB}
"""More than `LIMIT`, half of which the libraries fill."""
QUADRATIC = ("kernel",)
"""Algorithms that visit all pairs of rows; so they get few."""

PROGRAM = """
import json, sys
from pathlib import Path
from daskcluster.cli.main import main
main(sys.argv[1:], standalone_mode=False)
# Not ru_maxrss: a child process inherits that of its parent.
status = Path("/proc/self/status").read_text()
print(json.dumps(int(status.partition("VmHWM:")[2].split()[0]) * 1024))
"""


def flags(parameters: dict[str, Any]) -> list[str]:
    return [w for name, v in parameters.items() for w in (f"--{name.replace('_', '-')}", str(v))]


def measured(figure: str, process: int | str = "self") -> int:
    """Return ``"VmHWM"``, the peak of a process's resident bytes, or ``"VmRSS"``, what they are now."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition(f"{figure}:")[2].split()[0]) * 1024


def of_workers(client: Client, figure: str) -> list[int]:
    # From here: a worker that is sent a function of this module imports all that tests import.
    return [measured(figure, process) for process in client.run(os.getpid).values()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("projection")


def rows_for(algorithm: str, folder: Path) -> str:
    """Return 2 million rows, 128 MB, in chunks of 8 MB; or 20,000 where all pairs are visited."""
    n_rows = 20_000 if algorithm in QUADRATIC else 2_000_000
    url = folder / f"{n_rows}.zarr"
    if not url.exists():
        generate(str(url), n_rows=n_rows, n_features=16, n_clusters=16)
    return str(url)


def limit_of(algorithm: str) -> int:
    """Return what a process may use."""
    return LIMIT + ROOM_FOR_BOUNDS.get(algorithm, 0)


def projected(rows: str, algorithm: str, place: EngineOptions) -> int:
    """Return what a fit may take: the projection, and the largest bounds that fit in the room for them."""
    given = {"n_clusters": 16, **FAMILIES[algorithm]}
    dataset = open_dataset(rows)
    found = project_plan(dataset, plan_of(dataset, algorithm, given), place)
    bounds = [found["bounds"]["needed"][kind] for kind in found["bounds"]["fitting"]]
    assert bounds or algorithm not in ROOM_FOR_BOUNDS
    return int(found["memory"]["projected"]) + max(bounds, default=0)


def tell(what: str, **sizes: int) -> None:
    """Print figures, for ``pytest -s``."""
    message = ", ".join(f"{name} {size / MB:,.0f} MiB" for name, size in sizes.items())
    sys.stdout.write(f"\n{what}: {message}\n")


MARKED = [
    name if name in IN_CI else pytest.param(name, marks=pytest.mark.slow, id=name)
    for name in FAMILIES
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("algorithm", MARKED)
def test_a_peak_on_threads(folder: Path, tmp_path: Path, algorithm: str) -> None:
    rows, limit = rows_for(algorithm, folder), limit_of(algorithm)
    place = EngineOptions(threads=2, memory_limit=limit)
    words = ["fit", rows, "--algorithm", algorithm, "--n-clusters", "16", "--random-state", "0"]
    words += flags(FAMILIES[algorithm])
    words += ["--threads", "2", "--memory-limit", str(limit), "--model", str(tmp_path / "m")]
    words += ["--labels", str(tmp_path / "labels.zarr"), "--overwrite"]
    for _ in range(2):  # the first run compiles what is not in the cache
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    allowed = projected(rows, algorithm, place)
    tell(f"{algorithm} on threads", peak=found, projected=allowed)
    assert found <= allowed + MARGIN
    assert found <= limit


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("spawned")
@pytest.mark.parametrize("algorithm", list(FAMILIES))
def test_a_peak_on_workers(folder: Path, algorithm: str) -> None:
    rows, limit = rows_for(algorithm, folder), limit_of(algorithm)
    parameters = {"n_clusters": 16, "random_state": 0, **FAMILIES[algorithm]}
    entry = ALGORITHMS.find(algorithm)
    for _ in range(2):  # the first run compiles what is not in the cache
        with local_cluster(2, memory_limit=2 * limit) as client:
            engine = DaskEngine(client)
            place = EngineOptions(scheduler=client.scheduler.address)
            allowed = projected(rows, algorithm, place)
            model = resolve_name(entry.estimator)(**entry.arguments(parameters), engine=engine)
            model.fit(open_dataset(rows))
            peaks = of_workers(client, "VmHWM")
    tell(f"{algorithm} on workers", peaks=sum(peaks), projected=allowed)
    assert sum(peaks) <= allowed + MARGIN * len(peaks)
    assert max(peaks) <= limit


# -- long runs ------------------------------------------------------------------------------------------

GROWTH = 12 * MB
FEW, MANY = 30, 300


@pytest.fixture(params=["threads", pytest.param("workers", marks=pytest.mark.slow)])
def place(request: Any) -> Iterator[Any]:
    """Yield an engine, and a function that returns the resident bytes of all its processes."""
    import daskcluster as dc

    if request.param == "threads":
        yield dc.LocalEngine(2), lambda: measured("VmRSS")
        return
    with local_cluster(2, memory_limit=2 * LIMIT) as client:
        yield DaskEngine(client), lambda: measured("VmRSS") + sum(of_workers(client, "VmRSS"))


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("spawned")
@pytest.mark.parametrize("algorithm", ["lloyd", "hamerly"])
def test_memory_does_not_grow_with_iterations(tmp_path: Path, place: Any, algorithm: str) -> None:
    import daskcluster as dc

    engine, measure = place
    url = str(tmp_path / "rows.zarr")
    generate(url, n_rows=100_000, n_features=16, n_clusters=40)
    dataset, sizes = open_dataset(url), []
    for count in range(FEW, MANY + 1, FEW):
        model = dc.KMeans(
            60, init="random", n_init=1, max_iter=FEW, tol=0, random_state=count, algorithm=algorithm,
            engine=engine,
        )  # fmt: skip
        model.fit(dataset)
        sizes.append(measure())
    tell(f"{algorithm} on {engine.name}", after_60=sizes[1], after_300=sizes[-1])
    # The first fit loads what all of them need, and the second settles the allocator.
    assert sizes[-1] - sizes[1] <= GROWTH * (3 if engine.name == "dask" else 1)
