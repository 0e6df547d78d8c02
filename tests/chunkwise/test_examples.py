"""Nearest and farthest rows of clusters."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import daskcluster as dc
from daskcluster import jobs
from daskcluster.chunk import Chunk
from daskcluster.chunkwise import labelled
from daskcluster.chunkwise.assign import AssignParams
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.examples import EXAMINE, ExamineParams, Examples
from daskcluster.estimators import examples as row_examples
from daskcluster.events import PassEnded


def found_in(rows: np.ndarray, edges: list[int], centres: np.ndarray, most: int) -> Examples:
    scale = Scale.probe(rows, len(rows), None)
    prepared = EXAMINE.prepare(ExamineParams(AssignParams(centres, scale), most))
    total = EXAMINE.zero(prepared)
    for first, last in pairwise(edges):
        part = EXAMINE.zero(prepared)
        EXAMINE.chunk(Chunk(rows[first:last], first), prepared, part)
        total = EXAMINE.combine(part, total)
    examples: Examples = total.examples
    return examples


@pytest.fixture
def rows() -> np.ndarray:
    rows = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    rows[7] = rows[200] = 0.0  # ties, and rows where their centre is
    return rows


def test_examples_are_those_of_a_plain_search(rows: np.ndarray) -> None:
    centres = np.array([[0, 0, 0], [1, 1, 1], [50, 0, 0]], np.float32)
    found = found_in(rows, [0, 90, 91, 300], centres, most=4)
    square = ((rows[:, None].astype(float) - centres) ** 2).sum(axis=2)
    labels, mine = square.argmin(axis=1), square.min(axis=1)
    for cluster in range(3):
        members = np.flatnonzero(labels == cluster)
        near = members[np.lexsort((members, mine[members]))][:4]
        far = members[np.lexsort((members, -mine[members]))][:4]
        assert found.nearest.of(cluster)[0].tolist() == near.tolist()
        assert found.farthest.of(cluster)[0].tolist() == far.tolist()
        assert np.allclose(found.farthest.of(cluster)[1], np.sqrt(mine[far]))


def test_chunks_do_not_matter(rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    centres = rows[:5].copy()
    whole = found_in(rows, [0, 300], centres, most=3)
    monkeypatch.setattr(labelled, "_LEAST_SORTED", 20)  # ranked many times on the way
    cut = found_in(rows, [0, 1, 150, 299, 300], centres, most=3)
    for one, other in ((whole.nearest, cut.nearest), (whole.farthest, cut.farthest)):
        assert (one.labels == other.labels).all()
        assert (one.rows == other.rows).all()
        assert (one.sqdist == other.sqdist).all()


def test_sparse_and_weighted_rows_have_examples_too(rows: np.ndarray) -> None:
    from scipy.sparse import csr_array

    model = dc.KMeans(3, random_state=0, engine="local").fit(rows)
    document = model.to_model()
    dense = jobs.examine(document, dc.open_dataset(rows), shown=3).examples
    sparse = jobs.examine(document, dc.open_dataset(csr_array(rows)), shown=3).examples
    assert dense is not None
    assert sparse is not None
    assert dense.found.nearest.rows.tolist() == sparse.found.nearest.rows.tolist()
    for index, row in dense.rows.items():
        assert (row == rows[index]).all()
        assert (sparse.rows[index] == row).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_figures_and_examples_take_one_pass(rows: np.ndarray, weighted: bool) -> None:
    weights = np.linspace(0.0, 3.0, len(rows)) if weighted else None
    estimator = dc.KMeans(4, random_state=1, engine="local").fit(rows)
    dataset, heard = dc.open_dataset(rows, weights=weights), []
    found = jobs.examine(estimator.to_model(), dataset, shown=2, most=1, callbacks=[heard.append])
    assert sum(isinstance(event, PassEnded) for event in heard) == 1
    alone = estimator.cluster_scores(dataset)
    assert (found.costs == alone.costs.sum(axis=0)).all()
    assert (found.sizes == alone.sizes).all()
    assert found.weights.sum() == pytest.approx(300 if weights is None else weights.sum())
    assert found.examples is not None
    assert 2 <= len(found.examples.rows) <= 4


def test_example_rows_come_with_the_pass_or_are_fetched(
    rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = dc.KMeans(4, random_state=1, engine="local").fit(rows).to_model()
    dataset = dc.open_dataset(rows)
    with monkeypatch.context() as patch:
        patch.setattr(row_examples, "_fetch", None)
        kept = jobs.examine(document, dataset, shown=3, engine="local").examples
    monkeypatch.setattr(row_examples, "_KEPT_BYTES", 0)
    fetched = jobs.examine(document, dataset, shown=3, engine="local").examples
    assert kept is not None
    assert fetched is not None
    assert kept.rows.keys() == fetched.rows.keys()
    for row, values in kept.rows.items():
        assert (values == rows[row]).all()
        assert (fetched.rows[row] == values).all()
    assert kept.ids == {}


def test_example_rows_have_their_ids(tmp_path: Path, rows: np.ndarray) -> None:
    frame = pytest.importorskip("pandas").DataFrame(rows, columns=list("abc"))
    frame["name"] = [f"row {number}" for number in range(len(rows))]
    url = str(tmp_path / "rows.parquet")
    frame.to_parquet(url, row_group_size=70)
    dataset = dc.open_dataset(url, id_column="name")
    document = dc.KMeans(3, random_state=0, engine="local").fit(dataset).to_model()
    found = jobs.examine(document, dataset, shown=3, engine="local").examples
    assert found is not None
    assert found.ids == {row: f"row {row}" for row in found.rows}
