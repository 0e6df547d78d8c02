"""The comparison of kernel k-means: what is compared, tables and plots, and that finished fits are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import kernel_kmeans
from tests.benchmarks.harness.parts import Figure, Table
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.kernel_kmeans import problems, programs
from tests.reference import kernel_kmeans as reference


def test_matrices_of_graphs_are_exact() -> None:
    X = np.random.default_rng(0).normal(size=(150, 3))
    heat, knn = reference.heat(X, 24.0, n_neighbors=8), reference.knn(X, n_neighbors=8)
    np.testing.assert_allclose(problems.graph_matrix(X, 8, 24.0), heat, atol=1e-7)
    np.testing.assert_allclose(problems.graph_matrix(X, 8, None), knn, atol=1e-7)


def test_a_small_set_has_all_cells_and_a_large_one_those_of_figure_1() -> None:
    X, y = np.zeros((30, 2), np.float32), np.arange(30) % 3
    few = programs.cells(problems.Problem("pendigits", X, y, {"gamma": 1.0}))
    # Full; four batch sizes and two rates of four truncations, all batches, and plain k-means.
    assert len(few) == len(set(few)) == 1 + 4 * 2 * (4 + 1 + 1)
    many = np.zeros((20_001, 2), np.float32)
    large = programs.cells(problems.Problem("mnist", many, y, {"gamma": 1.0}))
    assert [each.name for each in large] == [
        "full batch", "tau=200, b=1024, sqrt", "untruncated, b=1024, sqrt",
        "plain k-means, b=1024, sqrt", "tau=200, b=1024, count", "plain k-means, b=1024, count",
    ]  # fmt: skip


def test_finished_sets_are_not_fitted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "QUICK_ROWS", 300)
    monkeypatch.setattr(programs, "QUICK_STEPS", 3)
    monkeypatch.setattr(programs, "BATCH", 64)
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    settings = Settings(
        quick=True, scratch=tmp_path, images=tmp_path / "images", seeds=2, threads=1,
        sets=("rings", "rings-heat"),
    )  # fmt: skip
    found = kernel_kmeans.run(settings)
    tables = [each for each in found if isinstance(each, Table)]
    assert [len(table.rows) for table in tables] == [2, 7, 7]
    assert all(len(row) == len(table.header) for table in tables for row in table.rows)
    assert {row[1] for row in tables[1].rows} == {2}
    (figure,) = (each for each in found if isinstance(each, Figure))
    assert (tmp_path / figure.path).stat().st_size > 1000
    monkeypatch.setattr(kernel_kmeans, "fitted", None)  # nothing is fitted again
    again = kernel_kmeans.run(replace(settings, seeds=0))
    assert [each.markdown() for each in again] == [each.markdown() for each in found]


@pytest.mark.parametrize("rate", programs.RATES)
def test_plain_mini_batches_make_the_same_number_of_steps(rate: str) -> None:
    import daskcluster as dc

    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 1000)
    X = (rng.normal(size=(4, 3))[y] * 3 + rng.normal(size=(1000, 3))).astype(np.float32)
    one = problems.Problem("blobs", X, y, {"gamma": 1.0})
    program = programs.Program(programs.PLAIN, 100, 0, rate, steps=30)
    found = programs.fitted(one, program, 5, 1)
    model = dc.MiniBatchKMeans(
        4, batch_size=100, learning_rate=rate, max_iter=3, max_no_improvement=None,
        reassignment_ratio=0, init="k-means++", random_state=5,
    ).fit(X)  # fmt: skip
    assert found.steps == model.n_steps_ == 30
    assert found.ari == dc.metrics.adjusted_rand_index(y, np.asarray(model.labels_))
    assert programs.fitted(one, replace(program, steps=27), 5, 1).steps == 27
