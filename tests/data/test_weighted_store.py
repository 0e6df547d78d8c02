"""Rows that were written with their weights are opened with them; whole or absent."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.data.open import open_dataset
from daskcluster.data.weighted_store import write_weighted

ROWS = np.arange(12.0, dtype=np.float32).reshape(4, 3)
WEIGHTS = np.array([1.0, 0.5, 2.0, 8.0])


def write(url, rows=ROWS, **options):
    write_weighted(str(url), rows, WEIGHTS, np.arange(4), facts={"note": "x"}, **options)


def test_rows_alone_by_name(tmp_path):
    write(tmp_path / "rows")
    whole = open_dataset(str(tmp_path / "rows"))
    assert np.sum(whole.weights) == WEIGHTS.sum()
    assert np.max(whole.weights) == WEIGHTS.max()
    assert open_dataset(str(tmp_path / "rows"), array="X").weights is None


def test_whole_or_absent(tmp_path, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("disk full")

    monkeypatch.setattr("daskcluster.data.weighted_store.group_document", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        write(tmp_path / "rows")
    assert list(tmp_path.iterdir()) == []
