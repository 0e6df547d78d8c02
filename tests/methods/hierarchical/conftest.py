"""Rows so few that one cell would hold them all are divided, as larger ones are."""

from __future__ import annotations

import pytest

from daskcluster.methods.hierarchical import estimator as fit


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``n_coarse="auto"`` be the square root of the number of clusters."""
    monkeypatch.setattr(fit, "_ONE_CELL", 0)
