"""`near_duplicates`: groups, kept rows, the same bits anywhere, resumed searches, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy import sparse
from scipy.sparse.csgraph import connected_components

import daskcluster as dc
from daskcluster import jobs
from daskcluster.data.shuffle_passes import ScatteredRows
from daskcluster.errors import (
    CheckpointError,
    DataNotReachableError,
    InvalidDataError,
    InvalidParameterError,
)
from daskcluster.events import PassEnded, PassProgress, PassStarted
from daskcluster.methods.duplicates import search as search_module
from daskcluster.storage import pass_totals
from tests.estimators.interruption import Killed, record_chunks
from tests.methods.duplicates.oracle import measures, pairs_of, planted

X = planted(1500, 12, 0, copies=40)
THRESHOLD = 0.98
VALUES = measures(X, "cosine")


def find(source: Any = X, threshold: float = THRESHOLD, **settings: Any) -> Any:
    return dc.near_duplicates(source, threshold, **settings)


def same(one: Any, other: Any) -> bool:
    return all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in ("group", "kept", "similarity")
    )


def test_groups_are_connected_components() -> None:
    found = find()
    _, labels = connected_components(VALUES >= THRESHOLD)
    first = np.unique(labels, return_index=True)[1]
    np.testing.assert_array_equal(found.group, first[labels])
    np.testing.assert_array_equal(np.flatnonzero(found.kept), np.sort(first))
    np.testing.assert_allclose(found.similarity, VALUES[np.arange(len(X)), found.group], rtol=1e-12)
    assert found.n_groups == (np.bincount(labels) > 1).sum()
    assert found.n_copies == len(X) - len(np.unique(X, axis=0))


def test_every_row_of_a_covered_group_is_near_the_kept_one() -> None:
    scores = np.random.default_rng(1).normal(size=len(X))
    found = find(groups="covered", keep=scores)
    kept = np.flatnonzero(found.kept)
    close = VALUES >= THRESHOLD
    # The definition: by descending score, what no kept row covers is kept.
    keeper = np.full(len(X), -1)
    for row in np.lexsort((np.arange(len(X)), -scores)):
        if keeper[row] < 0:
            near = np.flatnonzero(close[row] & (keeper < 0))
            keeper[near] = row
    np.testing.assert_array_equal(kept, np.unique(keeper))
    np.testing.assert_allclose(found.similarity, VALUES[np.arange(len(X)), keeper], rtol=1e-12)
    assert (found.similarity >= THRESHOLD).all()
    assert not np.triu(close[np.ix_(kept, kept)], 1).any()


@pytest.mark.parametrize("keep", ["first", "nearest", "farthest", "scores"])
def test_one_row_of_each_group_is_kept(keep: str) -> None:
    scores = np.random.default_rng(2).normal(size=len(X))
    found = find(keep=scores if keep == "scores" else keep)
    np.testing.assert_array_equal(found.group, find().group)
    counts = np.bincount(found.group[found.kept], minlength=len(X))
    assert (counts[np.unique(found.group)] == 1).all()
    if keep == "scores":
        best = np.full(len(X), -np.inf)
        np.maximum.at(best, found.group, scores)
        assert (scores[found.kept] == best[found.group[found.kept]]).all()


def test_nearest_and_farthest_differ() -> None:
    near, far = find(keep="nearest"), find(keep="farthest")
    assert (near.kept != far.kept).any()


@pytest.mark.parametrize("chunk", [100, 701])
def test_chunks_and_threads_change_nothing(chunk: int, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "rows.zarr", data=X, chunks=(chunk, 12))
    source = str(tmp_path / "rows.zarr")
    for threads in (1, 3):
        assert same(find(), find(source, engine=dc.LocalEngine(threads)))
    assert same(find(keep="farthest"), find(source, keep="farthest"))


def test_the_seed_changes_no_pair() -> None:
    assert same(find(), find(random_state=5))


def test_two_workers_and_one_process_write_the_same_file(tmp_path: Path, client: Any) -> None:
    zarr.create_array(tmp_path / "rows.zarr", data=X, chunks=(200, 12))
    source = str(tmp_path / "rows.zarr")
    find(source).save(tmp_path / "one.parquet")
    find(source, engine=client).save(tmp_path / "two.parquet")
    with_folder = find(source, engine=client, checkpoint=tmp_path / "state", keep="nearest")
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    assert same(with_folder, find(keep="nearest"))


def test_a_killed_search_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, calls = tmp_path / "state", list[int]()
    whole = search_module.find_pairs

    def dies(*arguments: Any) -> int:
        calls.append(arguments[1])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(*arguments)

    plan = search_module.DuplicatesPlan
    monkeypatch.setattr(search_module, "_UNIT_ROWS", 50)
    assert plan.of(dc.open_dataset(X)).n_cells > 3
    monkeypatch.setattr(search_module, "find_pairs", dies)
    with pytest.raises(KeyboardInterrupt) as caught:
        find(checkpoint=state, engine=dc.LocalEngine(1))
    assert "resume" in caught.value.__notes__[0]
    with pytest.raises(CheckpointError, match=r"threshold was 0\.98 and is 0\.97"):
        find(threshold=0.97, checkpoint=state, resume=True)
    expected, again = find(), list[int]()

    def resumed(*arguments: Any) -> int:
        again.append(arguments[1])
        return whole(*arguments)

    monkeypatch.setattr(search_module, "find_pairs", resumed)
    found = find(checkpoint=state, resume=True, engine=dc.LocalEngine(1))
    assert same(found, expected)
    assert not set(calls[:2]) & set(again)
    assert again
    assert found.passes == 0
    assert not list(state.iterdir())


class KilledHereError(KeyboardInterrupt):
    """Stands for the end of the process."""


def test_a_search_that_is_killed_while_rows_are_sorted_keeps_their_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = search_module.sort_rows

    def dies(*arguments: Any, **settings: Any) -> Any:
        raise KilledHereError

    monkeypatch.setattr(search_module, "sort_rows", dies)
    with pytest.raises(KilledHereError):
        find(checkpoint=tmp_path)
    monkeypatch.setattr(search_module, "sort_rows", whole)
    monkeypatch.setattr(search_module, "describe_rows", dies)
    found = find(checkpoint=tmp_path, resume=True)
    assert same(found, find_labelled(monkeypatch))
    assert found.passes == 1


def test_a_search_that_is_killed_while_rows_are_labelled_labels_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zarr.create_array(tmp_path / "rows.zarr", data=X, chunks=(50, 12))
    source = str(tmp_path / "rows.zarr")
    one = {"checkpoint": tmp_path / "state", "engine": dc.LocalEngine(1)}
    opened = dc.open_dataset(source)
    opened = opened.with_facts(partitions=[(at, at + 50) for at in range(0, len(X), 50)])
    labelled = record_chunks(monkeypatch, search_module, "describe_rows", most=2)
    with pytest.raises(Killed):
        find(opened, **one)
    monkeypatch.undo()
    again = record_chunks(monkeypatch, search_module, "describe_rows")
    found = find(opened, resume=True, **one)
    assert again
    assert not set(again) & set(labelled)
    assert same(found, find_labelled(monkeypatch))


@pytest.mark.parametrize("place", ["disk", "memory"])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_search_that_is_killed_while_rows_are_sorted_reads_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, metric: str
) -> None:
    zarr.create_array(tmp_path / "rows.zarr", data=X, chunks=(50, 12))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    opened = dc.open_dataset(str(tmp_path / "rows.zarr"))
    opened = opened.with_facts(partitions=[(at, at + 50) for at in range(0, len(X), 50)])
    given: dict[str, Any] = {"metric": metric, "threshold": 0.98 if metric == "cosine" else 0.2}
    given |= {"scratch": scratch, "engine": dc.LocalEngine(1)}
    expected = find(opened, **given)
    given["checkpoint"] = tmp_path / "state" if place == "disk" else f"memory://{tmp_path}"
    monkeypatch.setattr(pass_totals, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(pass_totals, "_COST", 0)
    monkeypatch.setattr(search_module, "BUCKET_BYTES", 8192)
    monkeypatch.setattr(search_module, "LEAST_BLOCK_BYTES", 16)
    commit, made = ScatteredRows._commit, list[int]()

    def dies(self: ScatteredRows, n_rows: int) -> None:
        commit(self, n_rows)
        made.append(n_rows)
        if len(made) % 8 == 0:
            raise KilledHereError

    monkeypatch.setattr(ScatteredRows, "_commit", dies)
    for resume in (False, True, True):
        with pytest.raises(KilledHereError):
            find(opened, resume=resume, **given)
    assert made == sorted(set(made))
    monkeypatch.setattr(ScatteredRows, "_commit", commit)
    assert len(list(scratch.iterdir())) == 1
    found = find(opened, resume=True, **given)
    assert same(found, expected)
    assert 0 < found.bytes_read < 0.3 * X.nbytes
    assert not list(scratch.iterdir())
    # Without resume, what another search has left is no part of this one.
    monkeypatch.setattr(ScatteredRows, "_commit", dies)
    made.clear()
    with pytest.raises(KilledHereError):
        find(opened, **given)
    monkeypatch.setattr(ScatteredRows, "_commit", commit)
    assert same(find(opened, **given), expected)
    assert not list(scratch.iterdir())


def find_labelled(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.undo()
    return find()


def test_a_named_job_resumes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "X.npy", X)
    given: dict[str, Any] = {"output": str(tmp_path / "kept.zarr"), "name": "nightly"}
    whole, dead = search_module.find_pairs, list[int]()

    def dies(*arguments: Any) -> int:
        dead.append(arguments[1])
        if len(dead) == 2:
            raise KilledHereError
        return whole(*arguments)

    monkeypatch.setattr(search_module, "_UNIT_ROWS", 50)
    monkeypatch.setattr(search_module, "find_pairs", dies)
    with pytest.raises(KilledHereError) as caught:
        jobs.dedup(str(tmp_path / "X.npy"), threshold=THRESHOLD, **given)
    (note,) = caught.value.__notes__
    assert "the job 'nightly'" in note
    assert "the same name resumes from it" in note
    monkeypatch.setattr(search_module, "find_pairs", whole)
    record = jobs.dedup(str(tmp_path / "X.npy"), threshold=THRESHOLD, **given)
    assert record.passes == 0
    group = zarr.open_group(tmp_path / "kept.zarr", mode="r")
    np.testing.assert_array_equal(group["group"][:], find().group)
    assert [path.name for path in (tmp_path / "kept.zarr.partial").iterdir()] == ["jobs"]


def test_a_damaged_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*arguments: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(search_module, "find_pairs", dies)
    with pytest.raises(KeyboardInterrupt):
        find(checkpoint=tmp_path)
    (victim,) = tmp_path.rglob("index/*.rows")
    whole = victim.read_bytes()
    victim.write_bytes(b"\1" + bytes(63) + b"nonsense")
    with pytest.raises(CheckpointError, match=r"index/000000000\.rows .* is damaged"):
        find(checkpoint=tmp_path, resume=True)
    victim.write_bytes(whole)
    for kind in ("rows", "blocks"):
        next(tmp_path.rglob(f"{kind}/000000000.rows")).unlink()
    with pytest.raises(CheckpointError, match="is missing from"):
        find(checkpoint=tmp_path, resume=True)


def test_equal_rows_are_compared_as_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.concatenate([np.ones((30_000, 8), np.float32), planted(500, 8, 3)])
    compared: list[int] = []
    whole = search_module.close_pairs

    def counted(a: Any, b: Any, *more: Any, **settings: Any) -> np.ndarray:
        compared.append(a.block.n_rows * b.block.n_rows)
        return whole(a, b, *more, **settings)

    monkeypatch.setattr(search_module, "close_pairs", counted)
    found = find(rows, engine=dc.LocalEngine(1))
    assert found.n_copies >= 29_999
    assert (found.group[:30_000] == 0).all()
    assert sum(compared) <= 501**2


def test_nearly_equal_rows_are_returned_as_a_tree() -> None:
    rng = np.random.default_rng(4)
    rows = (np.ones(16) + 1e-4 * rng.normal(size=(1500, 16))).astype(np.float32)
    found = find(rows)
    assert (found.group == 0).all()
    assert found.n_pairs < 20 * len(rows)
    assert find(rows, groups="covered").n_pairs == len(rows) * (len(rows) - 1) // 2


def test_progress_counts_rows() -> None:
    events: list[Any] = []
    find(callbacks=[events.append])
    started = [event for event in events if isinstance(event, PassStarted)]
    assert {"cells", "sort", "blocks", "pairs", "kept rows"} <= {event.name for event in started}
    rows, name = 0, ""
    for event in events:
        if isinstance(event, PassStarted):
            rows, name = 0, event.name
        elif isinstance(event, PassProgress):
            rows += event.rows
        elif isinstance(event, PassEnded) and name in ("sort", "blocks", "pairs", "kept rows"):
            assert rows == len(X), name


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.zarr"])
def test_outputs(name: str, tmp_path: Path) -> None:
    found, path = find(), tmp_path / name
    found.save(path)
    with pytest.raises(dc.errors.OutputExistsError):
        found.save(path)
    found.save(path, overwrite=True)
    if name.endswith(".zarr"):
        group = zarr.open_group(path, mode="r")
        columns = {each: group[each][:] for each in ("group", "kept", "similarity")}
    else:
        import pandas as pd

        read = pd.read_parquet if name.endswith("parquet") else pd.read_csv
        columns = read(path)
        np.testing.assert_array_equal(columns["row"], np.arange(len(X)))
    for each in ("group", "kept", "similarity"):
        np.testing.assert_array_equal(np.asarray(columns[each]), getattr(found, each))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold": 0.0}, "cosine similarity in"),
        ({"threshold": 1.5}, "metric='euclidean'"),
        ({"threshold": -1.0, "metric": "euclidean"}, "'threshold' parameter"),
        ({"groups": "stars"}, "'groups' parameter"),
        ({"metric": "l1"}, "'metric' parameter"),
        ({"keep": np.zeros(3)}, "3 scores for 1,500 rows"),
        ({"scratch": "/no/such/folder"}, "should be a folder"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidParameterError, InvalidDataError), match=message):
        find(**arguments)


def test_rows_that_are_refused() -> None:
    with pytest.raises(InvalidDataError, match="sparse"):
        find(sparse.csr_matrix(X))
    bad = X.copy()
    bad[700, 3] = np.nan
    with pytest.raises(InvalidDataError, match="NaN"):
        find(bad)


def test_workers_elsewhere_need_a_folder_that_they_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dc.LocalEngine, "can_read", lambda self, where: False)
    with pytest.raises(DataNotReachableError, match="give checkpoint= a URL"):
        find(engine=dc.LocalEngine(1))


def test_a_memory_limit_is_kept_or_refused() -> None:
    with pytest.raises(dc.errors.MemoryLimitError, match="The search takes up to"):
        find(engine=dc.LocalEngine(1, memory_limit=100_000_000))


@pytest.mark.parametrize("n", [1, 2, 7])
def test_few_rows(n: int) -> None:
    rows = np.eye(n, 3) + 0.5
    expected = pairs_of(measures(rows, "euclidean"), "euclidean", 0.1)
    found = find(rows, 0.1, metric="euclidean")
    assert (len(expected) == 0) == found.kept.all()
