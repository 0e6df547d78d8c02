"""``daskcluster dedup``: from source to output, on disk and in a bucket; kill and resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import Result

import daskcluster as dc
from tests.cli.conftest import kill_at
from tests.methods.duplicates.oracle import planted

Run = Callable[..., Result]
Record = Callable[..., dict[str, Any]]

X = planted(900, 16, 0, copies=20)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an own folder, with ``X.npy`` in it, that the test runs in."""
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    return tmp_path


def test_the_command_equals_the_function(folder: Path, record: Record) -> None:
    done = record("dedup", "X.npy", "--threshold", "0.98", "--output", "kept.zarr")
    found = dc.near_duplicates(X, 0.98)
    group = zarr.open_group("kept.zarr", mode="r")
    for name in ("group", "kept", "similarity"):
        np.testing.assert_array_equal(group[name][:], getattr(found, name))
    assert (done["n_kept"], done["n_groups"]) == (found.n_kept, found.n_groups)
    assert (done["n_rows"], done["n_copies"]) == (900, found.n_copies)
    assert done["passes"] == 3
    assert done["bytes_read"] >= 2 * X.nbytes


def test_tables_have_ids_and_scores(folder: Path, run: Run) -> None:
    pandas = pytest.importorskip("pandas")
    scores = np.random.default_rng(1).normal(size=900)
    names = [f"row {i}" for i in range(900)]
    frame = pandas.DataFrame({"name": names, "score": scores, "x": list(X)})
    frame.to_parquet("X.parquet", row_group_size=200)
    result = run(
        "dedup", "X.parquet", "--columns", "x", "--id-column", "name", "--keep", "score",
        "--threshold", "0.98", "--output", "kept.parquet",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "copies" in result.stdout
    found = pandas.read_parquet("kept.parquet")
    assert list(found.columns) == ["name", "group", "kept", "similarity"]
    np.testing.assert_array_equal(found["name"], names)
    expected = dc.near_duplicates(X, 0.98, keep=scores)
    np.testing.assert_array_equal(found["kept"], expected.kept)


def test_dry_run_and_usage(folder: Path, run: Run, record: Record) -> None:
    plan = record("dedup", "X.npy", "--dry-run", "--threads", "2")
    assert plan["n_rows"] == 900
    assert plan["memory"] == plan["memory_driver"] + 2 * plan["memory_task"]
    assert "scratch" in run("dedup", "X.npy", "--dry-run").stdout
    refused = run("dedup", "X.npy", "--dry-run", "--memory-limit", "100MB")
    assert refused.exit_code == 1
    assert "scratch" in refused.stdout
    assert "The search takes up to" in refused.stderr
    assert "\nrefused   The search takes up to" in refused.stdout
    beyond = run("dedup", "X.npy", "--dry-run", "--threshold", "1.2")
    assert beyond.exit_code == 1
    assert "\nrefused  threshold=1.2 should be a cosine similarity" in beyond.stdout
    assert run("dedup", "X.npy").exit_code == 2
    assert "--checkpoint" in run("dedup", "X.npy", "--output", "o", "--resume").output
    assert run("dedup", "X.npy", "--output", "o.zarr", "--threshold", "1.2").exit_code == 1
    assert not (folder / "o.zarr").exists()


def test_it_writes_a_report(folder: Path, run: Run, record: Record) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"name": [f"row {i}" for i in range(900)], "x": list(X)})
    frame.to_parquet("X.parquet")
    command = ("dedup", "X.parquet", "--columns", "x", "--id-column", "name", "--threshold", "0.98")
    done = record(*command, "--output", "kept.parquet", "--report", "found.json")
    found = json.loads(Path("found.json").read_text())
    assert (found["n_kept"], found["n_groups"]) == (done["n_kept"], done["n_groups"])
    assert found["groups"][0]["kept"].startswith("row ")
    assert found["title"] == "Near-duplicates in X.parquet"
    for more in (
        ("--report", "found.json"),  # it exists
        ("--report", "no/x.html"),
        ("--report", "x.pdf"),
    ):
        assert run(*command, "--output", "other.parquet", *more).exit_code == 1
        assert not Path("other.parquet").exists()


SEARCH = "daskcluster.methods.duplicates"


@pytest.mark.kills
@pytest.mark.parametrize(
    "moment",
    [
        f"{SEARCH}.near_duplicates:connected_groups",
        f"{SEARCH}.near_duplicates:NearDuplicates.save",
        "daskcluster.jobs.run:Run.done",
    ],
)
def test_a_kill_after_the_last_pair_loses_no_pair(
    moment: str, folder: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("dedup", "X.npy", "--threshold", "0.98", "--output", "kept.parquet")
    command = (*command, "--checkpoint", "state", "--threads", "1")
    kill_at(moment, *command)
    written = moment.endswith("done")
    assert Path("kept.parquet").exists() == written
    assert list(Path("state").rglob("pairs/*.rows"))
    expected = dc.near_duplicates(X, 0.98)
    _refuse(monkeypatch, "describe_rows", "sort_rows", "find_pairs")
    record(*command, "--resume", *(("--overwrite",) if written else ()))
    _check(Path("kept.parquet"), expected)
    assert not [path for path in Path("state").rglob("*") if path.is_file()]


def test_a_killed_job_is_run_again_by_its_name(
    folder: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("dedup", "X.npy", "--threshold", "0.98", "--output", "kept.parquet")
    command = (*command, "--name", "one", "--threads", "1")
    kill_at("daskcluster.jobs.run:Run.done", *command)
    expected = dc.near_duplicates(X, 0.98)
    _refuse(monkeypatch, "describe_rows", "sort_rows", "find_pairs")
    record(*command)
    _check(Path("kept.parquet"), expected)
    assert not list(folder.rglob("*.rows"))


def _refuse(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let a search fail that does again what an earlier run has finished."""

    def fails(*given: Any, **named: Any) -> None:
        raise AssertionError(given)

    for name in names:
        monkeypatch.setattr(f"{SEARCH}.search.{name}", fails)


def _check(path: Path, expected: Any) -> None:
    found = pytest.importorskip("pandas").read_parquet(path)
    np.testing.assert_array_equal(found["group"], expected.group)
    np.testing.assert_array_equal(found["similarity"], expected.similarity)


def test_from_bucket_to_bucket(
    folder: Path, s3: dict[str, Any], bucket: tuple[str, ...], record: Record
) -> None:
    record("convert", "X.npy", "s3://rows/dedup/X.zarr", "--chunk-rows", "200", *bucket)
    record(
        "dedup", "s3://rows/dedup/X.zarr", "--threshold", "0.98", "--output",
        "s3://rows/dedup/kept.zarr", "--checkpoint", "s3://rows/dedup/state", *bucket,
    )  # fmt: skip
    group = zarr.open_group("s3://rows/dedup/kept.zarr", mode="r", storage_options=s3)
    np.testing.assert_array_equal(group["group"][:], dc.near_duplicates(X, 0.98).group)
    filesystem = pytest.importorskip("s3fs").S3FileSystem(**s3)
    assert filesystem.find("rows/dedup/state") == []


def test_scores_are_those_of_the_rows_that_are_left(folder: Path, run: Run) -> None:
    pandas = pytest.importorskip("pandas")
    scores = np.random.default_rng(1).normal(size=900)
    frame = pandas.DataFrame(X, columns=[f"f{i}" for i in range(16)]).assign(score=scores)
    frame.loc[5, "f3"] = np.nan
    frame.loc[5, "score"] = np.nan
    frame.to_parquet("gaps.parquet", row_group_size=200)
    arguments = (
        "dedup", "gaps.parquet", "--columns", ",".join(frame.columns[:16]), "--missing", "drop",
        "--keep", "score", "--threshold", "0.98", "--output", "kept.zarr",
    )  # fmt: skip
    assert run(*arguments, "--dry-run").exit_code == 0
    assert run(*arguments).exit_code == 0
    left = np.delete(np.arange(900), 5)
    expected = dc.near_duplicates(X[left], 0.98, keep=scores[left])
    np.testing.assert_array_equal(
        zarr.open_group("kept.zarr", mode="r")["kept"][:][left], expected.kept
    )


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("dedup X.npy --output d --report there.html", "exists already"),
        ("dedup X.npy --output d --report report.pdf", "should end in one of"),
        ("dedup X.npy --output d --keep nosuch", "nosuch"),
        ("dedup X.npy --output s.npy --keep s.npy --overwrite", "would replace the keep"),
        ("sample m X.npy --size 9 --how s.npy --output s.npy --overwrite", "replace the scores"),
        ("fit X.npy --n-clusters 3 --scale standard --init ./m --model n", "on scaled rows"),
        ("fit X.npy --n-clusters 3 --model X.npy --overwrite --name a", "replace the source"),
    ],
)
def test_a_dry_run_refuses_what_the_run_refuses(
    folder: Path, run: Run, command: str, text: str
) -> None:
    np.save("s.npy", np.arange(900.0))
    Path("there.html").touch()
    assert run("fit", "X.npy", "--n-clusters", "3", "--model", "m").exit_code == 0
    for more in (("--dry-run",), ()):
        refused = run(*command.split(), *more)
        assert refused.exit_code == 1
        assert text in " ".join(refused.stderr.split())
