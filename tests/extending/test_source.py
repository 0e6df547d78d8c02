"""A source from outside: rows of a grid of numbers, by URLs such as ``ramp://1000x3``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Client

import daskcluster as dc
from daskcluster.cli.main import main
from daskcluster.data.dataset import RowDataset
from daskcluster.data.sources import SOURCES
from daskcluster.data.spec import RowsSpec
from daskcluster.data.zarr import write_scratch
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.extending import Source, register_source
from daskcluster.storage.location import Location
from daskcluster.typing import Visibility

STEP = 250


class Ramp(RowDataset):
    """Row i has the values (i d + j) mod 97."""

    def __init__(self, n_rows: int, n_features: int) -> None:
        edges = np.append(np.arange(0, n_rows, STEP, dtype=np.int64), n_rows)
        super().__init__(n_features, np.float32, edges)

    @property
    def source(self) -> str:
        return f"ramp://{self.n_rows}x{self.n_features}"

    @property
    def own_visibility(self) -> Visibility:
        return Visibility.EVERYONE

    def own_recipe(self) -> RampRecipe:
        return RampRecipe(self.n_rows, self.n_features)

    def fetch(self, start: int, stop: int) -> np.ndarray:
        numbers = np.arange(start * self.n_features, stop * self.n_features)
        return (numbers % 97).reshape(-1, self.n_features).astype(np.float32)

    def to_scratch(self, folder: str) -> RowDataset:
        return write_scratch(self, folder)


@dataclass(frozen=True)
class RampRecipe:
    n_rows: int
    n_features: int

    def open(self) -> Ramp:
        return Ramp(self.n_rows, self.n_features)


def is_ramp(given: object) -> bool:
    return isinstance(given, Location) and given.scheme == "ramp"


def open_ramp(given: Location, spec: RowsSpec) -> Ramp:
    shape = given.url.removeprefix("ramp://").split("x")
    if len(shape) != 2 or not all(map(str.isdecimal, shape)):
        raise InvalidDataError(f"{given.url!r} should be ramp://ROWSxFEATURES.")
    return Ramp(*map(int, shape))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    before = list(SOURCES)
    register_source(Source("ramp", is_ramp, open_ramp))
    yield
    SOURCES[:] = before


def plain() -> np.ndarray:
    return Ramp(1000, 3).fetch(0, 1000)


def fitted(source: object, **more: object) -> dc.KMeans:
    return dc.KMeans(5, random_state=0, init="k-means||", **more).fit(source)


def test_rows_are_those_of_the_same_array() -> None:
    dataset = dc.open_dataset("ramp://1000x3")
    assert (dataset.n_rows, dataset.n_features, len(dataset.chunk_sizes)) == (1000, 3, 4)
    np.testing.assert_array_equal(dataset.load((200, 700)).rows, plain()[200:700])
    np.testing.assert_array_equal(dataset.take(np.array([3, 999])), plain()[[3, 999]])


def test_fits_have_the_same_bits_here_and_on_a_cluster(client: Client) -> None:
    here = fitted("ramp://1000x3")
    assert here.n_iter_ > 1
    there = fitted("ramp://1000x3", engine=client)
    np.testing.assert_array_equal(here.cluster_centers_, there.cluster_centers_)
    np.testing.assert_array_equal(here.labels_, np.asarray(there.labels_))
    np.testing.assert_array_equal(here.labels_, here.predict(plain()))


def test_it_can_be_weighted_and_scaled() -> None:
    weights = np.arange(1.0, 1001.0)
    dataset = dc.open_dataset("ramp://1000x3", weights=weights, scale="standard")
    same = dc.open_dataset(plain(), weights=weights, scale="standard")
    found, wanted = (fitted(each) for each in (dataset, same))
    np.testing.assert_allclose(found.cluster_centers_, wanted.cluster_centers_, rtol=1e-6)


def test_the_command_line_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["fit", "ramp://1000x3", "--n-clusters", "5", "--random-state", "0", "--model", "m"]
    done = CliRunner().invoke(main, [*words, "--init", "k-means||", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["n_rows"] == 1000
    np.testing.assert_array_equal(
        dc.load_model("m").cluster_centers_, fitted("ramp://1000x3").cluster_centers_
    )
    wrong = CliRunner().invoke(main, ["info", "ramp://many"])
    assert wrong.exit_code == 1
    assert "should be ramp://ROWSxFEATURES" in wrong.stderr


def test_arrays_are_not_asked_for() -> None:
    with pytest.raises(InvalidParameterError, match=r"but 'ramp://1000x3' is a ramp file"):
        dc.open_dataset("ramp://1000x3", array="X")
