"""Arguments of jobs as plain values: what is the same, and what is not."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pandas as pd
import pytest

from daskcluster import KMeans, jobs
from daskcluster.errors import InvalidParameterError
from daskcluster.jobs.identity import given_to, located, plain_arguments


def plain(job: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
    return located(plain_arguments(job.__name__, given_to(job, arguments, options)))


def of_fit(*arguments: Any, **options: Any) -> dict[str, Any]:
    return plain(jobs.fit, *arguments, **{"n_clusters": 5, "model": "m", **options})


def test_equal_arguments_are_equal_in_every_form() -> None:
    equal: list[dict[str, Any]] = [
        {"n_clusters": np.int64(5)},
        {"model": Path("m")},
        {"model": f"{os.getcwd()}/x/../m"},
        {"model": f"file://{os.getcwd()}/m"},
        {"algorithm": "auto", "flatten": False, "missing": "error", "weights": None},
        {"init": "auto", "max_iter": 300, "n_init": "auto"},
        {"columns": None, "grid": {}},
        {"overwrite": True, "resume": True, "name": "x", "engine": "local", "callbacks": [print]},
        {"storage_options": {"anon": True, "secret": "hunter2"}},
    ]
    for same in equal:
        assert of_fit(source=Path("rows.zarr"), **same) == of_fit("rows.zarr"), same
    columns: list[Any] = [["a", "b"], ("a", "b"), {"columns": ("a", "b")}, {"columns": ["a", "b"]}]
    assert len({json.dumps(of_fit("t.csv", columns=each)) for each in columns}) == 2
    ks: list[Any] = [[2, 3, 4], (2, 3, 4), range(2, 5), np.arange(2, 5), {4, 3, 2}]
    assert len({json.dumps(plain(jobs.sweep, "r.npy", ks=each)) for each in ks}) == 1
    stream: dict[str, Any] = {"state": "s", "n_clusters": 3}
    more = {"order": "name", "half_life": None, "random_state": 0}
    assert plain(jobs.stream, "feed", **stream, **more) == plain(jobs.stream, "feed", **stream)


def test_different_arguments_are_different() -> None:
    for other in (
        {"n_clusters": 6},
        {"model": "n"},
        {"labels": "labels"},
        {"columns": ["a"]},
        {"flatten": True},
        {"grid": {"nodata": math.nan}},
        {"scale": "standard"},
        {"missing": "drop"},
        {"weights": np.ones(100)},
        {"init": np.zeros((5, 4))},
        {"tol": 0.0},
    ):
        found = of_fit("rows.zarr", **other)
        assert found == of_fit("rows.zarr", **other) != of_fit("rows.zarr"), other
        # It passes through the scheduler's log, and through the store.
        assert msgpack.unpackb(msgpack.packb(found)) == json.loads(json.dumps(found)) == found


def test_values_in_memory_are_compared_by_their_content() -> None:
    rows = np.random.default_rng(0).random((1000, 3))
    frame = pd.DataFrame(rows, columns=list("abc")).assign(name="x")
    for one, two in ((rows, rows + 1), (frame, frame[::-1])):
        assert of_fit(one) == of_fit(one.copy()) != of_fit(two)
        assert len(json.dumps(of_fit(one))) < 300
    fitted = [KMeans(2, random_state=seed, max_iter=1).fit(rows) for seed in (0, 1)]
    assert of_fit("r", init=fitted[0]) != of_fit("r", init=fitted[1])
    files = [f"part-{number}.parquet" for number in range(300)]
    assert of_fit(files) == of_fit(tuple(files)) != of_fit(files[1:])
    assert len(json.dumps(of_fit(files))) < 300
    assert of_fit(rows, random_state=2**80)["random_state"] == str(2**80)
    assert of_fit(rows, init=given_to)["init"] == "<daskcluster.jobs.identity.given_to>"


def test_names_are_no_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = of_fit(
        "/rows.zarr", model="/m", array="obsm/X", weights="obs/weight", init="k-means++"
    )
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"model": "/m", "array": "obsm/X", "weights": "obs/weight"}
    assert of_fit("/rows.zarr", init="k-means++", **given) == before
    found = of_fit("rows.zarr", weights="w.npy", init="first")
    assert (found["weights"], found["init"]) == (str(tmp_path / "w.npy"), str(tmp_path / "first"))


def test_credentials_are_in_no_argument() -> None:
    for url in (
        "s3://key:secret@bucket/rows",
        "https://h/x.npy?sig=a",
        "simplecache::s3://k:s@b/x",
    ):
        for given in ({"source": url}, {"source": [url]}, {"source": "r", "weights": url}):
            with pytest.raises(InvalidParameterError, match="contains a credential"):
                of_fit(**given)
