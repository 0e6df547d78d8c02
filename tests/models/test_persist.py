"""Models on disk: whole or absent, plain Zarr, and never a crash from a damaged file."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster.errors import (
    InvalidParameterError,
    ModelFormatError,
    ModelNotFoundError,
    OutputExistsError,
)
from daskcluster.events import StopReason
from daskcluster.models.fitted import (
    KMeansModel,
    check_free,
    created_with,
    is_model,
    load_document,
    save_model,
)
from daskcluster.storage.location import locate
from daskcluster.storage.staging import Staging


def make_model(k: int = 5, d: int = 3, dtype: Any = np.float32, **changes: Any) -> KMeansModel:
    rng = np.random.default_rng(0)
    values: dict[str, Any] = {
        "inertia": 12.5,
        "n_iter": 2,
        "stop_reason": StopReason.TOLERANCE,
        "seeding": "k-means||",
        "passes": 7,
        "bytes_read": 1234,
        "history": [
            {"iteration": 1, "inertia": np.float64(20.25), "n_empty": np.int64(0)},
            {"iteration": 2, "inertia": 0.1 + 0.2, "n_empty": 0},
        ],
        "parameters": {"n_clusters": k, "tol": 1e-4, "init": "auto", "random_state": None},
        "feature_names": [f"feature {i}" for i in range(d)],
        "n_rows": 100,
        "created_with": created_with(),
        "sizes": np.arange(k),
        "costs": rng.random(k),
    }
    centres = rng.standard_normal((k, d)).astype(dtype)
    return KMeansModel(centres, rng.random(k), **{**values, **changes})


def same(one: KMeansModel, other: KMeansModel) -> bool:
    return (
        one.body() == other.body()
        and one.centres.dtype == other.centres.dtype
        and one.centres.tobytes() == other.centres.tobytes()
        and all(
            getattr(one, name).tobytes() == getattr(other, name).tobytes()
            for name in ("weights", "sizes", "costs")
        )
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("where", ["path", "file://", "memory://"])
def test_a_saved_model_is_loaded_to_the_bit(tmp_path: Path, dtype: Any, where: str) -> None:
    url = {"path": "", "file://": "file://", "memory://": "memory://"}[where]
    url += str(tmp_path / "model.zarr")
    model = make_model(dtype=dtype)
    save_model(model, url)
    assert is_model(url)
    assert same(load_document(url), model)


def test_any_zarr_library_reads_the_arrays(tmp_path: Path) -> None:
    model = make_model()
    save_model(model, str(tmp_path / "m"))
    group = zarr.open_group(str(tmp_path / "m"), mode="r")
    assert group.metadata.zarr_format == 3
    assert dict(group.attrs)["format"] == "daskcluster-model"
    np.testing.assert_array_equal(group["centres"][:], model.centres)  # type: ignore[index]
    np.testing.assert_array_equal(group["weights"][:], model.weights)  # type: ignore[index]


def test_a_long_history_is_read_if_memory_suffices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = [{"iteration": i, "inertia": 1.0 / (i + 1)} for i in range(500)]
    model = make_model(history=history)
    save_model(model, str(tmp_path / "m"))
    monkeypatch.setattr("daskcluster.storage.document.LEAST_LIMIT", 1000)
    assert same(load_document(str(tmp_path / "m")), model)
    monkeypatch.setattr("daskcluster.storage.document.host_memory", lambda: 640_000)
    with pytest.raises(
        ModelFormatError, match=r"larger than 9\.8 KiB, a 64th of this host's memory"
    ):
        load_document(str(tmp_path / "m"))


def test_large_arrays_are_cut_into_padded_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskcluster.storage.arrays.CHUNK_BYTES", 4 * 3 * 2)
    model = make_model(k=5)
    save_model(model, str(tmp_path / "m"))
    assert sorted(os.listdir(tmp_path / "m" / "centres" / "c")) == ["0", "1", "2"]
    assert same(load_document(str(tmp_path / "m")), model)
    array = zarr.open_array(str(tmp_path / "m" / "centres"), mode="r")
    np.testing.assert_array_equal(array[:], model.centres)


def test_an_existing_model_is_replaced_only_on_request(tmp_path: Path) -> None:
    for url in (str(tmp_path / "m"), f"memory://{tmp_path}/m"):
        save_model(make_model(), url)
        with pytest.raises(OutputExistsError, match="exists already; pass overwrite=True"):
            save_model(make_model(k=9), url)
        with pytest.raises(OutputExistsError):
            check_free(url)
        check_free(url, overwrite=True)
        save_model(make_model(k=9), url, overwrite=True)
        assert load_document(url).n_clusters == 9
    assert os.listdir(tmp_path) == ["m"]


def test_only_models_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("x")
    zarr.open_group(str(tmp_path / "rows.zarr"), mode="w").create_array("X", data=np.ones(3))
    for name, message in (
        ("precious", "of a kind that overwrite=True replaces"),
        ("rows.zarr", "not a model"),
    ):
        with pytest.raises(OutputExistsError, match=message):
            save_model(make_model(), str(tmp_path / name), overwrite=True)
    assert zarr.open_array(str(tmp_path / "rows.zarr" / "X"), mode="r")[0] == 1
    assert (tmp_path / "precious" / "thesis.txt").read_text() == "x"


def test_a_failed_save_keeps_the_previous_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "m")
    save_model(make_model(), url)

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Staging, "_rename", full)
    with pytest.raises(OSError, match="No space left"):
        save_model(make_model(k=9), url, overwrite=True)
    assert os.listdir(tmp_path) == ["m"]
    assert load_document(url).n_clusters == 5


def test_in_an_object_store_the_document_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"memory://{tmp_path}/m"
    fs = type(locate(url).filesystem()[0])
    written: list[str] = []
    pipe = fs.pipe_file

    def spy(self: Any, path: str, value: bytes, *arguments: Any, **options: Any) -> Any:
        written.append(path)
        return pipe(self, path, value, *arguments, **options)

    monkeypatch.setattr(fs, "pipe_file", spy)
    save_model(make_model(), url)
    assert written[-1].endswith("/m/zarr.json")
    assert sum(path.endswith("/m/zarr.json") for path in written) == 1


# -- what is wrong is said -----------------------------------------------------------------------


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no model can be read at"):
        load_document(str(tmp_path / "absent"))
    assert issubclass(ModelNotFoundError, ModelFormatError)


def test_a_zarr_array_is_no_model(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "a"), shape=(4, 2), dtype="float32")
    with pytest.raises(ModelFormatError, match="is not a daskcluster model"):
        load_document(str(tmp_path / "a"))


@pytest.mark.parametrize("version", [2, 0, None, "1.5", [1], True, 10**30])
def test_an_unknown_format_version_names_the_remedy(tmp_path: Path, version: Any) -> None:
    url = saved(tmp_path)
    edit_head(url, format_version=version)
    with pytest.raises(ModelFormatError, match=r"model format version .* upgrade daskcluster"):
        load_document(str(url))


def test_an_unknown_kind(tmp_path: Path) -> None:
    url = saved(tmp_path)
    edit_head(url, kind="forest", sign=True)
    with pytest.raises(
        ModelFormatError, match="kind 'forest', known are graph-kmeans, hierarchical-kmeans"
    ):
        load_document(str(url))


def test_an_edited_document_fails_its_checksum(tmp_path: Path) -> None:
    url = saved(tmp_path)
    edit_head(url, body={})
    with pytest.raises(ModelFormatError, match="fails its checksum"):
        load_document(str(url))


@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "centres/../../x", "", "x"])
def test_array_names_lead_nowhere_else(tmp_path: Path, name: str) -> None:
    url = saved(tmp_path)
    arrays = read_head(url)["attributes"]["arrays"]
    edit_head(url, arrays={**arrays, name: arrays.pop("centres")}, sign=True)
    with pytest.raises(ModelFormatError, match="not have the arrays of its kind"):
        load_document(str(url))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": [2**40, 2**40]}, "claims .* bytes, more than"),
        ({"shape": [2**30, 3]}, "does not match the model's document"),
        ({"shape": [0, 3]}, "no valid shape"),
        ({"shape": [-5, 3]}, "no valid shape"),
        ({"shape": [5.0, 3]}, "no valid shape"),
        ({"shape": [5, 3, 1, 1]}, "no valid shape"),
        ({"shape": None}, "no valid shape"),
        ({"dtype": "object"}, "none of the dtypes"),
        ({"dtype": ["float32"]}, "none of the dtypes"),
        ({"sha256": None}, "no checksum"),
        ({"sha256": "00"}, "fails its checksum"),
    ],
)
def test_claims_about_arrays_are_checked(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    url = saved(tmp_path)
    arrays = read_head(url)["attributes"]["arrays"]
    edit_head(url, arrays={**arrays, "centres": {**arrays["centres"], **change}}, sign=True)
    with pytest.raises(ModelFormatError, match=message):
        load_document(str(url))


def test_a_claimed_size_allocates_nothing(tmp_path: Path) -> None:
    # Document and metadata agree on 48 GB; only the chunk tells the truth.
    url = saved(tmp_path)
    arrays = read_head(url)["attributes"]["arrays"]
    shape = [2**32, 3]
    edit_head(url, arrays={**arrays, "centres": {**arrays["centres"], "shape": shape}}, sign=True)
    path = url / "centres" / "zarr.json"
    metadata = json.loads(path.read_text())
    metadata["shape"] = shape
    metadata["chunk_grid"]["configuration"]["chunk_shape"] = [(1 << 26) // 12, 3]
    path.write_text(json.dumps(metadata))
    with pytest.raises(ModelFormatError, match=r"has a chunk centres/c/0/0 of 60 bytes"):
        load_document(str(url))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("inertia", "12"),
        ("inertia", -1.0),
        ("inertia", True),
        ("n_iter", -1),
        ("n_iter", 1.5),
        ("history", {}),
        ("history", [1]),
        ("parameters", []),
        ("feature_names", ["a"]),
        ("feature_names", [1, 2, 3]),
        ("metric", "manhattan"),
        ("metric", None),
    ],
)
def test_fields_of_the_wrong_kind(tmp_path: Path, field: str, value: Any) -> None:
    url = saved(tmp_path)
    body = read_head(url)["attributes"]["body"]
    edit_head(url, body={**body, field: value}, sign=True)
    with pytest.raises(ModelFormatError, match=field.replace("feature_names", "feature.names")):
        load_document(str(url))


def test_missing_fields(tmp_path: Path) -> None:
    url = saved(tmp_path)
    body = read_head(url)["attributes"]["body"]
    del body["passes"]
    edit_head(url, body=body, sign=True)
    with pytest.raises(ModelFormatError, match="lacks 'passes'"):
        load_document(str(url))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[" * 100_000,
        b'{"attributes": NaN}',
        b"\xff\xfe",
        b'{"a": ' + b"9" * 5000 + b"}",
        b"null",
        b"[]",
        b'{"attributes": []}',
        pickle.dumps(KMeansModel),
    ],
)
def test_a_head_of_nonsense(tmp_path: Path, content: bytes) -> None:
    url = saved(tmp_path)
    (url / "zarr.json").write_bytes(content)
    with pytest.raises(ModelFormatError):
        load_document(str(url))


def test_bad_values_are_not_saved() -> None:
    with pytest.raises(ModelFormatError, match="finite"):
        make_model(inertia=float("nan"))
    with pytest.raises(ModelFormatError, match=r"should be of shape \(k, d\)"):
        KMeansModel(np.zeros(3), np.ones(3))
    with pytest.raises(ModelFormatError, match="NaN or infinity"):
        KMeansModel(np.full((2, 2), np.inf), np.ones(2))
    with pytest.raises(InvalidParameterError, match="plain values only, not object"):
        save_model(make_model(parameters={"x": object()}), "memory://never/m")


# -- damage ---------------------------------------------------------------------------------------


def mutate(rng: np.random.Generator, content: bytes) -> bytes:
    data = bytearray(content)
    choice = rng.integers(5)
    place = int(rng.integers(max(1, len(data))))
    if choice == 0:
        return bytes(data[:place])
    if choice == 1:
        data[place] ^= 1 << int(rng.integers(8))
    elif choice == 2:
        data[place : place + int(rng.integers(1, 9))] = rng.bytes(int(rng.integers(9)))
    elif choice == 3:
        data.insert(place, int(rng.integers(256)))
    else:
        stop = int(rng.integers(place, len(data) + 1))
        data[place:place] = data[place:stop]
    return bytes(data)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_damaged_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """tests/security/test_loaders.py does the same with fewer files, and with all kinds of models."""
    seeds, refused = range(1000, 51_000), 0
    original = saved(tmp_path)
    model = load_document(str(original))
    files = sorted(f.relative_to(original) for f in original.rglob("*") if f.is_file())
    for seed in seeds:
        rng = np.random.default_rng(seed)
        file = original / files[int(rng.integers(len(files)))]
        content = file.read_bytes()
        file.write_bytes(mutate(rng, content))
        try:
            # A change that means nothing (white space, say) may pass, but only as the same model.
            assert same(load_document(str(original)), model), f"seed {seed} changed the model"
        except ModelFormatError:
            refused += 1
        file.write_bytes(content)
    assert refused > 0.9 * len(seeds)
    with capsys.disabled():
        sys.stdout.write(f"\n{refused:,} of {len(seeds):,} damaged models refused\n")


def saved(tmp_path: Path) -> Path:
    save_model(make_model(), str(tmp_path / "m"))
    return tmp_path / "m"


def read_head(url: Path) -> Any:
    return json.loads((url / "zarr.json").read_text())


def edit_head(url: Path, *, sign: bool = False, **changes: Any) -> None:
    from daskcluster.storage.document import _digest

    head = read_head(url)
    head["attributes"].update(changes)
    if sign:
        del head["attributes"]["sha256"]
        head["attributes"]["sha256"] = _digest(head["attributes"])
    (url / "zarr.json").write_text(json.dumps(head))
