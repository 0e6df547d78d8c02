"""Files appear whole and, if need be, once; what killed writers leave is removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daskcluster.errors import OutputExistsError
from daskcluster.storage.files import create_file, new_file, read_file
from daskcluster.storage.lease import Lease
from daskcluster.storage.location import locate
from daskcluster.storage.staging import check_free


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_must_be_new_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def fail(*_: str) -> None:
        raise OSError("no hard links here")

    if not has_links:
        monkeypatch.setattr(os, "link", fail)
    place = locate(str(tmp_path))
    assert create_file(place, "x", b"mine")
    assert not create_file(place, "x", b"yours")
    with (
        pytest.raises(OutputExistsError, match="appeared while it was being written"),
        new_file(place.child("x")) as out,
    ):
        out.write(b"theirs")
    assert (tmp_path / "x").read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["x"]


def test_a_link_stays_and_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "behind").write_bytes(b"old")
    os.symlink(tmp_path / "behind", tmp_path / "link")
    with new_file(locate(str(tmp_path / "link")), overwrite=True) as out:
        out.write(b"new")
    assert os.path.islink(tmp_path / "link")
    assert (tmp_path / "behind").read_bytes() == b"new"


def test_leases_that_killed_runs_were_writing_are_removed(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    for name in (".00000001.json.0123abcd.partial", "notes.txt"):
        (jobs / name).touch()
    for _ in range(2):
        Lease(locate(str(tmp_path)), "a", {}).take()
    assert sorted(os.listdir(jobs)) == ["00000002.json", "notes.txt"]


def test_a_pipe_in_a_folder_is_no_file_to_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "zarr.json")
    assert read_file(locate(str(tmp_path)), "zarr.json") is None
    with pytest.raises(OutputExistsError, match="is not of a kind that overwrite"):
        check_free(str(tmp_path), overwrite=True)
