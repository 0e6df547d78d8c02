"""Per-row state in files: whole, checked, and found again however rows were cut."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest

from daskcluster.errors import CheckpointError
from daskcluster.storage.checkpoint import StateFiles
from daskcluster.storage.location import Location, locate
from tests.data.conftest import s3  # noqa: F401  (a fixture)

SETS = np.random.default_rng(0).integers(0, 9, (100, 3)).astype(np.int32)


@pytest.fixture(params=["disk", "memory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "bucket":
        return locate(f"s3://rows/{tmp_path.name}/state", request.getfixturevalue("s3"))
    return locate(f"{tmp_path}/state" if request.param == "disk" else f"memory://{tmp_path}/state")


def written(place: Location, edges: tuple[int, ...] = (0, 40, 41, 100)) -> StateFiles:
    files = StateFiles(place, 3, kept=True)
    for start, stop in itertools.pairwise(edges):
        assert files.write(start, SETS[start:stop])
    return files


def test_rows_are_found_again_however_they_were_cut(place: Location) -> None:
    files = written(place)
    files.check(100)
    for start, stop in ((0, 100), (0, 1), (39, 42), (40, 41), (99, 100), (50, 60)):
        found = files.read(start, stop)
        assert found.dtype == np.int32
        assert np.array_equal(found, SETS[start:stop])
    again = pickle.loads(pickle.dumps(files))
    assert np.array_equal(again.read(10, 90), SETS[10:90])
    files.remove()
    with pytest.raises(CheckpointError, match="rows 0 to 100"):
        files.check(100)


def test_missing_rows_are_reported(tmp_path: Path) -> None:
    files = StateFiles(locate(str(tmp_path / "state")), 3)
    files.write(0, SETS[:40])
    files.write(50, SETS[50:])
    with pytest.raises(CheckpointError, match="the state of rows 40 to 100"):
        files.check(100, whole=False)
    with pytest.raises(CheckpointError, match="the saved state of rows 40 to 60"):
        files.read(30, 60)


@pytest.mark.parametrize("harm", ["flip", "cut", "grow", "empty"])
def test_damage_is_reported(tmp_path: Path, harm: str) -> None:
    files = written(locate(str(tmp_path / "state")))
    path = sorted((tmp_path / "state").iterdir())[1]
    content = path.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    harms = {"flip": flipped, "cut": content[:-4], "grow": content * 2, "empty": b""}
    path.write_bytes(harms[harm])
    files.check(100, whole=False)  # the names are there
    for read in (lambda: files.check(100), lambda: files.read(35, 45)):
        with pytest.raises(CheckpointError, match=r"rows 40 to 41 in .* is damaged"):
            read()


def test_a_disk_that_cannot_be_written_to() -> None:
    nowhere = locate("/dev/null/nowhere")
    assert not StateFiles(nowhere, 3).write(0, SETS)
    with pytest.raises(OSError, match="nowhere"):
        StateFiles(nowhere, 3, kept=True).write(0, SETS)
