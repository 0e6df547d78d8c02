"""Outputs leave in a store what they should and nothing else, whatever their names, wherever they fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import daskcluster as dc
from daskcluster.storage.files import remove_folder
from daskcluster.storage.location import locate
from tests.data.conftest import s3

__all__ = ["s3"]

NAMES = ("plain", "a b [1] x*y? #5%2B+ü")
_WRITES = "put_object create_multipart_upload upload_part complete_multipart_upload delete_objects".split()
X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
W = np.linspace(1.0, 2.0, 60)
KMEANS = dc.KMeans(3, random_state=0).fit(X)


def _labels(ending: str) -> Callable[..., Any]:
    def write(url: str, **options: Any) -> None:
        KMEANS.predict(X, output=f"{url}{ending}", **options)

    return write


def _shuffled(url: str, **options: Any) -> None:
    dc.shuffle(X, f"{url}.zarr", random_state=0, with_index=f"{url}-index.zarr", **options)


def _coreset(url: str, **options: Any) -> None:
    coreset = dc.LightweightCoreset(10, random_state=0).fit(X)
    coreset.save(f"{url}.zarr", **options)


OUTPUTS: Mapping[str, Callable[..., Any]] = {
    "model": lambda url, **options: KMEANS.save(f"{url}.model", **options),
    "zarr": _labels(".zarr"),
    "npy": _labels(".npy"),
    "csv": _labels(".csv"),
    "parquet": _labels(".parquet"),
    "shuffle": _shuffled,
    "coreset": _coreset,
}


class Refused(PermissionError):
    """A request that a test refuses, also when it is repeated."""


class Dropped(ConnectionResetError):
    """A request that a test drops once: what removes parts of outputs repeats it."""


@contextmanager
def _refusing(monkeypatch: pytest.MonkeyPatch, kind: str, number: int) -> Iterator[list[str]]:
    """Count requests that change the store, and refuse one of them; -1: none."""
    made: list[str] = []

    def count(what: str) -> None:
        made.append(what)
        if len(made) == number + 1:
            kind = Dropped if what == "delete_objects" else Refused
            raise kind(f"request {number}, {what}, failed")

    with monkeypatch.context() as patch:
        if kind == "s3":
            s3fs = pytest.importorskip("s3fs")
            call = s3fs.S3FileSystem._call_s3

            async def call_s3(self: Any, method: str, *args: Any, **kwargs: Any) -> Any:
                if method in _WRITES:
                    count(method)
                return await call(self, method, *args, **kwargs)

            patch.setattr(s3fs.S3FileSystem, "_call_s3", call_s3)
        elif kind == "memory":
            cls = type(fsspec.filesystem("memory"))
            for name in ("pipe_file", "_open"):
                inner = getattr(cls, name)

                def changed(
                    self: Any,
                    path: str,
                    *args: Any,
                    _name: str = name,
                    _inner: Any = inner,
                    **kw: Any,
                ) -> Any:
                    mode = kw.get("mode", args[0] if args else "rb")
                    if _name != "_open" or mode != "rb":
                        count(_name)
                    return _inner(self, path, *args, **kw)

                patch.setattr(cls, name, changed)
        else:
            for name in ("makedirs", "rename", "fsync", "link"):
                inner = getattr(os, name)

                def call_os(*args: Any, _name: str = name, _inner: Any = inner, **kw: Any) -> Any:
                    count(_name)
                    return _inner(*args, **kw)

                patch.setattr(os, name, call_os)
        yield made


@pytest.fixture(params=["disk", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, dict[str, Any]]:
    if request.param == "s3":
        options = request.getfixturevalue("s3")
        return "s3", f"s3://rows/{tmp_path.name}", {"storage_options": options}
    folder = str(tmp_path) if request.param == "disk" else f"memory://{tmp_path.name}"
    return request.param, folder, {}


def _listing(folder: str, options: Mapping[str, Any]) -> list[str]:
    fs, path = locate(folder, options.get("storage_options")).filesystem()
    fs.invalidate_cache()
    try:
        found = fs.find(path)
    except FileNotFoundError:
        return []
    return sorted(str(each).removeprefix(path).strip("/") for each in found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_leaves_itself_and_nothing_else(
    store: tuple[str, str, dict[str, Any]],
    output: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind, folder, options = store
    if name == "plain" and kind != "s3":
        pytest.skip("only S3 removes plain names by other requests")
    monkeypatch.setattr("daskcluster.storage.retry.PAUSES", (0.0,) * 4)
    write, url = OUTPUTS[output], f"{folder}/{name}/{name}"
    with _refusing(monkeypatch, kind, -1) as requests:
        write(url, **options)
    whole = _listing(folder, options)
    assert whole
    assert all(each.startswith(f"{name}/{name}") for each in whole), whole
    assert not [each for each in whole if "partial" in each or "unfinished" in each]
    write(url, overwrite=True, **options)
    assert _listing(folder, options) == whole

    remove_folder(locate(folder, options.get("storage_options")))
    assert _listing(folder, options) == []
    for number in range(len(requests)):
        with _refusing(monkeypatch, kind, number) as made:
            try:
                write(url, **options)
            except (dc.errors.DaskClusterError, OSError):
                assert _listing(folder, options) == [], (number, made[number])
            else:  # it was repeated, or not needed for the output
                assert _listing(folder, options) == whole, (number, made[number])
                remove_folder(locate(folder, options.get("storage_options")))
