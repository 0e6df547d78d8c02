"""Sparse sources become CSR groups: the same rows, with their weights, whole or absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from scipy import sparse

from daskcluster import open_dataset
from daskcluster.cli.main import main
from daskcluster.data.convert import convert
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.events import PassEnded, PassProgress
from tests.data.test_sparse import make
from tests.data.test_sparse_zarr import put


def test_a_matrix_and_a_file_of_scipy(tmp_path: Path) -> None:
    matrix = make(3000, 40)
    sparse.save_npz(tmp_path / "x.npz", matrix)
    heard: list[Any] = []
    for name, source in (("a", matrix), ("b", str(tmp_path / "x.npz"))):
        done = convert(source, tmp_path / name, callbacks=[heard.append])
        assert (done.n_rows, done.n_features, done.n_entries) == (3000, 40, matrix.nnz)
        assert (done.array, done.dtype, done.shard_rows) == (None, "float32", None)
        assert np.array_equal(open_dataset(tmp_path / name).to_numpy(), matrix.toarray())
    assert sum(event.rows for event in heard if isinstance(event, PassProgress)) == 6000
    assert isinstance(heard[-1], PassEnded)


def test_weights_and_another_dtype(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "cells.zarr", mode="w")
    matrix = make(3000, 40, dtype=np.float64)
    put(root.create_group("X"), matrix)
    root.create_array("w", data=np.arange(3000.0))
    done = convert(tmp_path / "cells.zarr", tmp_path / "o.zarr", array="X", weights="w", dtype="f4")
    assert (done.array, done.weights, done.dtype) == ("X", "weights", "float32")
    dataset = open_dataset(tmp_path / "o.zarr", array="X", weights="weights")
    assert dataset.dtype == np.float32
    assert np.array_equal(dataset.to_numpy(), matrix.toarray().astype(np.float32))
    assert np.array_equal(np.asarray(dataset.weights), np.arange(3000.0))


def test_a_refused_conversion_leaves_nothing(tmp_path: Path) -> None:
    matrix = make(300, 40, dtype=np.float64)
    matrix.data[matrix.indptr[77]] = 1e300
    with pytest.raises(InvalidDataError, match=r"1e\+300, in rows \d+ to \d+, is too large"):
        convert(matrix, tmp_path / "o.zarr", dtype="float32")
    with pytest.raises(InvalidParameterError, match="chunk_rows=100 is for dense rows"):
        convert(matrix, tmp_path / "o.zarr", chunk_rows=100)
    sparse.save_npz(tmp_path / "x.npz", matrix)
    with pytest.raises(InvalidParameterError, match="one sparse matrix and nothing else"):
        convert(str(tmp_path / "x.npz"), tmp_path / "o.zarr", array="data")
    assert not (tmp_path / "o.zarr").exists()


def call(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_from_a_file_to_labels_on_the_command_line(tmp_path: Path) -> None:
    matrix = make(4000, 60)
    sparse.save_npz(tmp_path / "x.npz", matrix)
    rows, model, labels = (str(tmp_path / name) for name in ("rows.zarr", "model", "labels.zarr"))
    assert call("convert", str(tmp_path / "x.npz"), rows)["n_entries"] == matrix.nnz
    facts = call("info", rows)
    assert (facts["stored_values"], facts["bytes"]) == (matrix.nnz, 8 * (matrix.nnz + 4000))
    plan = call("fit", rows, "--n-clusters", "5", "--model", model, "--dry-run")
    assert plan["bytes_decoded"] == 8 * (matrix.nnz + 4000)
    assert plan["flop_per_iteration"] == 2.0 * matrix.nnz * 5
    fit = call("fit", rows, "--n-clusters", "5", "--random-state", "0", "--model", model)
    call("predict", model, rows, "--output", labels)
    assert zarr.open_array(labels, mode="r").shape == (4000,)
    assert call("score", model, rows)["inertia"] == pytest.approx(fit["inertia"], rel=1e-12)
