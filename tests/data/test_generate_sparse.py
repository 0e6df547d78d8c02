"""Synthetic sparse rows belong to their index, not to blocks or threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskcluster import open_dataset
from daskcluster.data.generate import SparseMixture, generate
from daskcluster.errors import InvalidParameterError

SHAPE: dict[str, Any] = {"n_features": 500, "n_clusters": 6, "n_nonzeros": 20, "seed": 3}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_do_not_depend_on_threads(tmp_path: Path, dtype: str) -> None:
    found = []
    for n_threads in (1, 3):
        path = tmp_path / f"{n_threads}.zarr"
        options = {"sparse": True, "n_threads": n_threads, "dtype": dtype, **SHAPE}
        mixture = generate(path, n_rows=20_000, **options)
        found.append(open_dataset(path).load((0, 20_000)).rows)
    one, other = found
    assert one.dtype == dtype
    assert one.data.tobytes() == other.data.tobytes()
    assert one.indices.tobytes() == other.indices.tobytes()
    again = mixture.rows(8000, 9000)
    assert np.array_equal(again.toarray(), one[8000:9000].toarray())


def test_rows_follow_the_mixture() -> None:
    mixture = SparseMixture(**SHAPE)
    rows = mixture.rows(0, 20_000)
    lengths = np.sqrt(np.add.reduceat(rows.data.astype(float) ** 2, rows.indptr[:-1]))
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-6)
    assert 10 < len(rows.data) / 20_000 <= 20
    assert (np.diff(rows.indptr) > 0).all()
    frequent = np.sort(np.bincount(rows.indices, minlength=500))[::-1]
    assert frequent[0] > 20 * frequent[250]
    # Rows of a cluster look more like each other than like others.
    labels = mixture.labels(0, 20_000)
    means = np.array([rows[labels == j].toarray().mean(axis=0) for j in range(6)])
    nearest = (rows[:2000].toarray() @ means.T).argmax(axis=1)
    assert np.mean(nearest == labels[:2000]) > 0.8
    assert not np.array_equal(SparseMixture(**{**SHAPE, "seed": 4}).rows(0, 5).data, rows[:5].data)


def test_bad_requests_leave_nothing(tmp_path: Path) -> None:
    for bad in ({"n_nonzeros": 0}, {"dtype": "float16"}, {"chunk_rows": 100}):
        with pytest.raises(InvalidParameterError, match=next(iter(bad))):
            generate(tmp_path / "x.zarr", n_rows=10, sparse=True, **{**SHAPE, **bad})
    assert list(tmp_path.iterdir()) == []
