"""The fits of the trials: one command for each algorithm, and its outputs."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zarr

from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.models.fitted import is_model, load_document

_ITERATED = "--tol 0 --init random --n-init 1"
FITS = {
    "lloyd": f"--max-iter 12 {_ITERATED}",
    "auto": f"--max-iter 12 {_ITERATED}",
    "hamerly": f"--max-iter 12 {_ITERATED}",
    "yinyang": f"--max-iter 12 {_ITERATED}",
    "elkan": f"--max-iter 12 {_ITERATED}",
    "mini-batch": "--max-iter 3 --batch-size 1000",
    "sgd": "--max-iter 2",
    "nested": "--max-iter 16 --batch-size 2000 --init random",
    "vrkm++": "--max-iter 3 --init random",
    "vrkm": "--max-iter 2 --init random",
    "backward-euler": "--max-iter 12 --batch-size 1000",
    "coreset": "--coreset-size 2000",
    "hierarchical": "--n-coarse 4 --refine-iter 6 --tol 0",
    "kernel": "--max-iter 6",
    "mini-batch-kernel": "--max-iter 12 --batch-size 256 --truncation 100",
    "var-gmm": "--max-iter 6",
    "vc-gmm": "--coreset-size 2000 --max-iter 6",
    "streaming": "--coreset-size 500 --max-iter 20",
}
"""Parameters for fits of a second or two, by algorithm."""

_FEW_ROWS = ("kernel",)
"""Algorithms whose cost is quadratic in the rows."""

TIMEOUT = 30.0
"""Seconds that a command waits for its scheduler; long, because a busy machine is not a fault."""

N_ROWS, N_FEATURES, CHUNK = 48_000, 64, 4_000
N_CLUSTERS = 12


def write_rows(folder: Path, n_rows: int = N_ROWS) -> None:
    """Write the rows of all fits: heavy-tailed, in chunks (and so partitions) of a megabyte."""
    rng = np.random.default_rng(8)
    rows = rng.lognormal(size=(n_rows, N_FEATURES)).astype(np.float32)
    for name, count in (("rows", n_rows), ("few", 4_000)):
        zarr.create_array(
            folder / f"{name}.zarr", data=rows[:count], chunks=(min(CHUNK, count), N_FEATURES)
        )


def place_words(scheduler: str, timeout: float) -> list[str]:
    """Return the flags for the scheduler and its timeout."""
    return ["--scheduler", scheduler, "--timeout", f"{timeout:g}", "--overwrite"]


def digest_of(arrays: Mapping[str, np.ndarray], facts: str = "") -> str:
    """Return a digest of all bits of arrays, and of a text."""
    found = hashlib.sha256(facts.encode())
    for name, array in arrays.items():
        found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()[:16]


def is_whole(array: zarr.Array) -> bool:
    """Return whether no chunk of an array is missing."""
    return bool(array.nchunks_initialized == array.nchunks)


@dataclass(frozen=True)
class Work(ABC):
    """A command to kill.

    Attributes
    ----------
    algorithm : str
        Algorithm, or name of another command.
    data : Path
        Folder of the rows of `write_rows`.
    folder : Path
        Folder for its outputs.
    """

    algorithm: str
    data: Path
    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "kept"

    @property
    def kept_at(self) -> str:
        """The path that an error must name once something is committed."""
        return str(self.checkpoint)

    def has_committed(self) -> bool:
        """Return whether there is a commit to resume from."""
        return any(self.checkpoint.glob("*/*/zarr.json"))

    @abstractmethod
    def arguments(self, scheduler: str, *, resume: bool = False, timeout: float) -> list[str]:
        """Return the arguments of the command; `timeout` is that of the scheduler in seconds."""

    @abstractmethod
    def digest(self) -> str:
        """Return a digest of all bits of the outputs, and of the stop reason."""

    @abstractmethod
    def half_written(self) -> str:
        """Return the name of an output that can be opened but is incomplete; empty if there is none."""


@dataclass(frozen=True)
class Fit(Work):
    """``daskcluster fit`` with one of the algorithms."""

    @property
    def resumes(self) -> bool:
        """Whether the algorithm has checkpoints."""
        return "checkpoint" in ALGORITHMS.find(self.algorithm).parameters

    def arguments(
        self, scheduler: str, *, resume: bool = False, timeout: float = TIMEOUT
    ) -> list[str]:
        source = "few" if self.algorithm in _FEW_ROWS else "rows"
        words = ["fit", str(self.data / f"{source}.zarr"), "--algorithm", self.algorithm]
        words += ["--n-clusters", str(N_CLUSTERS), "--random-state", "5"]
        words += FITS[self.algorithm].split()
        words += ["--model", str(self.folder / "m.zarr"), "--labels", str(self.folder / "l.zarr")]
        words += place_words(scheduler, timeout)
        if self.resumes:
            words += ["--checkpoint", str(self.checkpoint), "--checkpoint-every", "1"]
            words += ["--resume"] if resume else []
        return words

    def digest(self) -> str:
        model = load_document(str(self.folder / "m.zarr"))
        facts = repr((model.n_iter, model.stop_reason, sorted(model.facts().items())))
        labels = zarr.open_array(self.folder / "l.zarr", mode="r")[:]
        return digest_of({**dict(sorted(model.arrays().items())), "labels": labels}, facts)

    def half_written(self) -> str:
        model, labels = self.folder / "m.zarr", self.folder / "l.zarr"
        if os.path.exists(model):
            if not is_model(str(model)):
                return "model"
            load_document(str(model))
        if os.path.exists(labels) and not is_whole(zarr.open_array(labels, mode="r")):
            return "labels"
        return ""
