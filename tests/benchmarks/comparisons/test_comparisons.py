"""The comparisons on a few rows: figures survive JSON, and make tables, plots and targets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskcluster.errors import InvalidParameterError
from tests.benchmarks.comparisons import (
    assign,
    coreset,
    growth,
    kernel_k_means,
    lloyd,
    lloyd_dask,
    memory,
    mixture,
    predict,
    reading,
    wide,
)
from tests.benchmarks.harness.catalogue import COMPARISONS, comparison, targets
from tests.benchmarks.harness.cells import Cell
from tests.benchmarks.harness.parts import Figure, Table
from tests.benchmarks.harness.peers import OURS, adapter, present
from tests.benchmarks.harness.quality import fair
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.stores import CODECS, read, write

PAGE = Path(__file__).resolve().parents[3] / "docs" / "benchmarks.md"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    return Settings(
        quick=True, threads=1, repeats=1, scratch=tmp_path / "scratch", images=tmp_path / "images"
    )


def shown(module: Any, cells: list[Cell], settings: Settings) -> tuple[dict[str, Any], list[Any]]:
    """Return figures as they come back from a file, and the parts that are made of them."""
    records = json.loads(json.dumps({cell.name: cell.measure() for cell in cells}))
    parts = module.show(records, settings)
    for part in parts:
        assert part.markdown()
        if isinstance(part, Figure):
            assert (settings.images / Path(part.path).name).stat().st_size > 1000
    return records, parts


# -- what all of them are ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(COMPARISONS))
def test_a_comparison_says_what_it_takes_and_names_its_cells(name: str) -> None:
    module = comparison(name)
    for quick in (True, False):
        names = [cell.name for cell in module.cells(Settings(quick=quick))]
        assert len(set(names)) == len(names) > 0
    assert "minute" in COMPARISONS[name].takes
    assert all(target.read({}) is None for target in module.TARGETS)


def test_every_target_has_a_line_on_the_page() -> None:
    names = [target.name for _, target in targets()]
    assert len(set(names)) == len(names) >= 17
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("<!-- benchmark: targets -->") : text.index("<!-- end: targets -->")]
    lines = {
        line.split(" | ")[0][2:]: line for line in section.splitlines() if line.startswith("| ")
    }
    for _, target in targets():
        assert f"| {target.goal} |" in lines[target.what], target.name
    kept = json.loads((PAGE.parent / "results" / "bench" / "targets.json").read_text())
    assert set(kept) <= set(names)
    reasons = json.loads((PAGE.parent / "results" / "bench" / "reasons.json").read_text())
    assert {name for name, one in kept.items() if not one["met"]} <= set(reasons) <= set(names)


# -- peers ----------------------------------------------------------------------------------------------


def test_a_peer_of_ones_own_takes_part(settings: Settings, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "my_peer.py").write_text(
        "from tests.benchmarks.harness.peers import scikit_learn as fit\n"
        "def lazy(rows, centres, iterations, threads):\n    return centres, iterations\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("tests.benchmarks.harness.peers.PEERS", {})
    mine = Settings(**{**vars(settings), "peers": ("mine=my_peer:fit", "lazy=my_peer:lazy")})
    one = lloyd.measure((2000, 4, 5), mine)
    assert set(one["seconds"]) == {OURS, "mine", "lazy"}
    assert one["comparable"] == ["mine"]
    assert any(
        note.startswith("lazy ended with another cost (relative difference: +")
        for note in one["notes"]
    )
    table, _ = lloyd.show({"2,000, 4, 5": one}, mine)
    assert table.header[3:5] == ["mine", "lazy"]
    sys.modules.pop("my_peer")


@pytest.mark.parametrize("text", ["mine", "mine=nowhere_to_be_found:fit", "mine=json:fit"])
def test_a_peer_that_cannot_be_found_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError, match="peer 'mine"):
        adapter(text)


def test_peers_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    found, notes = present()
    assert "Faiss" not in found
    assert any("Faiss is skipped" in note and "daskcluster[benchmark]" in note for note in notes)


def test_programs_with_comparable_results_are_compared() -> None:
    names, remarks = fair(10.0, {"same": 10.0, "worse": 10.2, "better": 9.9})
    assert names == ["same"]
    assert [remark.split()[0] for remark in remarks] == ["worse", "better"]


# -- one by one -----------------------------------------------------------------------------------------


def test_lloyd(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lloyd, "SHAPES", ((2000, 4, 5),))
    monkeypatch.setattr(lloyd, "QUICK", lloyd.SHAPES)
    records, (table, figure) = shown(lloyd, list(lloyd.cells(settings)), settings)
    one = records["2,000, 4, 5"]
    best = min(one["seconds"][name] for name in one["comparable"])
    assert "scikit-learn" in one["comparable"]
    assert table.rows[0][-4] == f"{best / one['seconds'][OURS]:.2f}"
    assert isinstance(figure, Figure)
    reading = lloyd._read((2000, 4, 5), records)
    assert reading.met == (best / one["seconds"][OURS] >= lloyd.TARGET)
    assert lloyd._read((60_000, 784, 50), {"60,000, 784, 50": {**one, "source": "mixture"}}) is None


def test_assign(settings: Settings) -> None:
    cells = [Cell(f"d=4 k={k}", lambda k=k: assign.measure(4, k, settings)) for k in (10, 50)]
    records, (table, _) = shown(assign, cells, settings)
    assert [row[:2] for row in table.rows] == [[4, 10], [4, 50]]
    one = records["d=4 k=10"]
    assert one.get("agree", 1.0) > assign.SAME_LABELS  # Faiss may not be installed
    assert assign.ratio_of({**one, "faiss": 2 * one["ours"], "agree": 1.0}) == 2
    assert assign.ratio_of({**one, "faiss": 2 * one["ours"], "agree": 0.9}) is None
    # A part of the shapes must not pass for all of them.
    assert all(target.read(records) is None for target in assign.TARGETS)


def test_targets_of_assign_are_about_the_worst_shape() -> None:
    records = {
        f"d={d} k={k}": {"d": d, "k": k, "share": 0.8, "ours": 1.0, "faiss": 2.0, "agree": 1.0}
        for d in assign.FEATURES
        for k in assign.CENTRES
    }
    assert [target.read(records).met for target in assign.TARGETS] == [True, True]
    records["d=64 k=256"]["share"] = 0.7
    records["d=4 k=10"]["faiss"] = 0.99
    assert [target.read(records).met for target in assign.TARGETS] == [False, False]


def test_wide(settings: Settings) -> None:
    shapes = {"embeddings": ("embeddings", 400, 96, 600), "noise": ("noise", 300, 64, 512)}
    cells = [Cell(name, lambda s=s: wide.measure(s, settings)) for name, s in shapes.items()]
    cells.append(Cell("fit", lambda: wide.measure_fit((700, 96, 64, 2), settings)))
    records, (table, fits) = shown(wide, cells, settings)
    assert [row[1:4] for row in table.rows] == [[400, 96, 600], [300, 64, 512]]
    assert {tuple(row[1:5]) for row in fits.rows} == {(700, 96, 64, 2)}
    assert fits.rows[0][5:8:2] == ["daskcluster", 1.0]
    fit = {"ours": 1.0, "ours inertia": 2.0, "faiss": 5.0, "faiss inertia": 2.0}
    assert wide.fit_gain(fit) == 5.0
    assert wide.fit_gain({**fit, "faiss inertia": 1.9}) is None
    (name,), (peer, other) = wide.FITS, wide.PRUNING
    assert wide.TARGETS[-2].read({name: fit}).met
    assert wide.TARGETS[-1].read({name: fit}) is None
    fit |= {peer: 1.6, f"{peer} inertia": 1.99, other: 1.4, f"{other} inertia": 2.1}
    assert wide.fit_gain(fit, peer) == 1.6
    assert wide.fit_gain({**fit, f"{peer} inertia": 1.9}, peer) is None
    assert not wide.TARGETS[-1].read({name: fit}).met
    one = records["noise"]
    assert 0.0 < one["share"] <= 1.0
    assert wide.gain({**one, "tile": 2 * one["bounds"]}) == 2
    assert wide.gain({**one, "faiss": 1.0, "agree": 0.5}, "faiss") is None
    assert all(target.read(records) is None for target in wide.TARGETS)
    readings = [t.read({"MNIST, k=4,000": {"bounds": 1.0, "tile": 7.0}}) for t in wide.TARGETS]
    assert readings[0].met
    assert readings[1:] == [None] * (len(readings) - 1)


def test_predict(settings: Settings) -> None:
    cells = [Cell("1,500, 4, 5", lambda: predict.measure((1500, 4, 5), settings))]
    cells += [cell for cell in predict.cells(settings) if cell.name == predict.STORE]
    records, (table, _, store) = shown(predict, cells, settings)
    assert records["1,500, 4, 5"]["agree"]["scikit-learn"] > 0.99
    assert table.rows[0][0] == "1,500, 4, 5"
    assert store.rows[0][0] == "100,000, 16, 50"


def test_growth(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "BASE", {"n": 20_000, "d": 4, "k": 5})
    wanted = ("d = 4", "chunk rows = 1000", "threads = 1")
    cells = [cell for cell in growth.cells(settings) if cell.name in wanted]
    records, (table, _) = shown(growth, cells, settings)
    assert [row[0] for row in table.rows] == ["d", "chunk rows", "threads"]
    assert set(records["threads = 1"]["seconds"]) == {OURS}
    assert "scikit-learn" in records["d = 4"]["seconds"]


def test_reading(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "QUICK_N", 20_000)
    cells = [Cell("a", lambda: reading.measure("blosc-zstd", 0.5, settings))]
    records, (table, _) = shown(reading, cells, settings)
    assert 0.3 < records["a"]["stored"] / records["a"]["bytes"] < 1.1
    assert table.rows[0][0] == "blosc-zstd"
    assert not (settings.scratch / reading.SCRATCH[0] / "rows.zarr").exists()


@pytest.mark.parametrize("codec", CODECS)
def test_stores_have_what_was_written(codec: str, tmp_path: Path) -> None:
    import zarr

    rows = np.arange(60, dtype=np.float32).reshape(20, 3)
    url = write(tmp_path / "rows.zarr", rows, 7, codec)
    assert (zarr.open_array(url)[:] == rows).all()
    assert read(url, 2, passes=2) == 40


def test_coresets_in_memory(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coreset, "SIZE", 100)
    cells = [
        Cell(
            kind,
            lambda kind=kind: (
                coreset.measure_in_memory(20_000, 4, settings)
                if kind == coreset.MEMORY
                else coreset.measure(20_000, 4, kind, settings)
            ),
        )
        for kind in ("warm", "cold", coreset.MEMORY)
    ]
    records, (disk, memory_table) = shown(coreset, cells, settings)
    assert [row[1] for row in disk.rows] == ["warm", "cold"]
    assert len(memory_table.rows) == 1
    assert coreset.TARGETS[0].read(records) is None
    wide = {f"{i}": records["warm"] for i in range(6)}
    one = {
        **records["warm"],
        "read": {"wall": 1.0, "cpu": 1.0},
        "coreset": {"wall": 1.2, "cpu": 1.0},
    }
    assert not coreset.TARGETS[0].read({**wide, "0": one}).met


def test_mixtures(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    small = mixture.Shape(2000, 4, 10)
    monkeypatch.setattr(mixture, "QUICK", small)
    monkeypatch.setattr(mixture, "QUICK_GROWN", small)
    monkeypatch.setattr(mixture, "QUICK_COMPONENTS", (10, 20))
    monkeypatch.setattr(mixture, "QUICK_SEARCHED", (small,))
    records, parts = shown(mixture, list(mixture.cells(settings)), settings)
    assert [part.title.split()[0] for part in parts if isinstance(part, Table)] == [
        "Time", "Time", "One", "Search",
    ]  # fmt: skip
    assert [target.read(records) for target in mixture.TARGETS] == [None, None]
    one = {"step": 0.1, "fit": 1.0, "error": 3.0}
    whole = {"shape": str(mixture.WHOLE), "ours": one, "faiss": {**one, "step": 0.4, "error": 2.0}}
    step, fit = (target.read({mixture.AGAINST: whole}) for target in mixture.TARGETS)
    assert step.met
    assert not fit.met, "a faster fit to a larger error is no success"
    assert fit.text == "1.00, with a larger error"


def test_kernel_k_means(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).random((1200, 8), dtype=np.float32)
    monkeypatch.setattr(kernel_k_means, "pixels", lambda folder: (rows, "MNIST"))
    monkeypatch.setattr(kernel_k_means, "STEPS", 12)
    monkeypatch.setattr(kernel_k_means, "BATCH", 100)
    records, (table,) = shown(kernel_k_means, list(kernel_k_means.cells(settings)), settings)
    assert [row[0] for row in table.rows] == [kernel_k_means.TRUNCATED, kernel_k_means.FULL]
    assert [row[1] for row in table.rows] == [12, 2]
    assert kernel_k_means.TARGETS[0].read(records) is None
    large = {name: {**one, "rows": 70_000} for name, one in records.items()}
    large[kernel_k_means.FULL]["seconds"] = 150 * large[kernel_k_means.TRUNCATED]["seconds"]
    assert kernel_k_means.TARGETS[0].read(large).text == "150"


def test_memory_is_allowed_what_is_promised() -> None:
    one = {
        "n": memory.N, "row_bytes": 12, "state": 12 * memory.N, "window": 32e6, "partitions": 32e6,
        "statistics": 1000, "peak": 180e6, "read": 1e9, "passes": 7,
    }  # fmt: skip
    records = dict.fromkeys(memory.ROW_BYTES, one)
    (table,) = memory.show(records, Settings())
    assert table.rows[0][-3:] == ["184", "180", "0.98"]
    assert memory.TARGETS[0].read(records).met
    assert not memory.TARGETS[0].read({**records, "elkan": {**one, "peak": 185e6}}).met
    assert memory.TARGETS[0].read({"lloyd": one}) is None


def test_targets_of_clusters_are_about_all_shapes() -> None:
    names = [f"{n:,}, {d}, {k}" for n, d, k in lloyd_dask.SHAPES]
    good, bad = (
        {"ours": 1.0, "theirs": 6.0, "fair": True},
        {"ours": 1.0, "theirs": 4.0, "fair": True},
    )
    read_peer = lloyd_dask.TARGETS[0].read
    assert read_peer(dict.fromkeys(names, good)).met
    assert read_peer({names[0]: good, names[1]: bad}).text == "6.0 and 4.0"
    assert not read_peer({names[0]: good, names[1]: bad}).met
    assert read_peer({names[0]: good, names[1]: {**good, "fair": False}}) is None


@pytest.mark.slow
def test_out_of_core_fits_are_measured_in_their_own_processes(
    settings: Settings, monkeypatch
) -> None:
    monkeypatch.setattr(memory, "QUICK_N", 100_000)
    records, _ = shown(memory, list(memory.cells(settings)), settings)
    assert set(records) == set(memory.ROW_BYTES)
    assert all(one["peak"] > 0 for one in records.values())


@pytest.mark.slow
def test_clusters_take_part(settings: Settings, monkeypatch) -> None:
    pytest.importorskip("dask_ml", reason="needs the benchmark extra")
    monkeypatch.setattr(lloyd_dask, "QUICK", ((4000, 4, 5),))
    cells = list(lloyd_dask.cells(settings))[:1]
    records, (table,) = shown(lloyd_dask, cells, settings)
    assert records["4,000, 4, 5"]["fair"]
    assert table.rows[0][1] > 0
