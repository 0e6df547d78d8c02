"""Inertia over the best known: one small set from start to end, exact figures, refusals and targets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from scipy.sparse import csr_array

from daskcluster import LocalEngine
from tests.benchmarks.comparisons import quality
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.store import Results


def test_the_name_measures_every_estimator(
    here: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "QUICK", ("iris",))
    result = run("quality", "--quick", "--threads", "1", "--output", "out")
    assert result.exit_code == 0, result.output
    kept = Results(Path("out/results/bench-quick")).read("quality")["iris"]["figures"]
    assert list(kept["clusters"]) == ["2", "3", "20", "30"]
    for one in kept["clusters"].values():
        assert set(one["fits"]) == {*quality.OURS, *quality.PEERS}
        assert all(1 <= ratio < 2 for fit in one["fits"].values() for ratio in fit["ratios"])
    assert all(f"| `{name}` | 1." in result.output for name in quality.OURS)


def test_inertia_is_exact_for_dense_and_sparse_rows() -> None:
    X = np.random.default_rng(0).poisson(1.0, (60, 5)).astype(np.float32)
    expected = float(((X[:, None].astype(float) - X[:4]) ** 2).sum(axis=2).min(axis=1).sum())
    for each in (X, csr_array(X)):
        assert quality.inertia(each, X[:4], LocalEngine(1)) == pytest.approx(expected)
        assert quality.distinct(each) == len(np.unique(X, axis=0))


def records(**ratios: list[float] | str) -> dict[str, Any]:
    fits: dict[str, Any] = {
        name: {"ratios": [1.0], "seconds": 2.0} for name in (*quality.OURS, *quality.PEERS)
    }
    for name, one in ratios.items():
        fits[name] = {"refused": one} if isinstance(one, str) else {**fits[name], "ratios": one}
    return {name: {"clusters": {"2": {"fits": fits}}} for name in quality.SETS}


def test_the_worst_estimator_counts() -> None:
    median, worst = quality.TARGETS
    good = records(KMeans=[1.0, 1.04, 9.0])
    assert median.read(good).text == "at most 1.040 (KMeans)"
    assert median.read(good).met
    assert worst.read(good).met
    bad = {**good, "iris": records(CoresetKMeans=[1.5])["iris"]}
    assert median.read(bad).met
    n_cells = len(bad) * len(quality.OURS)
    assert worst.read(bad).text == f"1.50 (CoresetKMeans, iris, k = 2); 1 of {n_cells} are above"
    assert not worst.read(bad).met
    few = dict(list(good.items())[: quality.LEAST_SETS - 1])
    assert median.read(few) is worst.read(few) is None


def test_exceptions_are_named() -> None:
    found = {"iris": records(KMeans=[1.4], CoresetKMeans="rows are sparse")["iris"]}
    (table,) = quality.show(found, Settings())
    lines = {line[0]: line[1:] for line in table.rows}
    assert lines["`KMeans`"] == ["1.400", "1.400", "1.400", "iris, k = 2", 1, None, 2.0]
    assert lines["`CoresetKMeans`"] == [None] * 5 + [1, 0.0]
    assert table.notes[-3].endswith("is above 1.3 in: iris, k = 2 (1.40).")
    assert table.notes[-2] == "`CoresetKMeans` refuses iris, k = 2: rows are sparse"
    assert ", ".join(quality.FILES) in table.notes[-1]
