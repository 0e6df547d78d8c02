"""Hamerly's bounds of CSR rows: the bits of passes without bounds, and bounds that hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import daskcluster as dc
from daskcluster import events, open_dataset
from daskcluster.chunk import Chunk
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.data.csr import csr_of
from daskcluster.kernels.sparse import CsrRows, nearest_sparse, pack_sparse
from daskcluster.methods.kmeans.chunkwise.bounded import BoundedParams
from daskcluster.methods.kmeans.chunkwise.hamerly import SPARSE_HAMERLY
from daskcluster.methods.kmeans.chunkwise.kind import Drift, Gaps
from daskcluster.sparse_rows import SparseRows
from tests.laws.data import CASES
from tests.laws.test_law_02_chunking import same_bits
from tests.laws.test_law_05_precision import sparse_case

K = 9


def fitted(rows, algorithm, weights=None, **options):
    chosen = {"init": rows[: K * 50 : 50].toarray(), "tol": 0, "max_iter": 40, "engine": "local"}
    model = dc.KMeans(K, algorithm=algorithm, **{**chosen, **options})
    return model.fit(rows, sample_weight=weights)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_lloyd(name, metric):
    _, rows, weights = sparse_case(name, n=3000)
    expected = fitted(rows, "lloyd", weights, metric=metric)
    same_bits(fitted(rows, "auto", weights, metric=metric), expected)
    found = fitted(rows, "hamerly", weights, metric=metric)
    same_bits(found, expected)
    assert found.history_[-1]["n_distances"] < 0.7 * expected.history_[-1]["n_distances"]


def test_equal_rows_and_equal_centres_keep_the_lowest_label():
    _, rows, _ = sparse_case("float32", n=300)
    rows = sparse.vstack([rows, rows, sparse.csr_array((300, rows.shape[1]), dtype="f4")], "csr")
    init = rows[[0, 300, 5, 305, 7, 899]].toarray()
    expected = dc.KMeans(6, init=init, algorithm="lloyd", tol=0, engine="local").fit(rows)
    same_bits(
        dc.KMeans(6, init=init, algorithm="hamerly", tol=0, engine="local").fit(rows), expected
    )


def test_auto_takes_bounds_where_they_pay():
    rng = np.random.default_rng(0)
    topics = rng.random((30, 3000)) < 0.03
    kept = topics[rng.integers(0, 30, 20_000)] & (rng.random((20_000, 3000)) < 0.6)
    rows = sparse.csr_array(kept.astype(np.float32))
    options = {"init": rows[:60].toarray(), "tol": 0, "engine": "local", "max_iter": 40}
    expected = dc.KMeans(60, algorithm="lloyd", **options).fit(rows)
    found = dc.KMeans(60, algorithm="auto", **options).fit(rows)
    same_bits(found, expected)
    if len(found.history_) > 8:
        assert found.history_[-1]["n_distances"] < 0.5 * expected.history_[-1]["n_distances"]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_bounds_hold(dtype):
    dense, _, _ = sparse_case("float64", n=2000)
    dense = dense.astype(dtype)
    rows, rng = SparseRows.of(dense), np.random.default_rng(1)
    scale = Scale(2000, np.abs(dense).max(axis=0).astype(float), 1.0, False, dtype == "f8")
    centres, previous, state, wide = dense[:K].copy(), None, None, dense.astype(float)
    drift = Drift(centres)
    touched = []
    for step in 10.0 ** -np.arange(1.0, 5.0, 0.5):
        most = int(np.diff(rows.indptr).max())
        params = BoundedParams(centres, previous, drift.table(Gaps()), scale, most_entries=most)
        reduction, params = SPARSE_HAMERLY.step(params, drift, Gaps())
        prepared = reduction.prepare(params)
        state = reduction.fresh(2000, prepared) if state is None else state
        changes = reduction.zero(prepared)
        reduction.chunk(Chunk(rows), prepared, changes, state)
        touched.append(changes.n_touched)
        labels = np.empty(2000, np.int32)
        nearest_sparse(CsrRows(rows.data, rows.indices, rows.indptr), pack_sparse(centres), labels)
        assert np.array_equal(state.labels, labels)
        gaps = np.sqrt(((wide[:, None] - centres.astype(float)) ** 2).sum(axis=2))
        own = gaps[np.arange(2000), labels].copy()
        gaps[np.arange(2000), labels] = np.inf
        table = params.drift
        assert (state.upper + table[0, labels] >= own).all()
        assert (state.lower - table[1, labels] <= gaps.min(axis=1)).all()
        previous = centres
        centres = (centres + step * rng.standard_normal(centres.shape)).astype(dtype)
        drift.move(centres)
    assert touched[-1] < 0.5 * touched[0] == 1000


def test_other_kinds_give_way_with_a_notice():
    _, rows, _ = sparse_case("float32")
    heard = []
    found = fitted(rows, "elkan", callbacks=[heard.append])
    texts = [event.text for event in heard if isinstance(event, events.Notice)]
    assert texts == [
        "algorithm='elkan' is for dense rows; hamerly takes its place, with the same result."
    ]
    same_bits(found, fitted(rows, "lloyd"))


def test_workers_give_the_same_bits(client):
    _, rows, weights = sparse_case("weighted float32", n=3000)
    expected = fitted(rows, "lloyd", weights)
    same_bits(fitted(rows, "hamerly", weights, engine=client), expected)


def test_the_longest_row_is_found():
    rows = sparse.csr_array(np.triu(np.ones((5, 7), np.float32)))
    assert csr_of(open_dataset(rows)).most_entries == 7


def test_columns_of_64_bits_are_converted_once():
    _, rows, _ = sparse_case("float32")
    wide = sparse.csr_array(rows)
    wide.indices, wide.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    assert open_dataset(wide).held.indices.dtype == np.int32
    same_bits(fitted(wide, "hamerly"), fitted(rows, "lloyd"))
