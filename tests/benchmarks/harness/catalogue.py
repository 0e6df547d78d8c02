"""The comparisons by name, in the order of the page."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import cast

from tests.benchmarks.harness.cells import Comparison, Target


@dataclass(frozen=True)
class Entry:
    """What a comparison measures (a phrase that begins its section), and how long it takes."""

    what: str
    takes: str


COMPARISONS = {
    "assign": Entry(
        "nearest centre of each row: our kernel against Faiss's flat search and the FMA peak of the "
        "processor",
        "two to three minutes (--quick: 20 seconds)",
    ),
    "wide": Entry(
        "nearest of many centres of wide rows: the search by bounds against our tile and Faiss's flat "
        "search",
        "about nine minutes on 2 cores and 2 GB of memory (--quick: 20 seconds)",
    ),
    "spectra": Entry(
        "nearest of many centres by the spectrum of the rows: decaying, flat and of real pixels, with rows "
        "and means as centres, against our tile and Faiss's flat search",
        "about five minutes on 2 cores and 1 GB of memory (--quick: 20 seconds)",
    ),
    "small": Entry(
        "small calls: labels of 1 to 10,000 rows and a fit of 500, against scikit-learn and Faiss",
        "about a minute on 2 cores (--quick: 10 seconds)",
    ),
    "lloyd": Entry(
        "ten Lloyd iterations on rows in memory: `KMeans` against scikit-learn, "
        "scikit-learn-intelex, Faiss and dask-ml",
        "about 4 minutes on 2 cores (--quick: 20 seconds)",
    ),
    "lloyd-dask": Entry(
        "Lloyd iterations on a Dask cluster: against dask-ml, against the local engine, and two "
        "workers against one",
        "about 5 minutes on 2 cores (--quick: 1 minute)",
    ),
    "bounds": Entry(
        "exact k-means to the fixed point: algorithms with bounds against plain Lloyd and scikit-learn",
        "about an hour on 2 cores (--quick: a minute)",
    ),
    "nested": Entry(
        "nested mini-batches against scikit-learn: time to 1 % above the best energy, and time to the end",
        "about a minute a seed on 2 cores and 2 GB of memory (--quick: a minute)",
    ),
    "quality": Entry(
        "inertia of every k-means estimator with default parameters over the best known, on real and "
        "generated data sets",
        "15 to 30 minutes on 2 cores (--quick: half a minute)",
    ),
    "coreset": Entry(
        "lightweight coresets: time relative to reading the same rows twice, and to numpy on rows "
        "in memory",
        "about 4 minutes on 2 cores, and 3 GB of disk in --scratch DIR (--quick: half a minute and 0.2 GB)",
    ),
    "mixture": Entry(
        "truncated EM (`VariationalGaussianMixture`): against Faiss k-means, by number of "
        "components, and by search",
        "four to six minutes and 0.5 GB of memory (--quick: half a minute)",
    ),
    "kernel-k-means": Entry(
        "kernel k-means: truncated mini-batches against full batches",
        "about 15 minutes on 2 cores, 12 of them for the full batch (--quick: 20 seconds)",
    ),
    "predict": Entry(
        "labels of new rows: rows in memory against every peer, and rows in a Zarr store",
        "about 2 minutes on 2 cores, and 0.3 GB of disk in --scratch DIR (--quick: 20 seconds)",
    ),
    "reading": Entry(
        "passes over a Zarr store by codec and chunk size",
        "about 3 minutes on 2 cores, and 0.3 GB of disk in --scratch DIR (--quick: 20 seconds)",
    ),
    "growth": Entry(
        "time of a Lloyd iteration by n, d, k, chunk size, threads and workers",
        "about 6 minutes on 2 cores (--quick: a minute)",
    ),
    "memory": Entry(
        "out-of-core fits: peak memory against the promised maximum",
        "about 4 minutes on 2 cores, and 0.7 GB of disk in --scratch DIR (--quick: a minute and 0.1 GB)",
    ),
    "import": Entry(
        "start-up time: the import, the command line, and the first fit",
        "about a minute (--quick: half of it)",
    ),
    "pipeline": Entry(
        "80 million rows from a Zarr store to 4,000 Gaussians and the label of every row, by one command",
        "about 10 minutes on 2 cores, and 6 GB of disk in --scratch DIR (--quick: 2 minutes and 0.3 GB)",
    ),
}
"""Each is the module of the same name in `tests.benchmarks.comparisons`, with _ for -."""

_MODULES = {"import": "start_up"}


def comparison(name: str) -> Comparison:
    """Return the comparison of that name."""
    module = _MODULES.get(name, name.replace("-", "_"))
    return cast(Comparison, import_module(f"tests.benchmarks.comparisons.{module}"))


def targets() -> list[tuple[str, Target]]:
    """Return all targets, each with the name of its comparison."""
    return [(name, target) for name in COMPARISONS for target in comparison(name).TARGETS]
