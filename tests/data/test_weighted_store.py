"""Rows that were written with their weights are opened with them or alone; whole or absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import daskcluster as dc


@pytest.fixture
def drawn() -> dc.LightweightCoreset:
    rows = np.random.default_rng(0).lognormal(size=(50, 3))
    return dc.LightweightCoreset(9, random_state=0).fit(rows)


def test_rows_alone_by_name(drawn: dc.LightweightCoreset, tmp_path: Path) -> None:
    drawn.save(str(tmp_path / "rows"))
    whole = dc.open_dataset(str(tmp_path / "rows"))
    assert np.sum(whole.weights) == np.sum(drawn.coreset_.weights)
    assert np.max(whole.weights) == np.max(drawn.coreset_.weights)
    assert dc.open_dataset(str(tmp_path / "rows"), array="X").weights is None


def test_whole_or_absent(
    drawn: dc.LightweightCoreset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("disk full")

    monkeypatch.setattr("daskcluster.data.writer.group_document", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        drawn.save(str(tmp_path / "rows"))
    assert list(tmp_path.iterdir()) == []
