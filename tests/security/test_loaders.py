"""Whatever a folder holds, loading it ends in a sound model or in an error of ours, and soon."""

from __future__ import annotations

import resource
import shutil
import sys
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest

from daskcluster.errors import CheckpointError, DaskClusterError, ModelFormatError
from daskcluster.methods.catalogue import class_names, estimator_path
from daskcluster.methods.load import load_model
from daskcluster.models.fitted import (
    KINDS,
    MODEL,
    Model,
    is_model,
    load_document,
    model_class,
    save_model,
)
from daskcluster.reports.contents import Report
from daskcluster.reports.pages import as_html
from daskcluster.storage.checkpoint import CHECKPOINT, CheckpointFolder
from daskcluster.storage.document import Document, sealed
from tests.security import damage
from tests.security.samples import SAMPLES, D, kmeans_model

MOST_BYTES = 256 << 20
"""Most memory that any of these loads may take: claims go up to 2^63 bytes and more."""


def files_of(model: Model) -> dict[str, bytes]:
    return dict(sealed(MODEL, Document(model.kind, model.body(), model.arrays())))


def write(folder: Path, files: dict[str, bytes], before: dict[str, bytes] | None = None) -> None:
    """Bring `folder` to hold `files`; `before` is what it holds already."""
    before = before or {}
    for name in set(before) - set(files):
        (folder / name).unlink()
    for name, content in files.items():
        if before.get(name) != content:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Import what loads may import: that takes memory, and minutes where memory is traced."""
    for name in class_names():
        resolve_name(str(estimator_path(name)))


@contextmanager
def little_memory(*, traced: bool = False) -> Iterator[None]:
    """Check that no more is taken: of what is touched, or `traced`, which is slow, of what is asked for."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if traced:
        tracemalloc.start()
    try:
        yield
        if traced:
            assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert (after - before) * 1024 < MOST_BYTES
    finally:
        tracemalloc.stop()


def same(one: Model, other: Model) -> bool:
    ours, theirs = one.arrays(), other.arrays()
    return one.body() == other.body() and all(
        ours[name].dtype == theirs[name].dtype and ours[name].tobytes() == theirs[name].tobytes()
        for name in ours
    )


def use(folder: Path) -> None:
    """Do with a loaded model what does not depend on rows."""
    estimator = load_model(str(folder))
    assert getattr(estimator, "engine", None) is None
    assert not getattr(estimator, "callbacks", ())
    assert getattr(estimator, "checkpoint", None) is None
    model = load_document(str(folder))
    Report(model, "x").sections()
    repr(estimator)
    shutil.rmtree(folder.parent / "again", ignore_errors=True)
    estimator.save(str(folder.parent / "again"))


def outcome(folder: Path, original: Model, *, known: bool) -> str:
    """Load what is there; return what became of it."""
    try:
        found = load_document(str(folder))
        if not known:  # a change that means nothing (white space, say) may pass
            assert same(found, original), "an accident changed the model"
            return "the same"
        use(folder)
    except DaskClusterError as error:
        return type(error).__name__ if len(str(error)) < 2000 else "a long error"
    return "another model"


def try_out(folder: Path, trials: range) -> Counter[str]:
    """Damage every kind of model in every way; return how often it ended how."""
    outcomes: Counter[str] = Counter()
    pristine = {name: files_of(model) for name, model in SAMPLES.items()}
    with little_memory():
        for trial in trials:
            rng = np.random.default_rng([2026, trial])
            kind, way = damage.pick(rng, sorted(SAMPLES)), damage.pick(rng, sorted(damage.WAYS))
            place, files = folder / kind, dict(pristine[kind])
            if not place.exists():
                write(place, pristine[kind])
            damage.WAYS[way](rng, files)
            write(place, files, pristine[kind])
            try:
                ended = outcome(place, SAMPLES[kind], known=way not in damage.ACCIDENTS)
            except BaseException as error:
                error.add_note(f"trial {trial}: {kind}, {way}")
                raise
            write(place, pristine[kind], files)
            outcomes[ended] += 1
    return outcomes


def test_damaged_models_are_refused(tmp_path: Path) -> None:
    outcomes = try_out(tmp_path, range(500))
    assert outcomes["ModelFormatError"] > 330, outcomes
    assert outcomes["the same"] < 50, outcomes
    assert not outcomes["a long error"]


@pytest.mark.slow
def test_many_damaged_models_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = try_out(tmp_path, range(10_000, 25_000))
    with capsys.disabled():
        sys.stdout.write(f"\n{outcomes.total():,} damaged models: {dict(outcomes)}\n")
    assert outcomes["ModelFormatError"] > 0.7 * outcomes.total()


@pytest.mark.parametrize("kind", ["kmeans, search", "mixture, full", "kernel, csr"])
def test_pipes_devices_and_links_are_not_read(kind: str, tmp_path: Path) -> None:
    pristine = files_of(SAMPLES[kind])
    write(tmp_path / "m", pristine)
    met = set()
    with little_memory(traced=True):
        for trial in range(40):
            rng = np.random.default_rng(trial)
            name = damage.pick(rng, sorted(pristine))
            met.add(damage.put_in_its_place(rng, tmp_path / "m" / name))
            with pytest.raises(ModelFormatError):
                load_model(str(tmp_path / "m"))
            is_model(str(tmp_path / "m"))
            damage.remove(tmp_path / "m" / name)
            write(tmp_path / "m", {name: pristine[name]})
    assert len(met) == 6
    assert same(load_document(str(tmp_path / "m")), SAMPLES[kind])


def test_a_model_names_no_scheduler(tmp_path: Path) -> None:
    """Who predicts with a model from elsewhere does not send rows where its author wants."""
    files = files_of(kmeans_model())
    head = damage.head_of(files)
    head["attributes"]["body"]["parameters"] |= {
        "engine": "tcp://127.0.0.1:1",
        "callbacks": "x",
        "checkpoint": str(tmp_path / "elsewhere"),
        "checkpoint_every": 1,
        "max_iter": {"nested": 1},
    }
    damage.sign(files, head)
    write(tmp_path / "m", files)
    estimator = load_model(str(tmp_path / "m"))
    assert (estimator.engine, estimator.callbacks, estimator.checkpoint) == (None, (), None)
    assert estimator.max_iter == 300
    assert estimator.predict(np.zeros((2, D), np.float32)).shape == (2,)


def test_a_model_of_another_estimator_is_refused(tmp_path: Path) -> None:
    files = files_of(kmeans_model())
    head = damage.head_of(files)
    head["attributes"]["body"]["estimator"] = "VariationalGaussianMixture"
    damage.sign(files, head)
    write(tmp_path / "m", files)
    with pytest.raises(
        ModelFormatError, match="kind 'kmeans' that names VariationalGaussianMixture"
    ):
        load_model(str(tmp_path / "m"))


def test_a_model_with_terminal_codes_is_refused(tmp_path: Path) -> None:
    for name, value in (("seeding", "\x1b]0;x\x07"), ("created_with", {"python": "\x1b[2J"})):
        files = files_of(kmeans_model())
        head = damage.head_of(files)
        head["attributes"]["body"][name] = value
        damage.sign(files, head)
        write(tmp_path / name, files)
        with pytest.raises(ModelFormatError, match="printable"):
            load_document(str(tmp_path / name))


def test_values_in_a_page_are_text(tmp_path: Path) -> None:
    files = files_of(kmeans_model())
    head = damage.head_of(files)
    evil = "<script>alert(1)</script>"
    head["attributes"]["body"]["parameters"] |= {"init": evil, evil: [evil, {evil: evil}]}
    head["attributes"]["body"] |= {"seeding": evil, "created_with": {evil: evil}}
    damage.sign(files, head)
    write(tmp_path / "m", files)
    page = as_html(Report(load_document(str(tmp_path / "m")), evil))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


# -- checkpoints -----------------------------------------------------------------------------------

FACTS = {"estimator": "KMeans", "n_clusters": 3}


def state(number: int) -> Document:
    arrays: dict[str, Any] = {"centres": np.full((3, 2), float(number)), "votes": np.arange(7)}
    return Document("test", {"number": number, "history": [{"inertia": 1.5}]}, arrays)


def damage_commits(folder: Path, trials: range) -> Counter[str]:
    """Damage the newest of two commits; the one before it has to be found, or the newest as it was."""
    outcomes: Counter[str] = Counter()
    checkpoints = CheckpointFolder(str(folder), FACTS)
    checkpoints.commit(state(1))
    checkpoints.commit(state(2))
    newest = max(Path(checkpoints.url).iterdir())
    body = {"facts": checkpoints._facts, "state": state(2).body}
    pristine = dict(sealed(CHECKPOINT, Document("test", body, state(2).arrays)))
    for trial in trials:
        rng = np.random.default_rng([7, trial])
        way, files = damage.pick(rng, sorted(damage.WAYS)), dict(pristine)
        damage.WAYS[way](rng, files)
        write(newest, files, pristine)
        try:
            outcomes[look(folder, known=way not in damage.ACCIDENTS)] += 1
        except BaseException as error:
            error.add_note(f"trial {trial}: {way}")
            raise
        write(newest, pristine, files)
    return outcomes


def look(folder: Path, *, known: bool) -> str:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        try:
            found = CheckpointFolder(str(folder), FACTS).latest()
        except CheckpointError:
            return "refused"
    assert found is not None
    if known and found.body != state(1).body:
        return "another state"
    number = found.body["number"]
    assert found.body == state(number).body
    assert found.arrays["centres"].tobytes() == state(number).arrays["centres"].tobytes()
    return f"state {number}"


def test_damaged_checkpoints_fall_back(tmp_path: Path) -> None:
    with little_memory():
        outcomes = damage_commits(tmp_path / "state", range(300))
    assert outcomes["state 1"] > 150, outcomes


@pytest.mark.slow
def test_many_damaged_checkpoints_fall_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with little_memory():
        outcomes = damage_commits(tmp_path / "state", range(1000, 4000))
    with capsys.disabled():
        sys.stdout.write(f"\n{outcomes.total():,} damaged checkpoints: {dict(outcomes)}\n")
    assert outcomes["state 1"] > 0.5 * outcomes.total()


def test_every_kind_is_loaded_by_its_own_class() -> None:
    assert {model.kind for model in SAMPLES.values()} == set(KINDS)
    assert [model_class(kind).kind for kind in KINDS] == list(KINDS)


def test_a_model_in_a_checkpoints_place_is_refused(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(str(tmp_path), FACTS)
    save_model(kmeans_model(), f"{checkpoints.url}/00000001-abcdef01")
    with (
        pytest.warns(RuntimeWarning, match="is not a daskcluster checkpoint"),
        pytest.raises(CheckpointError, match="All 1 checkpoints"),
    ):
        checkpoints.latest()
