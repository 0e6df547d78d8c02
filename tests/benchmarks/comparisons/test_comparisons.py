"""The comparisons on a few rows: figures survive JSON, and make tables, plots and targets."""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from daskcluster.errors import InvalidParameterError
from tests.benchmarks.comparisons import (
    assign,
    lloyd,
    lloyd_dask,
    memory,
    mixture,
    wide,
)
from tests.benchmarks.harness import mask
from tests.benchmarks.harness.catalogue import COMPARISONS, comparison, targets
from tests.benchmarks.harness.peers import OURS, adapter, present
from tests.benchmarks.harness.quality import fair
from tests.benchmarks.harness.run import Bench, Choice
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.store import Results

PAGE = Path(__file__).resolve().parents[3] / "docs" / "benchmarks.md"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    return Settings(
        quick=True, threads=1, repeats=1, scratch=tmp_path / "scratch", images=tmp_path / "images"
    )


# -- what all of them are ------------------------------------------------------------------------------


def test_every_comparison_has_a_duration_and_named_cells() -> None:
    for name, entry in COMPARISONS.items():
        module = comparison(name)
        for quick in (True, False):
            names = [cell.name for cell in module.cells(Settings(quick=quick))]
            assert len(set(names)) == len(names) > 0, name
        assert "minute" in entry.takes
        assert all(target.read({}) is None for target in module.TARGETS)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", COMPARISONS)
def test_tables_are_those_of_the_recorded_figures(
    name: str, masked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if masked:
        monkeypatch.setenv(mask.MARK, mask.AVX2)
    bench = Bench(Settings(tell=lambda line: None), tmp_path)
    kept = PAGE.parent / bench.results.folder.relative_to(tmp_path)
    if not Results(kept).read(name):
        pytest.skip("not measured")
    shutil.copytree(kept, bench.results.folder)
    list(bench.render([Choice(name)]))
    published = PAGE.parent / bench.tables.relative_to(tmp_path)
    assert tables_in(bench.tables / name) == tables_in(published / name)
    assert read_targets(bench.results) == read_targets(Results(kept))
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index(f"<!-- benchmark: {name} -->") : text.index(f"<!-- end: {name} -->")]
    assert all(f"results/tables/{name}/{file})" in section for file in tables_in(published / name))


def tables_in(folder: Path) -> dict[str, list[tuple[str, ...]]]:
    """Return the columns of all tables, without those that have no figure yet; the lines are sorted."""
    found = {}
    for path in folder.iterdir():
        with path.open(encoding="utf-8", newline="") as file:
            header, *lines = csv.reader(file)
        columns = zip(header, *sorted(lines), strict=True)
        found[path.name] = [column for column in columns if set(column[1:]) != {"-"}]
    return found


def read_targets(results: Results) -> list[Any]:
    return [(key, one["measured"], one["met"]) for key, one in results.read("targets").items()]


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
    for folder in ("bench", "bench-avx2"):
        results = Results(PAGE.parent / "results" / folder)
        kept, reasons = results.read("targets"), results.read("reasons")
        assert set(kept) <= set(names)
        assert {name for name, one in kept.items() if not one["met"]} <= set(reasons) <= set(names)
        for _, one in targets():
            assert one.name not in kept or f"| {kept[one.name]['measured']} " in lines[one.what]


# -- peers ----------------------------------------------------------------------------------------------


def test_a_peer_given_by_the_user_is_compared(
    settings: Settings, tmp_path: Path, monkeypatch
) -> None:
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


def test_a_peer_that_cannot_be_found_is_refused() -> None:
    for text in ("mine", "mine=nowhere_to_be_found:fit", "mine=json:fit"):
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


# -- targets --------------------------------------------------------------------------------------------


def test_ten_lloyd_iterations_are_compared_with_the_best_peer() -> None:
    seconds = {OURS: 1.0, "scikit-learn": 3.0, "Faiss": 2.0}
    one = {"seconds": seconds, "comparable": ["scikit-learn"], "source": "MNIST"}
    cell = lloyd.SHAPES[0]
    name = ", ".join(f"{size:,}" for size in cell)
    reading = lloyd._read(cell, {name: one})
    assert (reading.text, reading.met) == ("3.00", lloyd.TARGET <= 3.0)
    mnist = {"60,000, 784, 50": {**one, "source": "mixture"}}
    assert lloyd._read((60_000, 784, 50), mnist) is None


def test_the_worst_shape_counts_for_the_nearest_centre() -> None:
    records = {
        f"d={d} k={k}": {"d": d, "k": k, "share": 0.8, "ours": 1.0, "faiss": 2.0, "agree": 1.0}
        for d in assign.FEATURES
        for k in assign.CENTRES
    }
    assert [target.read(records).met for target in assign.TARGETS] == [True, True]
    records["d=64 k=256"]["share"] = 0.7
    records["d=4 k=10"]["faiss"] = 0.99
    assert [target.read(records).met for target in assign.TARGETS] == [False, False]
    # A part of the shapes must not pass for all of them.
    part = {"d=4 k=10": records["d=4 k=10"]}
    assert all(target.read(part) is None for target in assign.TARGETS)
    assert assign.ratio_of({**records["d=4 k=10"], "agree": 0.9}) is None


def test_a_fit_with_a_larger_inertia_is_no_success() -> None:
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
    assert wide.gain({"bounds": 1.0, "faiss": 1.0, "agree": 0.5}, "faiss") is None


def test_a_faster_mixture_with_a_larger_error_is_no_success() -> None:
    one = {"step": 0.1, "fit": 1.0, "error": 3.0}
    whole = {"shape": str(mixture.WHOLE), "ours": one, "faiss": {**one, "step": 0.4, "error": 2.0}}
    step, fit = (target.read({mixture.AGAINST: whole}) for target in mixture.TARGETS)
    assert step.met
    assert not fit.met
    assert fit.text == "1.00, with a larger error"


def test_memory_is_compared_with_the_promised_maximum() -> None:
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
