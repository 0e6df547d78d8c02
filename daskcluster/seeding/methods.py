"""Random rows, greedy k-means++, k-means|| and AFK-MC2: weighted, on any engine.

Greedy k-means++ (Arthur and Vassilvitskii 2007): every step draws several candidates by D^2 sampling and
keeps the one that lowers the potential most. Masses are rounded to a grid, so that prefix sums over rows
are exact, and the draw depends only on the seed, not on chunks, threads or workers. The grid becomes
finer as the potential falls, so that a row far from all others does not make their distances round to
zero.

k-means|| (Bahmani et al., "Scalable K-Means++", VLDB 2012) takes a few passes instead of k. As in the
paper, the first candidate is a random row, each round draws every row independently with probability
min(1, l w d^2 / phi), and the candidates, weighted by the rows nearest to them, are reduced to k by
weighted k-means++. Differences: l = 2k and five rounds, as is common. A round costs one pass, not two:
the rows with the smallest ratios u / (w d^2) are kept, and the threshold l / phi is applied when phi is
known. The reduction is followed by the given refinement.

AFK-MC2 (Bachem, Lucic, Hassani, Krause, "Fast and Provably Good Seedings for k-Means", NIPS 2016) is D^2
sampling by Markov chains: each further centre is the last state of a chain whose proposals come from q(n)
= w_n / 2W + w_n |x_n - c_1|^2 / 2 phi, fixed once c_1 is drawn. Differences from the paper: rows have
weights; all proposals are drawn in one pass before the chains run, with their rows; there are a few more
chains than centres, because a chain that ends at an existing centre adds none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import nearest_with_distances
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.seeding import (
    FIRST_ROUND,
    POTENTIALS,
    ROUND,
    Pick,
    PotentialParams,
    Potentials,
    RoundParams,
    RoundStatistics,
)
from daskcluster.elementary import log, log1p
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.kernels.distance import run_chains
from daskcluster.kernels.sum_grid import grid_shift
from daskcluster.randomness import Key
from daskcluster.sampling import draw_about, measure
from daskcluster.sparse_rows import Rows, SparseRows, dense_rows, join_rows
from daskcluster.typing import Dataset, Range

_BLOCK_ROWS = 1 << 17
_ROUNDING = 1.0 + 2.0**-40


def draw_rows(dataset: Dataset, m: int, key: Key, *, fewer: bool = False) -> np.ndarray:
    """Return `m` distinct rows, drawn one after the other in proportion to the remaining weights.

    Row i gets the exponential key -log(1 - u_i) / w_i; the rows with the `m` smallest keys are such a draw
    (Efraimidis and Spirakis, 2006). Only weights are read, no rows. Rows without weight are never drawn.
    The result is in the order of the keys; with `fewer` it may be shorter than `m`.

    Raises
    ------
    InvalidParameterError
        Fewer than `m` rows have a positive weight.
    """
    best, rows = np.empty(0), np.empty(0, np.int64)
    for start in range(0, dataset.n_rows, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, dataset.n_rows)
        weights = None if dataset.weights is None else np.asarray(dataset.weights[start:stop])
        enough = best[-1] if len(best) == m else np.inf
        few, keys = _least_keys(key.uniforms(start, stop), weights, m, enough)
        best = np.concatenate([best, keys])
        rows = np.concatenate([rows, start + few])
        order = np.lexsort((rows, best))[:m]
        best, rows = best[order], rows[order]
    if fewer:
        return rows[np.isfinite(best)]
    if len(rows) < m or not np.isfinite(best).all():
        raise InvalidParameterError(
            f"rows with a positive weight={int(np.isfinite(best).sum())} should be >= {m}, the number "
            "of rows to draw; lower n_clusters or give more rows a weight."
        )
    return rows


def _least_keys(
    uniforms: np.ndarray, weights: np.ndarray | None, m: int, enough: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows that may have the `m` smallest keys of all, and their keys; none far above `enough`."""
    # u <= -log(1 - u), so if u is already too large, no logarithm is needed.
    least = _per_weight(uniforms, weights)
    few = np.flatnonzero(least <= enough * _ROUNDING)
    keys = _per_weight(-log1p(-uniforms[few]), None if weights is None else weights[few])
    if m < len(few):
        # Keep all ties at the threshold, since partition breaks ties differently on different machines.
        inside = keys <= np.partition(keys, m - 1)[m - 1]
        few, keys = few[inside], keys[inside]
    return few, keys


def _per_weight(keys: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return keys divided by the weights; infinite for zero weights."""
    if weights is None:
        return keys
    wide = weights.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(wide > 0.0, keys / wide, np.inf)


def take_centres(rows: ScaledPlacement, indices: np.ndarray) -> np.ndarray:
    """Return the given rows as centres: in the compute dtype, of length one for cosine."""
    taken = rows.placement.take(np.asarray(indices, dtype=np.int64))
    return np.array(rows.chunk(taken).computed(), order="C")


def random_rows(rows: ScaledPlacement, n_clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose `n_clusters` random rows as centres.

    Returns
    -------
    centres : ndarray of shape (k, d)
    indices : ndarray of shape (k,)

    Notes
    -----
    Cost: no pass; `n_clusters` rows are fetched.
    """
    indices = draw_rows(rows.placement.dataset, n_clusters, Key(seed, "random rows"))
    return take_centres(rows, indices), indices


def fill_centres(
    rows: ScaledPlacement, centres: np.ndarray, indices: np.ndarray, n_clusters: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Complete the centres with random rows, which are duplicates, since every row is already a centre.

    Parameters
    ----------
    rows : ScaledPlacement
    centres : ndarray of shape (c, d)
    indices : ndarray of shape (c,), int64
    n_clusters : int
    seed : int

    Returns
    -------
    centres : ndarray of shape (k, d)
    indices : ndarray of shape (k,)
    """
    missing = n_clusters - len(indices)
    if missing == 0:
        return centres, indices
    drawn = draw_rows(rows.placement.dataset, n_clusters, Key(seed, "fill"), fewer=True)
    spare = drawn[~np.isin(drawn, indices)][:missing]
    spare = np.concatenate([spare, np.full(missing - len(spare), indices[0])])
    return np.concatenate([centres, take_centres(rows, spare)]), np.concatenate([indices, spare])


_OVER = 1.01
_MANY, _MOST_REFINED = 2.0**10, 2
"""A potential below `_MANY` times its rounding error is recomputed on a finer grid, at most `_MOST_REFINED`
times."""


def kmeans_plusplus(
    rows: ScaledPlacement, n_clusters: int, seed: int, *, n_local_trials: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Choose `n_clusters` rows by greedy D^2 sampling.

    Parameters
    ----------
    rows : ScaledPlacement
    n_clusters : int
    seed : int
    n_local_trials : int, optional
        Candidates per step; default 2 + floor(log k), as in scikit-learn.

    Returns
    -------
    centres : ndarray of shape (k, d)
    indices : ndarray of shape (k,)
        If every row is already a centre, further ones are drawn at random.

    Notes
    -----
    Cost: one pass per centre with 1 + n_local_trials distances per row, and data statistics if no pass has
    gathered them yet; at most two more passes after a step that leaves almost no potential, as with
    duplicate rows. 8 bytes of state per row. Out of core, prefer k-means||, which takes six passes.
    """
    trials = n_local_trials or 2 + int(log(max(1, n_clusters)))
    rows.placement.drop_state(POTENTIALS.name)  # left by an earlier restart
    rows.known()
    indices = [int(draw_rows(rows.placement.dataset, 1, Key(seed, "first centre"))[0])]
    centres = take_centres(rows, np.array(indices))
    masses, chosen = _measured(rows, centres, centres, rows.scale.squares(centres)), 0
    for step in range(1, n_clusters):
        for _ in range(_MOST_REFINED):
            if masses.total(chosen) > _MANY * masses.lost:
                break
            masses, chosen = _measured(rows, centres, centres[-1:], masses.lost), 0
        drawn = _draw(rows, centres, masses, chosen, trials, Key(seed, "D^2", step))
        if not drawn:
            return fill_centres(rows, centres, np.array(indices), n_clusters, seed)
        candidates = np.array([row for _, row in drawn])
        bound = _OVER * masses.total(chosen) + masses.lost
        masses = _measured(rows, centres, candidates, bound)
        chosen = int(np.argmin(masses.parts.sum(axis=0)))
        indices.append(drawn[chosen][0])
        centres = np.concatenate([centres, candidates[chosen : chosen + 1]])
    return centres, np.array(indices)


@dataclass(frozen=True)
class _Masses:
    """The potentials of the rows after adding each of several candidates to the centres.

    Attributes
    ----------
    shift : float
        M of the grid of the masses.
    lost : float
        Bound on the total rounding error of all masses.
    starts : ndarray of shape (c,), int64
        First rows of blocks.
    parts : ndarray of shape (c, t)
        Potential of every candidate over the rows from each start to the next.
    """

    shift: float
    lost: float
    starts: np.ndarray
    parts: np.ndarray

    def total(self, chosen: int) -> float:
        return float(self.parts[:, chosen].sum())


def _measured(
    rows: ScaledPlacement, centres: np.ndarray, candidates: np.ndarray, bound: float
) -> _Masses:
    """Return the masses of all rows; `bound` must not be less than their sum."""
    shift = grid_shift(bound, 1)
    params = PotentialParams(centres, candidates, shift)
    found: Potentials = rows.placement.map_state(POTENTIALS, params)
    lost = rows.placement.dataset.n_rows * shift * 2.0**-53
    return _Masses(shift, lost, *found.ordered())


def _draw(
    rows: ScaledPlacement,
    centres: np.ndarray,
    measured: _Masses,
    chosen: int,
    trials: int,
    key: Key,
) -> list[tuple[int, np.ndarray]]:
    """Draw rows in proportion to their masses: inverse CDF over exact prefix sums."""
    starts, masses = measured.starts, measured.parts[:, chosen]
    edges = np.cumsum(masses)
    if edges[-1] <= 0.0:
        return []
    params = PotentialParams(centres, centres[:0], measured.shift)
    stops = np.append(starts[1:], rows.placement.dataset.n_rows)
    targets = key.generator().random(trials) * edges[-1]
    blocks = np.searchsorted(edges, targets, side="right").clip(0, np.flatnonzero(masses > 0.0)[-1])
    inside = targets - (edges[blocks] - masses[blocks])
    # Of each work item, the trials in each of its blocks.
    of_items: dict[int, dict[Range, list[int]]] = {}
    spans = zip(starts[blocks].tolist(), stops[blocks].tolist(), strict=True)
    items = rows.placement.items_of(starts[blocks]).tolist()
    for trial, (item, span) in enumerate(zip(items, spans, strict=True)):
        of_items.setdefault(item, {}).setdefault(span, []).append(trial)
    picked: dict[int, tuple[int, np.ndarray]] = {}
    for trials_of in of_items.values():
        pick = Pick({span: inside[which] for span, which in trials_of.items()})
        found = rows.placement.state_of(POTENTIALS, params, next(iter(trials_of))[0], pick)
        picked.update(zip(chain(*trials_of.values()), found, strict=True))
    return [picked[trial] for trial in range(trials)]


OVERSAMPLING, N_ROUNDS = 2.0, 5

Reduce = Callable[[Rows, np.ndarray, int], np.ndarray]
"""(candidates (m, d), weights (m,), k) -> centres (k, d)."""


def kmeans_parallel(
    rows: ScaledPlacement,
    n_clusters: int,
    seed: int,
    *,
    reduce_candidates: Reduce,
    oversampling: float = OVERSAMPLING,
    n_rounds: int = N_ROUNDS,
) -> np.ndarray:
    """Choose `n_clusters` centres in ``n_rounds + 1`` passes.

    Parameters
    ----------
    rows : ScaledPlacement
    n_clusters : int
    seed : int
    reduce_candidates : callable
        Weighted clustering of the candidates in memory.
    oversampling : float
        l / k.
    n_rounds : int

    Returns
    -------
    ndarray of shape (k, d)

    Notes
    -----
    Cost: ``n_rounds + 1`` passes, the first of which also gathers data statistics; 2k distances per row in
    each but the first. 4 bytes of state per row. Each task returns at most about 2k rows.
    """
    rows.placement.drop_state(ROUND.name)  # left by an earlier restart
    dataset = rows.placement.dataset
    wanted = max(1.0, oversampling * n_clusters)
    most = most_drawn(n_clusters, oversampling)
    indices = draw_rows(dataset, 1, Key(seed, "first centre"))
    candidates: Rows = take_centres(rows, indices)
    known = 0
    rounds: tuple[tuple[int, int], ...] = ()
    first = dense_rows(candidates)  # its cost is an upper bound of all later ones

    def params(scale: Scale) -> RoundParams:
        costs, heaviest, made = scale.distances(first), scale.weights.high, rounds if known else ()
        return RoundParams(candidates, known, key, drawn, costs, heaviest, n_clusters, made)

    for number in range(n_rounds + 1):
        last = number == n_rounds
        key, drawn = Key(seed, "k-means||", number), 0 if last else most
        found: RoundStatistics = (
            rows.placement.map_state(ROUND, params(rows.scale))
            if known
            else rows.reduce(FIRST_ROUND, params)
        )
        rounds = (*rounds, (known, len(candidates)))
        if last:
            break
        phi = found.cost.value
        if phi <= 0.0:
            break
        sampled = found.kept.keys < wanted / phi
        known = len(candidates)
        fresh = found.kept.rows[np.flatnonzero(sampled)]
        if isinstance(fresh, SparseRows) and not isinstance(candidates, SparseRows):
            candidates = SparseRows.of(candidates)  # smaller to send in every round
        candidates = join_rows([candidates, fresh])
        if len(fresh) == 0:
            # Nothing was drawn: process the last candidate again, with new random numbers.
            known -= 1
    kept = found.weights > 0.0  # a duplicate of another candidate has no rows
    candidates, weights = candidates[kept], found.weights[kept]
    if len(candidates) < n_clusters:
        candidates, weights = _fill(rows, candidates, weights, n_clusters, seed)
    if len(candidates) == n_clusters:
        return dense_rows(candidates)
    return reduce_candidates(candidates, weights, n_clusters)


def most_drawn(n_clusters: int, oversampling: float = OVERSAMPLING) -> int:
    """Return a bound on the rows drawn in a round: six standard deviations above the mean."""
    wanted = max(1.0, oversampling * n_clusters)
    return math.ceil(wanted + 6.0 * math.sqrt(wanted) + 16.0)


def most_candidates(n_clusters: int) -> int:
    """Return a bound on the number of candidates after all rounds."""
    return 1 + N_ROUNDS * most_drawn(n_clusters)


def _fill(
    rows: ScaledPlacement, few: Rows, weights: np.ndarray, n_clusters: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Add random rows if there are too few candidates (few rows, or duplicates)."""
    candidates = dense_rows(few)
    missing = n_clusters - len(candidates)
    drawn = draw_rows(rows.placement.dataset, n_clusters, Key(seed, "fill"), fewer=True)
    more = take_centres(rows, drawn)
    fresh = [row for row in more if not (candidates == row).all(axis=1).any()]
    fresh += [candidates[0]] * (missing - len(fresh))
    centres = np.concatenate([candidates, np.array(fresh[:missing])])
    return centres, np.append(weights, np.ones(missing))


_TILE_ROWS = 1024
_LEAST_CHAINS, _MOST_CHAINS = 16, 64


@dataclass(frozen=True)
class Proposals:
    """The proposals of all chains.

    Attributes
    ----------
    picked : ndarray of shape (c * m,), int64
        Index into `rows` of each proposal, chain by chain.
    rows : Rows, shape (n, d)
        In the compute dtype.
    rates : ndarray of shape (n,), float64
        q / w of each row.
    taken : ndarray of shape (n,), bool
        Whether a row is already a centre.
    """

    picked: np.ndarray
    rows: Rows
    rates: np.ndarray
    taken: np.ndarray


def choose_by_chains(
    centres: np.ndarray, proposals: Proposals, uniforms: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Run chains one after the other until there are enough centres.

    Parameters
    ----------
    centres : ndarray of shape (k0, d)
        Existing centres, at least one, in the compute dtype.
    proposals : Proposals
    uniforms : ndarray of shape (c, m), float64
    most : int
        Number of new centres; further chains are not used.

    Returns
    -------
    centres : ndarray of shape (k0 + new, d)
        The given centres, and one for every chain that did not end at a centre.
    chosen : ndarray of shape (new,), int64
        Indices into `proposals.rows` of the new centres.
    """
    n_chains, length = uniforms.shape
    first, taken = len(centres), proposals.taken.copy()
    grown = np.empty((first + n_chains, centres.shape[1]), centres.dtype)
    grown[:first] = centres
    found: list[int] = []
    step = min(max(_TILE_ROWS // length, _LEAST_CHAINS), _MOST_CHAINS)
    for start in range(0, n_chains, step):
        few = slice(start, min(start + step, n_chains))
        picked = proposals.picked[few.start * length : few.stop * length]
        block = proposals.rows[picked]
        mind2 = nearest_with_distances(Chunk(block), grown[: first + len(found)])[1]
        mind2[taken[picked]] = 0.0
        ends = np.empty(few.stop - few.start, np.int64)
        rows, rates = dense_rows(block), proposals.rates[picked]
        run_chains(rows, rates, uniforms[few].ravel(), length, mind2, ends)
        ends = ends[ends >= 0]
        at = first + len(found)
        grown[at : at + len(ends)] = rows[ends]
        found += picked[ends].tolist()
        taken[picked[ends]] = True
        if len(found) >= most:
            break
    return grown[: first + most][: first + len(found)], np.array(found[:most], np.int64)


_MOST_ROUNDS = 10
_LEAST_SPARE, _SPARE_SHARE = 8, 16


def afk_mc2(
    rows: ScaledPlacement, n_clusters: int, seed: int, *, chain_length: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """Choose `n_clusters` rows by chains of `chain_length` proposals.

    Parameters
    ----------
    rows : ScaledPlacement
    n_clusters : int
    seed : int
    chain_length : int
        m >= 1, the number of proposals per centre. Longer chains approximate k-means++ with a single
        candidate better.

    Returns
    -------
    centres : ndarray of shape (k, d)
    indices : ndarray of shape (k,)
        If there are fewer distinct rows than centres, some centres are equal.

    Notes
    -----
    Cost: one pass with n distances, after data statistics (with weights, after a pass for the mean);
    another pass only if many chains end at existing centres, as when few rows are distinct. The k m
    proposed rows (and a sixteenth more) are held in memory; the chains compute m k^2 / 2 distances. No
    per-row state.
    """
    moments = measure(rows)
    indices = draw_rows(rows.placement.dataset, 1, Key(seed, "first centre"))
    centres = take_centres(rows, indices)
    for attempt in range(_MOST_ROUNDS):
        missing = n_clusters - len(centres)
        if missing == 0:
            break
        n_chains = _n_chains(missing)
        key = Key(seed, f"proposals {attempt}")
        draws = draw_about(rows, centres[0], moments, n_chains * chain_length, key)
        proposals = Proposals(
            draws.picked,
            rows.chunk(draws.rows).computed(),
            draws.rates,
            np.isin(draws.indices, indices),
        )
        uniforms = Key(seed, "chains", attempt).generator().random((n_chains, chain_length))
        centres, chosen = choose_by_chains(centres, proposals, uniforms, missing)
        if len(chosen) == 0:
            break
        indices = np.concatenate([indices, draws.indices[chosen]])
    return fill_centres(rows, centres, indices, n_clusters, seed)


def n_proposals(n_clusters: int, chain_length: int) -> int:
    """Return the number of rows that are proposed and held in memory."""
    return _n_chains(n_clusters) * chain_length


def _n_chains(missing: int) -> int:
    return missing + _LEAST_SPARE + missing // _SPARE_SHARE
