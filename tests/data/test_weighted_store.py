"""Rows that were written with their weights are opened with them; whole or absent."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from scipy import sparse

from daskcluster.data.memory import open_sparse
from daskcluster.data.open import open_dataset
from daskcluster.data.weighted_store import write_weighted
from daskcluster.errors import InvalidParameterError, OutputExistsError

ROWS = np.arange(12.0, dtype=np.float32).reshape(4, 3)
WEIGHTS = np.array([1.0, 0.5, 2.0, 8.0])


def write(url, rows=ROWS, **options):
    write_weighted(str(url), rows, WEIGHTS, np.arange(4), facts={"note": "x"}, **options)


@pytest.mark.parametrize("place", ["disk", "memory://weighted-store"])
def test_weights_come_along(tmp_path, place):
    url = str(tmp_path / "rows") if place == "disk" else place
    write(url)
    opened = open_dataset(url)
    assert np.array_equal(opened.to_numpy(), ROWS)
    assert np.array_equal(np.asarray(opened.weights), WEIGHTS)
    if place == "disk":
        group = zarr.open_group(url, mode="r")
        assert np.array_equal(group["indices"][:], np.arange(4))
        assert group.attrs["note"] == "x"


def test_sparse_rows(tmp_path):
    matrix = sparse.random_array((4, 30), density=0.3, rng=np.random.default_rng(0), format="csr")
    write(tmp_path / "rows", open_sparse(matrix).rows)
    opened = open_dataset(str(tmp_path / "rows"))
    assert (opened.to_scipy() != matrix).nnz == 0
    assert np.array_equal(np.asarray(opened.weights), WEIGHTS)


def test_rows_alone_by_name(tmp_path):
    write(tmp_path / "rows")
    whole = open_dataset(str(tmp_path / "rows"))
    assert np.sum(whole.weights) == WEIGHTS.sum()
    assert np.max(whole.weights) == WEIGHTS.max()
    assert open_dataset(str(tmp_path / "rows"), array="X").weights is None


def test_weights_twice(tmp_path):
    write(tmp_path / "rows")
    with pytest.raises(InvalidParameterError, match="carries weights already"):
        open_dataset(str(tmp_path / "rows"), weights=np.ones(4))


def test_nothing_is_replaced_unasked(tmp_path):
    write(tmp_path / "rows")
    with pytest.raises(OutputExistsError, match="overwrite=True"):
        write(tmp_path / "rows")
    write(tmp_path / "rows", ROWS[:, :2], overwrite=True)
    assert open_dataset(str(tmp_path / "rows")).n_features == 2


def test_whole_or_absent(tmp_path, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("disk full")

    monkeypatch.setattr("daskcluster.data.weighted_store.group_document", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        write(tmp_path / "rows")
    assert list(tmp_path.iterdir()) == []
