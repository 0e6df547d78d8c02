"""The local engine: its parameters, and how rows in memory are cut for threads."""

from __future__ import annotations

import multiprocessing
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from daskcluster.data.memory import ArrayDataset
from daskcluster.engine.local import LocalEngine, local_spans
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError

_WIDTH = 1024
_ROW_BYTES = 4 * _WIDTH
_MEGABYTE = (1 << 20) // _ROW_BYTES


def _spans(megabytes: float, n_threads: int) -> list[tuple[int, int]]:
    # No page of it is touched: it takes no memory.
    rows = np.empty((int(megabytes * _MEGABYTE), _WIDTH), np.float32)
    return list(local_spans(ArrayDataset(rows), n_threads))


@pytest.mark.parametrize(
    ("megabytes", "n_threads", "n_work_items"),
    [
        (16, 2, 4),  # small: one large unit for each thread, and one to even them out
        (64, 2, 4),
        (16, 1, 2),
        (192, 2, 12),  # as many as there are small ones
        (512, 2, 16),  # large: more for each thread
        (16, 64, 64),  # never finer than is worth a unit
        (0.125, 2, 1),
    ],
)
def test_units_are_few_while_they_are_small(
    megabytes: float, n_threads: int, n_work_items: int
) -> None:
    spans = _spans(megabytes, n_threads)
    assert len(spans) == n_work_items
    assert spans[0][0] == 0
    assert spans[-1][1] == megabytes * _MEGABYTE
    assert all(one[1] == other[0] for one, other in pairwise(spans))


@pytest.mark.parametrize(("megabytes", "n_threads"), [(16, 2), (20.3, 7), (64, 3)])
def test_threads_begin_with_three_quarters_of_small_rows(megabytes: float, n_threads: int) -> None:
    lengths = [stop - start for start, stop in _spans(megabytes, n_threads)]
    first, rest = lengths[:n_threads], lengths[n_threads:]
    assert len(set(first)) == 1
    assert sum(first) == pytest.approx(0.75 * megabytes * _MEGABYTE, rel=0.01)
    assert 0 < len(rest) <= n_threads
    assert max(rest) * 3 == first[0]


def test_few_rows_are_all_in_a_unit() -> None:
    for n_rows in range(10):
        spans = local_spans(ArrayDataset(np.empty((n_rows, 1 << 20), np.float32)), 2)
        assert [row for span in spans for row in range(*span)] == list(range(n_rows))
        assert all(start < stop for start, stop in spans), n_rows
        assert len(spans) >= min(2, n_rows)


@pytest.mark.parametrize("limit", ["4GB", 0, -1])
def test_a_memory_limit_is_a_number_of_bytes(limit: Any) -> None:
    with pytest.raises(InvalidParameterError, match="should be a number of bytes"):
        LocalEngine(memory_limit=limit)


def test_a_forked_process_starts_threads_of_its_own() -> None:
    rows = np.random.default_rng(0).normal(size=(200_000, 8))
    known = total(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12: there are threads
        child = multiprocessing.get_context("fork").Process(target=expect_total, args=(rows, known))
        child.start()
    child.join(60)
    assert child.exitcode == 0


def total(rows: np.ndarray) -> int:
    """Count rows on two threads, which stay for the next pass."""
    with LocalEngine(2).place(ArrayDataset(rows)) as placement:
        assert len(placement.work_items) > 1
        return ScaledPlacement(placement).known().n_rows


def expect_total(rows: np.ndarray, known: int) -> None:
    assert total(rows) == known
