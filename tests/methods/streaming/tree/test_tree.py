"""The merge-and-reduce tree: it depends on the rows alone, is bounded and unbiased, and can forget."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from daskcluster import open_dataset
from daskcluster.chunk import Chunk
from daskcluster.errors import InvalidDataError, InvalidParameterError, WrongTypeError
from daskcluster.methods.streaming import tree as tree_module
from daskcluster.methods.streaming.tree import (
    CoresetTree,
    Forgetting,
    LeafSettings,
    Part,
    Position,
    StreamRows,
    cut_pieces,
    leaf,
    merged,
    stream_rows,
)
from daskcluster.sparse_rows import SparseRows

ROWS = np.random.default_rng(0).lognormal(size=(2345, 3))


def settings(**changes):
    values = {"size": 20, "leaf_rows": 100, "seed": 3, "dtype": "float64"}
    return LeafSettings(**values | changes)


def grown(rows=ROWS, cuts=(), stamps=None, weights=None, **changes):
    tree = CoresetTree(settings(**changes))
    edges = [0, *cuts, len(rows)]
    for number, (first, last) in enumerate(itertools.pairwise(edges)):
        stamp = None if stamps is None else stamps[number]
        own = None if weights is None else weights[first:last]
        chunk = Chunk(rows[first:last], 0, own)
        dtype = np.dtype(tree.settings.dtype)
        added = stream_rows(chunk, dtype, tree.settings.forgetting, tree.now, stamp)
        for node in tree.fill(added):
            tree.push(node)
    return tree


def by_pieces(rows, cuts, **changes):
    """As `grown`, with leaves made by tasks."""
    tree = CoresetTree(settings(**changes))
    edges = [0, *cuts, len(rows)]
    for first, last in itertools.pairwise(sorted(set(edges))):
        position = Position(tree.n_leaves, tree.tail_rows, tree.now)
        middle = (last - first) // 2
        dataset = open_dataset(rows[first:last])
        parts = [Part(dataset, (0, middle)), Part(dataset, (middle, last - first))]
        for task in cut_pieces(parts, position, tree.settings):
            for node, carried in task().leaves_into(tree):
                tree.push(node, carried)
    return tree


def same(one, two):
    a, b = one.summary(), two.summary()
    dense = [rows.toarray() if isinstance(rows, SparseRows) else rows for rows in (a[0], b[0])]
    return (
        dense[0].tobytes() == dense[1].tobytes()
        and a[1].tobytes() == b[1].tobytes()
        and (one.n_leaves, one.n_rows, one.now) == (two.n_leaves, two.n_rows, two.now)
    )


FORGETTINGS = {
    "nothing": Forgetting(),
    "half-life": Forgetting(half_life=500.0),
    "window": Forgetting(window=900.0),
}


@pytest.mark.parametrize("forgetting", FORGETTINGS.values(), ids=FORGETTINGS)
@pytest.mark.parametrize("grow", [grown, by_pieces])
def test_batch_sizes_do_not_matter(forgetting, grow):
    whole = grown(forgetting=forgetting)
    for cuts in ((1, 2, 3), (100, 200), (950,), (17, 17, 1900), range(1, 2000, 37)):
        assert same(whole, grow(ROWS, cuts, forgetting=forgetting)), cuts
    assert whole.n_rows == len(ROWS)
    assert whole.tail_rows == 45


@pytest.mark.parametrize("first", [0, 250, 1333])
def test_merges_come_with_the_leaves(first, monkeypatch):
    whole = grown()
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return merged(*arguments)

    tree = grown(ROWS[:first])
    dataset = open_dataset(ROWS)
    position = Position(tree.n_leaves, tree.tail_rows, tree.now)
    (task,) = cut_pieces([Part(dataset, (first, len(ROWS)))], position, tree.settings)
    piece = task()
    monkeypatch.setattr(tree_module, "merged", counted)
    for node, carried in piece.leaves_into(tree):
        tree.push(node, carried)
    assert same(whole, tree)
    # Left are the four of which some came before, or the first, and the sixteen in which those are.
    assert len(calls) == 2


def test_missing_merges_are_made():
    # Leaves are forgotten, so that others than those of a counter meet.
    short = Forgetting(half_life=40.0)
    assert same(grown(forgetting=short), by_pieces(ROWS, (), forgetting=short))
    node = leaf(StreamRows(ROWS[:100]), 0, settings())
    nodes = [replace(node, first=number, stop=number + 1) for number in (0, 1, 3, 4)]
    ready = replace(node, level=1, first=0, stop=5, weights=np.zeros(20))
    tree_module.carry(nodes, settings(), [ready])
    assert [each.weight for each in nodes] == [pytest.approx(400.0)]


def test_sparse_rows_make_a_tree_too():
    dense = np.where(ROWS > 1.0, ROWS, 0.0)
    rows = SparseRows.of(dense)
    one, two = grown(rows), grown(rows, (123, 1111))
    assert isinstance(one.summary()[0], SparseRows)
    assert same(one, two)


def test_the_weight_is_that_of_the_rows():
    weights = np.random.default_rng(1).uniform(0.0, 3.0, len(ROWS))
    tree = grown(weights=weights)
    assert tree.weight == pytest.approx(weights.sum())
    # Rows without weight are as good as absent.
    assert grown(weights=np.zeros(len(ROWS))).weight == 0.0


def test_a_half_life_halves():
    ages = len(ROWS) - 1 - np.arange(len(ROWS))
    tree = grown(forgetting=Forgetting(half_life=300.0))
    assert tree.weight == pytest.approx(np.exp2(-ages / 300.0).sum())
    # A sum that remembers: of indicators of the last 300 rows.
    rows = np.repeat([[0.0], [1.0]], [len(ROWS) - 300, 300], axis=0)
    found, weights = grown(rows, size=80, forgetting=Forgetting(half_life=300.0)).summary()
    assert weights @ found[:, 0] / weights.sum() == pytest.approx(0.5, abs=0.06)


def test_a_window_forgets_what_is_older():
    rows = np.arange(len(ROWS), dtype=float)[:, None]
    tree = grown(rows, forgetting=Forgetting(window=800.0))
    found, _ = tree.summary()
    assert found.min() >= len(ROWS) - 800 - 100
    assert tree.weight == pytest.approx(800.0, rel=0.02)
    assert len(tree.nodes) <= 50


def test_ages_follow_the_timestamps_of_rows():
    forgetting = Forgetting.of("1h", None)
    cuts, stamps = (1000, 1500), [0.0, 3600.0, 7200.0]
    tree = grown(cuts=cuts, stamps=stamps, forgetting=forgetting)
    assert tree.weight == pytest.approx(1000 / 4 + 500 / 2 + 845)
    # The weight of a late batch depends on its timestamp.
    late = grown(cuts=cuts, stamps=[7200.0, 3600.0, 0.0], forgetting=forgetting)
    assert late.weight == pytest.approx(1000 + 500 / 2 + 845 / 4)


def test_sums_are_unbiased():
    truth = (ROWS**2).sum()
    found = []
    for seed in range(15):
        rows, weights = grown(seed=seed, size=50).summary()
        found.append(float(weights @ (rows**2).sum(axis=1)))
    assert np.mean(found) == pytest.approx(truth, rel=0.1)


def test_the_tree_is_bounded():
    rows = np.random.default_rng(2).normal(size=(10_000, 1))
    tree = grown(rows, leaf_rows=40, size=4)
    assert len(tree.nodes) <= 12
    assert tree.kept_rows <= 12 * 4 + 40


def test_parallel_streams_are_merged():
    one, two = grown(ROWS[:1250]), grown(ROWS[1250:])
    one.absorb(two)
    assert one.n_rows == len(ROWS)
    assert one.weight == pytest.approx(len(ROWS))
    levels = [node.level for node in one.nodes]
    assert levels == sorted(levels, reverse=True)
    assert max(levels.count(level) for level in levels) < 4


def test_bad_rows_are_reported():
    rows = ROWS.copy()
    rows[1234, 1] = np.nan
    tree = CoresetTree(settings())
    parts = [Part(open_dataset(rows), (0, len(rows)))]
    (task,) = cut_pieces(parts, Position(0, 0, 0.0), tree.settings)
    with pytest.raises(InvalidDataError, match="NaN: first in row 1234"):
        task()
    wide = np.full((3, 3), 1e300)
    with pytest.raises(InvalidDataError, match="too large for the dtype"):
        stream_rows(Chunk(wide), np.dtype(np.float32), Forgetting(), 0.0)


@pytest.mark.parametrize(
    ("half_life", "window", "text"),
    [
        (1, 2, "cannot be combined"),
        (0, None, "should be a number of rows > 0, or a time"),
        (None, "6 parsecs", "window='6 parsecs' should be"),
        (float("inf"), None, "should be a number of rows > 0"),
    ],
)
def test_invalid_half_lives_and_windows_are_refused(half_life, window, text):
    with pytest.raises(InvalidParameterError, match=text):
        Forgetting.of(half_life, window)


def test_types_of_forgetting():
    with pytest.raises(WrongTypeError):
        Forgetting.of([1], None)
    assert Forgetting.of("2000", None) == Forgetting(half_life=2000.0)
    assert Forgetting.of(None, "7d") == Forgetting(window=604800.0, by_time=True)
