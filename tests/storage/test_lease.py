"""Leases: one holder at a time, taken over by the same name, refused to others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daskcluster.errors import InvalidParameterError, LeaseError
from daskcluster.storage.files import create_file, list_names, read_file, remove_file
from daskcluster.storage.lease import Lease, folder_of
from daskcluster.storage.location import Location
from tests.data.conftest import s3  # noqa: F401  (a fixture)
from tests.storage.leases import is_lost, take_at_once

STORES = ["local", "memory", "s3"]


@pytest.fixture
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Location:
    kind = request.param
    name = f"{request.node.name.replace('[', '-').replace(']', '')}/model"
    if kind == "s3":
        return folder_of(f"s3://rows/leases/{name}", request.getfixturevalue("s3"))
    return folder_of(str(tmp_path / "model") if kind == "local" else f"memory://leases/{name}")


def started(folder: Location, name: str = "a", **arguments: Any) -> Lease:
    lease = Lease(folder, name, arguments)
    lease.take()
    return lease


pytestmark = pytest.mark.parametrize("folder", STORES, indirect=True)


def test_objects_are_created_once(folder: Location) -> None:
    assert list_names(folder) == []
    assert read_file(folder, "x") is None
    assert create_file(folder, "x", b"mine")
    assert not create_file(folder, "x", b"yours")
    assert read_file(folder, "x") == b"mine"
    assert list_names(folder) == ["x"]
    remove_file(folder, "x")
    remove_file(folder, "x")
    assert list_names(folder) == []


def test_another_job_waits_until_the_holder_has_ended(folder: Location) -> None:
    first = started(folder, "a")
    with pytest.raises(LeaseError, match=r"is being written by the job 'a'.*under its name"):
        started(folder, "b")
    first.check()
    first.end("cancelled")
    second = started(folder, "b")
    assert second.attempt == 1
    with pytest.raises(LeaseError, match="'a' was restarted by another process"):
        first.check()


def test_the_same_job_takes_over(folder: Location) -> None:
    first = started(folder, n=3)
    first.begin()
    second = started(folder, n=3)
    assert (second.attempt, second.started) == (2, True)
    second.check()
    for call in (first.check, first.begin):
        with pytest.raises(LeaseError, match="this run stops"):
            call()
    third = started(folder, n=3)
    assert (third.attempt, third.started) == (3, True)
    # Older leases are gone: what stays does not grow with the runs.
    assert len(list_names(folder.child("jobs"))) == 1


def test_a_name_stands_for_one_set_of_arguments(folder: Location) -> None:
    first = started(folder, n=3, init="random")
    with pytest.raises(InvalidParameterError, match="other arguments: n was 3 and is 4; give the"):
        started(folder, n=4, init="random")
    first.end("cancelled")
    with pytest.raises(InvalidParameterError, match="init was 'random' and is the default"):
        started(folder, n=3)
    again = started(folder, n=3, init="random")
    assert again.attempt == 2
    again.end("failed")
    mended = started(folder, n=4, init="random")
    assert mended.attempt == 1


def test_a_job_that_is_done_has_its_record(folder: Location) -> None:
    started(folder, n=3).end("done", {"inertia": 0.5})
    earlier = Lease(folder, "a", {"n": 3}).earlier()
    assert earlier is not None
    assert (earlier.state, earlier.record) == ("done", {"inertia": 0.5})
    assert Lease(folder, "b", {"n": 3}).earlier() is None
    started(folder, "b")
    with pytest.raises(LeaseError, match="by the job 'b'"):
        Lease(folder, "a", {"n": 3}).earlier()


def test_one_of_many_jobs_that_begin_at_once_gets_the_lease(folder: Location) -> None:
    # A store that looks first and writes then (an emulator) lets two through: one of them stays.
    held, _ = take_at_once(folder, 6)
    assert len([lease for lease in held if not is_lost(lease)]) == 1
    assert len(held) == 1 or folder.scheme == "s3"


def test_a_job_that_begins_between_look_and_creation_keeps_the_lease(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[Lease] = []

    def look(place: Location) -> list[str]:
        found = list_names(place)
        if not came:
            came.append(Lease(folder, "a", {}))
            came[0].take()
        return found

    monkeypatch.setattr("daskcluster.storage.lease.list_names", look)
    with pytest.raises(LeaseError, match="is being written by the job 'a'"):
        started(folder, "b")
    came[0].check()
