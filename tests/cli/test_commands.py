"""Every command does what it says, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import Result

from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.methods.load import load_model
from daskcluster.models.fitted import load_document

Run = Callable[..., Result]
Record = Callable[..., dict[str, Any]]
FIT = ("fit", "rows.zarr", "--n-clusters", "6", "--random-state", "0", "--threads", "2")


def test_from_a_file_to_labels(here: Path, record: Record, rows: np.ndarray) -> None:
    np.savetxt("rows.csv", rows, delimiter=",", header="a,b,c,d", comments="", fmt="%.9g")
    converted = record(
        "convert", "rows.csv", "rows.zarr", "--dtype", "float32", "--chunk-rows", "300"
    )
    assert (converted["n_rows"], converted["chunk_rows"]) == (2000, 300)
    np.testing.assert_array_equal(zarr.open_array("rows.zarr", mode="r")[:], rows)

    fitted = record(*FIT, "--model", "m.zarr", "--labels", "l.zarr")
    assert fitted["model"] == "m.zarr"
    assert fitted["inertia"] == load_document("m.zarr").inertia
    assert {"inertia", "n_iter", "passes", "seconds", "versions", "stop_reason"} <= set(fitted)

    predicted = record("predict", "m.zarr", "rows.zarr", "--output", "p.zarr")
    assert (predicted["output"], predicted["passes"]) == ("p.zarr", 1)
    expected = load_model("m.zarr").predict(rows)
    for url in ("l.zarr", "p.zarr"):
        labels = zarr.open_array(url, mode="r")
        assert (labels.dtype, labels.shape, labels.chunks) == (np.int32, (2000,), (300,))
        np.testing.assert_array_equal(labels[:], expected)

    scored = record("score", "m.zarr", "rows.zarr")
    assert scored["inertia"] == fitted["inertia"] == -scored["score"]


def test_a_fit_is_that_of_the_estimator(here: Path, record: Record, rows: np.ndarray) -> None:
    record("convert", "rows.npy", "rows.zarr")
    flags = (
        "--init",
        "random",
        "--max-iter",
        "3",
        "--tol",
        "0",
        "--metric",
        "cosine",
        "--n-init",
        "2",
    )
    record(*FIT, *flags, "--model", "m.zarr")
    there = load_document("m.zarr")
    twin = KMeans(6, init="random", n_init=2, max_iter=3, tol=0, metric="cosine", random_state=0)
    assert there.centres.tobytes() == twin.fit(rows).cluster_centers_.tobytes()
    assert there.parameters["metric"] == "cosine"
    assert there.parameters["n_init"] == 2


def test_rasters_on_request(here: Path, run: Run, record: Record) -> None:
    zarr.create_array("raster.zarr", data=np.random.default_rng(0).random((20, 30, 3)))
    arguments = ("fit", "raster.zarr", "--n-clusters", "3", "--model", "m.zarr")
    refused = run(*arguments)
    assert refused.exit_code == 1
    assert "flatten" in refused.stderr
    assert record(*arguments, "--flatten")["n_rows"] == 600


def test_output_without_json_is_a_table(here: Path, run: Run) -> None:
    run("convert", "rows.npy", "rows.zarr")
    result = run(*FIT, "--model", "m.zarr")
    assert result.exit_code == 0
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert lines["rows"] == "2,000"
    assert lines["model"] == "m.zarr"
    assert result.stderr == ""  # no progress where stderr is no terminal


def test_progress_on_request(here: Path, run: Run) -> None:
    run("convert", "rows.npy", "rows.zarr")
    result = run(
        *FIT, "--model", "m.zarr", "--progress", "--json", "--init", "random", "--tol", "0"
    )
    assert "iteration 1/300, at most" in result.stderr
    assert "at most" in result.stderr
    assert "ended (converged)" in result.stderr
    assert len(result.stdout.splitlines()) == 1


def test_progress_prints_the_number_of_compiled_kernels(
    here: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for compiled in (0, 3):
        monkeypatch.setattr("daskcluster.kernels.jit.compilations", lambda n=compiled: (7, n))
        result = run(
            "fit", "rows.npy", *FIT[2:], "--model", f"m{compiled}", "--progress", "--max-iter", "1"
        )
        last = result.stderr.splitlines()[-1]
        assert last.startswith("3 kernels were compiled") == (compiled == 3)


def test_outputs_are_replaced_on_request_only(here: Path, run: Run) -> None:
    run("convert", "rows.npy", "rows.zarr")
    arguments = (*FIT, "--model", "m.zarr", "--labels", "l.zarr")
    assert run(*arguments).exit_code == 0
    before = (here / "m.zarr" / "zarr.json").read_text()
    refused = run(*arguments)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: The output")
    assert "exists already; pass --overwrite to replace it" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert (here / "m.zarr" / "zarr.json").read_text() == before
    assert run(*arguments, "--overwrite").exit_code == 0
    assert run("convert", "rows.npy", "rows.zarr").exit_code == 1


FAILURES: list[tuple[tuple[str, ...], str]] = [
    (("fit", "nothing.zarr", "--n-clusters", "3", "--model", "m"), "nothing.zarr"),
    (("fit", "rows.npy", "--n-clusters", "2001", "--model", "m"), "should be >= n_clusters=2001"),
    (("fit", "flat.npy", "--n-clusters", "3", "--model", "m"), "Expected 2D array, got 1D array"),
    (("fit", "nan.npy", "--n-clusters", "3", "--model", "m"), "Input X contains NaN: first in row 7"),
    (("fit", "same.npy", "--n-clusters", "3", "--model", "rows.npy"), "written as Zarr, a folder"),
    (("fit", "rows.npy", "--n-clusters", "3", "--model", "rows.npy", "--overwrite"), "would replace"),
    (("fit", "rows.npy", "--n-clusters", "3", "--model", "m", "--labels", "m"), "different URLs"),
    (("fit", "rows.npy", "--n-clusters", "3", "--model", "m", "--init", "./absent"), "./absent"),
    (("fit", "rows.npy", "--n-clusters", "3", "--model", "m", "--weights", "flat.npy"), "weight"),
    (("predict", "absent", "rows.npy", "--output", "l"), "no model can be read at"),
    (("predict", "rows.npy", "rows.npy", "--output", "l"), "no model can be read at"),
    (("score", "absent", "rows.npy"), "no model can be read at"),
    (("info", "absent"), "absent"),
    (("convert", "absent.csv", "out.zarr"), "absent.csv"),
    (("convert", "rows.npy", "rows.npy", "--overwrite"), "would replace the source"),
    (("report", "absent", "--output", "page.html"), "no model can be read at"),
    (("report", "absent", "--output", "no/such/page.html"), "does not exist"),
    (("report", "absent", "--output", "rows.npy"), "should end in one of .html, .png, .md, .json"),
    (("score", "m", "rows.npy", "--scheduler", "tcp://127.0.0.1:9", "--timeout", "1"), "within 1 s"),
    (("score", "m", "rows.npy", "--scheduler", "nonsense://x", "--timeout", "1"), "nonsense"),
]  # fmt: skip


def test_failures_are_one_line(here: Path, run: Run) -> None:
    np.save("flat.npy", np.zeros(50, np.float32))
    np.save("same.npy", np.zeros((50, 2), np.float32))
    bad = np.zeros((50, 2), np.float32)
    bad[7, 1] = np.nan
    np.save("nan.npy", bad)
    before = sorted(file.name for file in here.iterdir())
    for arguments, message in FAILURES:
        result = run(*arguments)
        errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
        assert (result.exit_code, len(errors), result.stdout) == (1, 1, ""), arguments
        assert message in errors[0]
        assert "Traceback" not in result.stderr
        assert sorted(file.name for file in here.iterdir()) == before, arguments


def test_debug_shows_where_an_error_came_from(here: Path, run: Run) -> None:
    result = run("score", "absent", "rows.npy", "--debug")
    assert isinstance(result.exception, FileNotFoundError)


def test_info_of_rows_and_of_a_model(here: Path, run: Run, record: Record) -> None:
    record("convert", "rows.npy", "rows.zarr", "--chunk-rows", "300")
    facts = record("info", "rows.zarr")
    assert (facts["kind"], facts["rows"], facts["chunks"], facts["array_chunks"]) == (
        "dataset", 2000, 7, [300, 4],
    )  # fmt: skip
    assert "2,000" in run("info", "rows.zarr").stdout
    record(*FIT, "--model", "m.zarr")
    found = record("info", "m.zarr")
    assert (found["kind"], found["n_clusters"], found["n_rows"]) == ("model", 6, 2000)
    assert "kmeans" in run("info", "m.zarr").stdout


def test_a_report_has_four_formats(here: Path, run: Run, record: Record) -> None:
    record("fit", "rows.npy", *FIT[2:], "--model", "m")
    formats = (("a.md", b"# m"), ("a.json", b"{"), ("a.png", b"\x89PNG"), ("a.html", b"<!doctype"))
    for name, begins in formats:
        done = run("report", "m", "--data", "rows.npy", "--output", name)
        assert done.exit_code == 0, done.output
        assert (here / name).read_bytes().startswith(begins)
    figures = json.loads((here / "a.json").read_text())["clusters"]["Clusters in rows.npy"]
    assert sum(figures["sizes"]) == 2000
    rows, found = np.load("rows.npy"), figures["farthest"]
    centre = load_model("m").cluster_centers_[found["cluster"][0]]
    away = ((rows[found["row"][0]].astype(float) - centre) ** 2).sum()
    assert found["squared_distance"][0] == pytest.approx(away)
    assert "pass --overwrite" in run("report", "m", "--output", "a.json").stderr
    assert run("report", "m", "--output", "a.json", "--overwrite").exit_code == 0


def test_a_dry_run_prints_the_cost_of_a_fit_and_writes_nothing(
    here: Path, run: Run, record: Record
) -> None:
    record("convert", "rows.npy", "rows.zarr", "--chunk-rows", "300")
    arguments = (*FIT, "--max-iter", "5", "--tol", "0", "--init", "k-means||")
    projected = record(*arguments, "--dry-run")
    assert sorted(file.name for file in here.iterdir()) == ["rows.npy", "rows.zarr"]
    done = record(*arguments, "--model", "m.zarr")
    assert done["passes"] <= projected["passes_at_most"] == 6 + 5 + 1
    assert done["bytes_read"] <= projected["bytes_at_most"]
    assert projected["memory"]["baseline"] == 310 * 2**20
    assert projected["threads"] == 2
    assert projected["flop_per_iteration"] == 2 * 2000 * 6 * 4
    assert projected["commit_bytes"] == 6 * 4 * 4
    assert projected["bounds"]["needed"]["hamerly"] == 12 * 2000
    little = record(*arguments, "--algorithm", "elkan", "--bounds-memory", "30000", "--dry-run")
    assert little["bounds"]["fitting"] == ["yinyang", "hamerly"]
    two = (*FIT[:-2], "--workers", "2", "--dry-run")
    assert record(*two)["traffic"] == {"sent": 8 * 6 * 4, "returned": 8 * 6 * 5, "drawn": 0}
    assert "96 B a commit, of which two stay" in run(*arguments, "--dry-run").stdout


def test_a_dry_run_of_an_algorithm_without_a_plan(
    here: Path, run: Run, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ALGORITHMS, "lloyd", replace(ALGORITHMS["lloyd"], plan=""))
    arguments = ("fit", "rows.npy", "--n-clusters", "6", "--algorithm", "lloyd", "--dry-run")
    projected = record(*arguments)
    assert projected["planned"] is False
    assert projected["bytes_decoded"] == 2000 * 4 * 4
    assert "passes_at_most" not in projected
    assert "'lloyd' cannot project" in run(*arguments).stdout
    assert [file.name for file in here.iterdir()] == ["rows.npy"]


def test_a_memory_limit_too_small_is_refused_before_work(here: Path, run: Run) -> None:
    for more in ((), ("--dry-run",)):
        fit = ("fit", "rows.npy", *FIT[2:], "--model", "m.zarr", "--memory-limit", "100MB")
        refused = run(*fit, *more)
        assert refused.exit_code == 1
        assert "projected memory" in refused.stderr
        assert "raise the limit" in refused.stderr
        assert not (here / "m.zarr").exists()


REFUSED = (
    ("fit rows.npy --n-clusters 2001", "n_samples=2000 should be >= n_clusters=2001"),
    ("fit rows.npy --n-clusters 3 --memory-limit 100MB", "exceeds --memory-limit 100 MB: "),
    ("fit rows.npy --n-clusters 3 --memory-limit 100MB --workers 2", "raise the limit, use fewer"),
    ("fit rows.npy --n-clusters 3 --model old", "exists already; pass --overwrite to replace it"),
    (
        "fit rows.npy --n-clusters 3 --algorithm var-gmm --labels l --distances",
        "has no centres, so there are no distances",
    ),
    ("fit rows.npy --n-clusters 3 --init ./absent", "no model can be read at"),
    ("fit rows.npy --n-clusters 4 --init ./old", "does not match the number of clusters 4"),
    (
        "fit rows.npy --n-clusters 3 --algorithm var-gmm --missing partial",
        "cannot fit rows that were opened with missing='partial'",
    ),
    ("coreset rows.npy --size 20 --output rows.npy --overwrite", "would replace the source"),
    ("dedup rows.npy --missing partial", "takes no rows that were opened with missing='partial'"),
    ("dedup rows.npy --keep ./absent.npy", "absent.npy"),
    ("sample old rows.npy --size 20 --how ./absent.npy", "absent.npy"),
    ("sample old rows.npy --size 2001", "draw fewer rows"),
    ("sample mixture rows.npy --size 20 --how nearest", "use how='random' or scores"),
    ("sample old rows.npy --size 20 --rows r.npy", "should end in .parquet or .pq"),
    ("dedup rows.npy --scratch nowhere", "should be a folder of this host"),
    ("partition rows.npy --max-size 3", "should be >= target_size=1000"),
    ("partition rows.npy --centroids c.txt", "give it such an ending"),
)


def test_a_dry_run_says_what_the_run_will_refuse(here: Path, run: Run, record: Record) -> None:
    record("fit", "rows.npy", "--n-clusters", "3", "--model", "old")
    record("fit", "rows.npy", "--n-clusters", "3", "--algorithm", "var-gmm", "--model", "mixture")
    before = sorted(here.iterdir())
    for line, text in REFUSED:
        refused = run(*line.split(), "--dry-run")
        assert refused.exit_code == 1, line
        shown = next(each for each in refused.stdout.splitlines() if each.startswith("refused "))
        assert text in shown, line
        assert refused.stderr == f"Error: {shown.removeprefix('refused').lstrip()}\n"
        as_json = json.loads(run(*line.split(), "--dry-run", "--json").stdout)
        assert text in as_json["refused"]
        assert as_json["n_rows"] == 2000
    assert sorted(here.iterdir()) == before
    assert record("fit", "rows.npy", "--n-clusters", "3", "--dry-run")["refused"] is None


def test_a_demo_in_threads(here: Path, run: Run) -> None:
    arguments = ("demo", "--rows", "20000", "--workers", "0")
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    written = sorted(file.name for file in (here / "daskcluster-demo").iterdir())
    assert written == ["labels.zarr", "model.zarr", "report.html", "rows.zarr"]
    assert "Next:" in result.stdout
    model = load_document("daskcluster-demo/model.zarr")
    assert (model.n_clusters, model.n_rows) == (20, 20_000)
    assert 800 < model.sizes.min() < model.sizes.max() < 1200, "a group is split, or two are joined"
    labels = zarr.open_array("daskcluster-demo/labels.zarr", mode="r")
    np.testing.assert_array_equal(np.bincount(labels[:], minlength=20), model.sizes)
    assert "pass --overwrite" in run(*arguments).stderr


def test_warnings_are_one_line(here: Path, run: Run) -> None:
    np.save("same.npy", np.zeros((50, 2), np.float32))
    result = run("fit", "same.npy", "--n-clusters", "3", "--model", "m.zarr", "--json")
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: Number of distinct clusters (1)")
    assert json.loads(result.stdout)["inertia"] == 0.0
