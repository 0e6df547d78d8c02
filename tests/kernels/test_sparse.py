"""The kernels of CSR rows: to the bit what the dense ones make of the same rows."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.kernels import sparse as kernels
from daskcluster.kernels.accumulate import accumulate, accumulate_weighted
from daskcluster.kernels.data_statistics import data_statistics
from daskcluster.kernels.distance import sqdist_to_one
from daskcluster.kernels.jit import read_only
from daskcluster.kernels.sampling import lower, potentials
from daskcluster.kernels.sparse import (
    CsrRows,
    lower_sparse,
    measure_sparse,
    nearest_sparse,
    pack_sparse,
    sqdist_all_sparse,
    sqdist_to_assigned_sparse,
    squared_norms,
)
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.kernels.tile import nearest, pack
from daskcluster.sparse_rows import SparseRows
from tests.kernels.chain import scores, two_best

KINDS = (np.float32, np.float64)


def csr(rows, *, first=0):
    """CSR arrays of dense rows from row `first` on; `indptr` does not start at 0 then."""
    matrix = sparse.csr_array(rows)
    matrix.sort_indices()
    indptr = matrix.indptr.astype(np.int64)
    cut = indptr[first]
    arrays = matrix.data[cut:], matrix.indices[cut:].astype(np.int32), indptr[first:]
    return CsrRows(*map(read_only, arrays))


def mixture(n, d, k, kind, *, density=0.2):
    rng = np.random.default_rng(n + 100 * d + 10_000 * k)
    rows = np.where(rng.random((n, d)) < density, rng.lognormal(size=(n, d)), 0.0)
    centres = np.where(rng.random((k, d)) < 0.7, rng.lognormal(sigma=0.5, size=(k, d)), 0.0)
    rows[n // 3] = 0.0  # a row without a stored value
    return rows.astype(kind), centres.astype(kind)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_panels_are_packed_anew_where_others_stood(dtype):
    centres = np.random.default_rng(0).normal(size=(2, 21, 150)).astype(dtype)
    one, expected = pack_sparse(centres[0]), pack_sparse(centres[1])
    again = pack_sparse(centres[1], one.data)
    assert again.data is one.data
    np.testing.assert_array_equal(again.data, expected.data)
    np.testing.assert_array_equal(again.norms, squared_norms(centres[1]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "d", "k"), [(40, 9, 1), (70, 5, 3), (33, 30, 17), (50, 3, 28)])
def test_scores_are_the_reference_chain(kind, n, d, k):
    rows, centres = mixture(n, d, k, kind)
    centres[-1] = centres[0]  # a tie that the lowest index wins
    table = scores(rows, centres, np.zeros(d, kind))
    best, second = two_best(table)
    labels, runner = np.full((2, n), -7, np.int32)
    both = np.empty((n, 2), kind)
    panels = pack_sparse(centres)
    nearest_sparse(csr(rows), panels, labels, runner, both)
    assert np.array_equal(labels, best)
    assert np.array_equal(runner, second)
    assert np.array_equal(both[:, 0], table[np.arange(n), best])
    assert np.array_equal(both[:, 1], table[np.arange(n), second] if k > 1 else np.full(n, -np.inf))
    nearest_sparse(csr(rows), panels, runner)
    assert np.array_equal(runner, best)


@pytest.mark.parametrize("kind", KINDS)
def test_dense_panels_without_offset_give_the_same_bits(kind):
    for k in (1, 2, 8, 15, 16, 17, 33, 50, 64, 100, 129, 300):
        rows, centres = mixture(700, 40, k, kind)
        labels, second, dense, dense_second = np.full((4, 700), -7, np.int32)
        both, dense_both = np.empty((2, 700, 2), kind)
        nearest_sparse(csr(rows), pack_sparse(centres), labels, second, both)
        nearest(rows, pack(centres, np.zeros(40)), dense, dense_second, dense_both)
        assert np.array_equal(labels, dense), k
        assert np.array_equal(second, dense_second), k
        assert np.array_equal(both, dense_both), k


def test_ties_go_to_the_lowest():
    rows = np.zeros((40, 1), np.float32)
    for places in ([2, 2, 0], [0, 2, 2], [2, 0, 2], [2, 2, 1, 1, 0], [3] * 40):
        centres = np.array(places, np.float32)[:, None]
        best, second = two_best(scores(rows, centres, np.zeros(1, np.float32)))
        labels, runner = np.full((2, 40), -7, np.int32)
        nearest_sparse(csr(rows), pack_sparse(centres), labels, runner)
        assert np.array_equal(labels, best), places
        assert np.array_equal(runner, second), places


def test_any_slice_of_rows():
    rows, centres = mixture(600, 12, 20, np.float32)
    whole = np.empty(600, np.int32)
    nearest_sparse(csr(rows), pack_sparse(centres), whole)
    for first in (0, 1, 255, 256, 599, 600):
        part = np.empty(600 - first, np.int32)
        nearest_sparse(csr(rows, first=first), pack_sparse(centres), part)
        assert np.array_equal(part, whole[first:])


def test_labels_stay_in_range_for_bad_rows():
    rows, centres = mixture(64, 4, 5, np.float32)
    rows[3, 1], rows[10, 0], rows[11, :], rows[12, 2] = np.nan, np.inf, -np.inf, 3e38
    labels = np.empty(64, np.int32)
    nearest_sparse(csr(rows), pack_sparse(centres), labels)
    assert labels.min() >= 0
    assert labels.max() < 5
    nearest_sparse(csr(rows), pack_sparse(np.full((5, 4), 3e38, np.float32)), labels)
    assert (labels < 5).all()


@pytest.mark.parametrize("kind", KINDS)
def test_distances(kind):
    rows, centres = mixture(300, 50, 21, kind)
    truth = ((rows[:, None].astype(float) - centres) ** 2).sum(axis=2)
    panels, norms = pack_sparse(centres), squared_norms(centres)
    every, assigned = np.empty((300, 21)), np.empty(300)
    sqdist_all_sparse(csr(rows), panels, every)
    np.testing.assert_allclose(every, truth, rtol=1e-13)
    labels = np.random.default_rng(0).integers(0, 21, 300).astype(np.int32)
    sqdist_to_assigned_sparse(*csr(rows), read_only(centres), norms, labels, assigned)
    assert np.array_equal(assigned, every[np.arange(300), labels])
    mind2 = np.full(300, np.inf)
    for number in (3, 7):
        lower_sparse(*csr(rows), read_only(centres[number]), float(norms[number]), mind2)
    assert np.array_equal(mind2, np.minimum(every[:, 3], every[:, 7]))
    assert np.array_equal(panels.norms, norms)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_at_distance_zero_of_itself(kind):
    rows, _ = mixture(200, 300, 1, kind, density=0.4)
    out = np.empty(200)
    labels = np.arange(200, dtype=np.int32)
    sqdist_to_assigned_sparse(*csr(rows), read_only(rows), squared_norms(rows), labels, out)
    assert (out == 0.0).all()


def test_distances_are_never_negative_and_lose_few_digits():
    rng = np.random.default_rng(0)
    centre = rng.lognormal(size=(1, 20_000))
    rows = np.repeat(centre, 50, axis=0)
    for row in rows:  # each lacks a few values that the centre has
        row[rng.choice(20_000, 5, replace=False)] = 0.0
    out = np.empty(50)
    labels = np.zeros(50, np.int32)
    sqdist_to_assigned_sparse(*csr(rows), read_only(centre), squared_norms(centre), labels, out)
    truth = ((rows - centre) ** 2).sum(axis=1)
    assert (out >= 0.0).all()
    bound = 2 * 20_002 * 2.0**-53 * (centre**2).sum()
    assert np.abs(out - truth).max() <= bound
    assert (np.abs(out - truth) <= 1e-9 * truth).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_have_the_bits_of_dense_sums(kind, weighted):
    rows, _ = mixture(500, 30, 1, kind)
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 7, 500).astype(np.int32)
    weights = rng.lognormal(size=500) if weighted else None
    shift = np.ldexp(1.5, rng.integers(20, 30, 30))
    low = shift * 2.0**-40
    one, other = np.zeros((2, 7, 30)), np.zeros((2, 7, 30))
    counts, low_counts = (np.zeros(7), np.zeros(7)) if weighted else (np.zeros(7, np.int64), None)
    for X, sums in ((csr(rows), one), (rows, other)):
        of_weights = SumGrid(2.0**40, 2.0**20), counts, low_counts
        accumulate_weighted(X, labels, weights, SumGrid(shift, low), *sums, *of_weights)
    assert one.tobytes() == other.tobytes()
    assert np.abs(one[1]).max() > 0.0
    if not weighted:
        single, dense = np.zeros((2, 7, 30))
        numbers, dense_numbers = np.zeros((2, 7), np.int64)
        accumulate(csr(rows), labels, shift, single, numbers)
        accumulate(rows, labels, shift, dense, dense_numbers)
        assert single.tobytes() == dense.tobytes() == one[0].tobytes()
        assert np.array_equal(numbers, dense_numbers)


@pytest.mark.parametrize("kind", KINDS)
def test_data_statistics_equal_the_dense_one(kind):
    rows, _ = mixture(400, 25, 1, kind)
    most, dense_most = np.zeros((2, 25))
    assert kernels.raise_max_abs(csr(rows), most) == (-1, False)
    data_statistics(rows, dense_most)
    assert np.array_equal(most, dense_most)
    origin, shift = rows.mean(axis=0).astype(kind), np.full(25, 1.5 * 2.0**30)
    sums, dense_sums = np.zeros((2, 25))
    spread, dense_spread = np.empty((2, 400))
    norm = float(squared_norms(origin[None])[0])
    measure_sparse(*csr(rows), read_only(origin), norm, read_only(shift), sums, spread)
    accumulate(rows, np.zeros(400, np.int32), shift, dense_sums[None], np.zeros(1, np.int64))
    sqdist_to_one(rows, origin, dense_spread)
    assert np.array_equal(sums, dense_sums)
    np.testing.assert_allclose(spread, dense_spread, rtol=1e-13)


def test_bad_rows_are_found():
    for value, is_nan in ((np.nan, True), (np.inf, False), (-np.inf, False)):
        rows, _ = mixture(400, 25, 1, np.float32)
        rows[[123, 300], 4] = value
        assert kernels.raise_max_abs(csr(rows), np.zeros(25)) == (123, is_nan), value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_potentials_follow_the_dense_ones(kind, weighted):
    rows, candidates = mixture(300, 40, 6, kind)
    weights = np.random.default_rng(2).lognormal(size=300) if weighted else None
    mind2, dense_mind2 = np.full((2, 300), np.inf)
    norms = squared_norms(candidates)
    lower_sparse(*csr(rows), read_only(candidates[0]), float(norms[0]), mind2)
    lower(rows, candidates[0], dense_mind2)
    np.testing.assert_allclose(mind2, dense_mind2, rtol=1e-13)
    found, dense = np.zeros((2, 2, 6))
    grid = SumGrid(1.5 * 2.0**40, 1.5 * 2.0**8)
    PreparedCentres(candidates).potentials(SparseRows.of(rows), mind2, weights, grid, *found)
    potentials(rows, candidates, mind2, weights, grid, *dense)
    np.testing.assert_allclose(found.sum(axis=0), dense.sum(axis=0), rtol=1e-12)
    assert (found[0] == np.rint(found[0] * 2.0**12) / 2.0**12).all()  # on the grid


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint16])
def test_faulty_columns_are_found(kind):
    indptr = np.array([5, 7, 7, 10])  # a slice: entries are counted from the first row's
    good = np.array([0, 3, 1, 2, 3], kind)
    assert kernels.first_fault(good, indptr, 4) == (-1, -1, -1)
    assert kernels.first_fault(good, indptr, 3) == (0, 3, -1)
    assert kernels.first_fault(good[::-1].copy(), indptr, 4) == (-1, -1, 0)
    assert kernels.first_fault(np.array([0, 3, 1, 1, 9], kind), indptr, 4) == (2, 9, 2)


PROGRAM = """
import hashlib
import numpy as np
from scipy import sparse
from daskcluster.kernels.jit import tile_name
from daskcluster.kernels.sparse import CsrRows, nearest_sparse, pack_sparse
rng = np.random.default_rng(0)
rows = sparse.random(400, 90, 0.2, format="csr", rng=rng, dtype=np.float32)
rows.sort_indices()
arrays = CsrRows(rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int64))
centres = rng.standard_normal((57, 90)).astype(np.float32)
labels, second = np.empty((2, 400), np.int32)
scores = np.empty((400, 2), np.float32)
nearest_sparse(arrays, pack_sparse(centres), labels, second, scores)
digest = hashlib.sha256(labels.tobytes() + second.tobytes() + scores.tobytes())
print(tile_name(), digest.hexdigest())
"""


def run(**environment):
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("DASKCLUSTER_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**inherited, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.kernels
def test_other_vector_widths_give_the_same_bits():
    _, digest = run()
    for name in ("avx2", "neon"):
        assert run(DASKCLUSTER_TILE=name) == [name, digest]
