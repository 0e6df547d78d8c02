"""What earlier versions stored is opened, and resumed to the bits of a fit that was never stopped."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import CheckpointError, LeaseError
from daskcluster.events import Notice
from daskcluster.storage.lease import Lease, folder_of
from tests.archive.fits import (
    ARGUMENTS,
    FITS,
    MEMORY,
    STREAMS,
    digest,
    made,
    put_in_memory,
    stream,
    stream_digest,
)

ARCHIVE = Path(__file__).with_name("2026-11-27.tar.xz")
with tarfile.open(ARCHIVE) as _opened:
    EXPECTED = json.load(_opened.extractfile("expected.json"))

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def streams(stored: Path) -> Iterator[None]:
    put_in_memory(stored / "streams")
    yield
    MEMORY.rm(STREAMS, recursive=True)


REFUSED = {"kernel-batches-all"}
"""Fits whose state has another form now."""
REMOVED = {
    "MiniBatchKernelKMeans": "cut_batches",
    "HierarchicalKMeans": "bounds_memory",
    "VariationalGaussianMixture": "discard_empty precisions_init weights_init",
}
"""Parameters that are gone."""


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_fit_with_another_state_is_refused(name: str, stored: Path) -> None:
    model = made(name, checkpoint=str(stored / "checkpoints" / name))
    with pytest.raises(CheckpointError, match=r"Cannot resume .*best_products_factors"):
        model.fit(np.load(stored / "rows.npy"), resume=True)


@pytest.mark.parametrize("name", sorted(FITS.keys() - REFUSED))
def test_a_stopped_fit_resumes_to_the_same_bits(name: str, stored: Path) -> None:
    heard = []
    model = made(name, checkpoint=str(stored / "checkpoints" / name), callbacks=(heard.append,))
    model.fit(np.load(stored / "rows.npy"), resume=True)
    assert any("resumes" in each.text for each in heard if isinstance(each, Notice))
    assert digest(model) == EXPECTED["fits"][name]


@pytest.mark.parametrize("name", EXPECTED["models"])
def test_a_model_is_loaded_and_saved_as_it_was(name: str, stored: Path, tmp_path: Path) -> None:
    model = dc.load_model(str(stored / "models" / name))
    labels = model.predict(np.load(stored / "rows.npy")[:100])
    assert np.asarray(labels).tolist() == EXPECTED["models"][name]
    model.save(str(tmp_path / "again"))
    texts = [
        json.loads((tmp_path / place / "zarr.json").read_text())
        for place in (f"models/{name}", "again")
    ]
    before, again = (text["attributes"] for text in texts)
    for attributes in (before, again):
        del attributes["sha256"], attributes["body"]["created_with"]
        attributes["body"]["parameters"].pop("init")  # a list is not kept
        attributes["body"]["parameters"].pop("validation", None)  # younger than the archive
        for removed in REMOVED.get(type(model).__name__, "").split():
            attributes["body"]["parameters"].pop(removed, None)
    assert again == before


@pytest.mark.usefixtures("streams")
def test_a_stopped_stream_folds_what_came_since() -> None:
    loop = stream("streaming", "state")
    assert loop.cycle().new_objects == 1
    assert stream_digest(loop) == EXPECTED["streams"]["streaming"]


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize("algorithm", ["mini-batch", "vc-gmm"])
def test_streams_of_former_algorithms_are_refused(algorithm: str) -> None:
    with pytest.raises(CheckpointError, match=f"algorithm was '{algorithm}' and is 'streaming'"):
        stream(algorithm, "state")


def test_leases_are_taken_over_by_their_jobs(stored: Path) -> None:
    for name, attempt in (("running", 2), ("failed", 2), ("done", 1)):
        lease = Lease(folder_of(str(stored / "leases" / name)), name, ARGUMENTS)
        found = lease.earlier()
        assert found is not None
        assert found.state == name.replace("running", "")
        lease.take()
        assert lease.attempt == attempt
    with pytest.raises(LeaseError, match="running"):
        Lease(folder_of(str(stored / "leases" / "running")), "another", {}).take()
