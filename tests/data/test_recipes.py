"""Recipes: the same dataset in its own process, a clear refusal in any other."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse

from daskcluster import open_dataset
from daskcluster.data.recipes import reopen
from daskcluster.errors import InvalidDataError

ROWS = np.arange(12.0).reshape(6, 2)


def held_sources() -> list[Any]:
    store = zarr.storage.MemoryStore()
    array = zarr.create_array(store, data=ROWS, chunks=(2, 2))
    return [
        pytest.param(ROWS, id="array"),
        pytest.param(sparse.csr_array(ROWS), id="scipy"),
        pytest.param(array, id="zarr"),
        pytest.param(da.from_array(ROWS, chunks=(4, 2)), id="dask"),
    ]


@pytest.mark.parametrize("source", held_sources())
def test_recipes_of_rows_in_memory_open_in_the_same_process(source: Any) -> None:
    dataset = open_dataset(source)
    again = pickle.loads(pickle.dumps(dataset.recipe())).open()
    assert type(again) is type(dataset)
    assert again.recipe() == dataset.recipe()
    assert list(again.chunk_sizes) == list(dataset.chunk_sizes)
    np.testing.assert_array_equal(again.to_numpy(), ROWS)


def test_recipes_of_rows_in_memory_are_refused_in_another_process(tmp_path: Path) -> None:
    kept = [open_dataset(source.values[0]) for source in held_sources()]
    (tmp_path / "recipes").write_bytes(pickle.dumps([pickle.dumps(each.recipe()) for each in kept]))
    script = (
        "import pickle, sys\n"
        "from daskcluster.errors import DataNotReachableError\n"
        "for recipe in pickle.load(open(sys.argv[1], 'rb')):\n"
        "    try:\n"
        "        pickle.loads(recipe).open()\n"
        "    except DataNotReachableError as error:\n"
        "        print(error)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "recipes")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    message = "belongs to another process and cannot be read here; write it to Zarr"
    assert done.stdout.count(message) == len(kept)


def test_a_rewritten_array_is_another_dataset(tmp_path: Path) -> None:
    url = str(tmp_path / "x.zarr")
    zarr.create_array(url, data=ROWS, chunks=(2, 2))
    recipe = open_dataset(url).recipe()
    assert reopen(recipe) is reopen(pickle.loads(pickle.dumps(recipe)))
    zarr.create_array(url, data=ROWS, chunks=(3, 2), overwrite=True)
    changed = open_dataset(url).recipe()
    assert changed != recipe
    stale = type(changed)(changed.location, changed.name, "another digest")  # type: ignore[call-arg, attr-defined]
    with pytest.raises(InvalidDataError, match=r"The array at .* was replaced since the dataset"):
        stale.open()
