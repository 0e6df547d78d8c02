"""Commits are whole or do not count, wherever they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskcluster.errors import (
    CheckpointError,
    EngineError,
    InvalidDataError,
    ModelFormatError,
    OutputExistsError,
)
from daskcluster.storage.checkpoint import (
    CheckpointFolder,
    _commits,
    attachments_of,
    differences,
    noting_stored_state,
)
from daskcluster.storage.document import Document
from daskcluster.storage.files import write_file
from daskcluster.storage.location import Location, locate
from tests.data.conftest import s3  # noqa: F401  (a fixture)


def state(number: int) -> Document:
    return Document("test", {"number": number}, {"values": np.full(3, float(number))})


def number_of(folder: CheckpointFolder) -> int:
    found = folder.latest()
    assert found is not None
    assert found.arrays["values"].tolist() == [found.body["number"]] * 3
    return int(found.body["number"])


@pytest.fixture(params=["disk", "memory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "bucket":
        return locate(f"s3://rows/{tmp_path.name}", request.getfixturevalue("s3"))
    return locate(str(tmp_path) if request.param == "disk" else f"memory://{tmp_path}/kept")


def test_the_last_commit_counts_and_two_stay(place: Location) -> None:
    folder = CheckpointFolder(place, {"k": 3})
    assert folder.latest() is None
    for number in range(5):
        folder.commit(state(number))
        assert number_of(CheckpointFolder(place, {"k": 3})) == number
    assert len(_commits(locate(folder.url, place.storage_options()))) == 2
    folder.clear()
    assert folder.latest() is None


def test_numbers_go_on_in_another_process(place: Location) -> None:
    CheckpointFolder(place, {}).commit(state(1))
    CheckpointFolder(place, {}).commit(state(2))
    assert number_of(CheckpointFolder(place, {})) == 2


def test_a_commit_without_its_last_file_is_none(place: Location) -> None:
    folder = CheckpointFolder(place, {})
    folder.commit(state(1))
    folder.commit(state(2))
    fs, path = locate(folder.url, place.storage_options()).filesystem()
    newest = _commits(locate(folder.url, place.storage_options()))[0][1]
    fs.rm_file(f"{path}/{newest}/zarr.json")
    assert number_of(CheckpointFolder(place, {})) == 1


def test_another_fit_is_named(place: Location) -> None:
    CheckpointFolder(place, {"k": 3, "data": {"rows": 10}}).commit(state(1))
    other = CheckpointFolder(place, {"k": 3, "data": {"rows": 11}})
    with pytest.raises(CheckpointError, match=r"data\.rows was 10 and is 11"):
        other.latest()


def test_differences_go_both_ways() -> None:
    found = differences({"a": 1, "b": {"c": 2}}, {"b": {"c": 2, "d": None}, "e": 5})
    assert found == "a was 1 and is None, e was None and is 5"


@pytest.mark.parametrize(
    "error", [EngineError, ConnectionResetError, MemoryError, KeyboardInterrupt]
)
def test_an_interrupted_fit_names_its_checkpoint(error: Any, tmp_path: Path) -> None:
    place = locate(str(tmp_path))
    for committed in (False, True):
        if committed:
            CheckpointFolder(place, {"k": 1}).commit(Document("lloyd", {}, {"centres": np.eye(2)}))
        with pytest.raises(error) as caught, noting_stored_state(place):
            raise error("it is gone")
        message = (
            f"The state of the fit is stored at {str(tmp_path)!r}: the same call with resume=True "
        )
        notes = [f"{message}resumes from it."]
        assert getattr(caught.value, "__notes__", []) == (notes if committed else [])


@pytest.mark.parametrize("error", [CheckpointError, OutputExistsError, InvalidDataError])
def test_errors_that_would_come_again_do_not_suggest_resume(error: Any, tmp_path: Path) -> None:
    CheckpointFolder(tmp_path, {"k": 1}).commit(Document("lloyd", {}, {"centres": np.eye(2)}))
    with pytest.raises(error) as caught, noting_stored_state(locate(str(tmp_path))):
        raise error("no")
    assert not hasattr(caught.value, "__notes__")


def test_a_store_that_cannot_be_asked_hides_no_error() -> None:
    with pytest.raises(EngineError) as caught, noting_stored_state(locate("nosuch://bucket/kept")):
        raise EngineError("it is gone")
    assert not hasattr(caught.value, "__notes__")


# -- attachments ----------------------------------------------------------------------------------


def attached(number: int, **names: str | None) -> Document:
    return Document("test", {"number": number, "attached": names}, state(number).arrays)


def left(folder: CheckpointFolder, place: Location) -> list[str]:
    fs, path = locate(folder.url, place.storage_options()).filesystem()
    fs.invalidate_cache()
    names = [str(entry).rsplit("/", 1)[-1] for entry in fs.ls(path, detail=False)]
    return sorted(name for name in names if not name[0].isdigit())


def test_attachments_stay_as_long_as_a_commit_that_names_them(place: Location) -> None:
    folder = CheckpointFolder(place, {})
    names: list[str] = []
    kept = folder.new_attachment("rows")
    write_file(folder.attachment(kept), "content", b"all along")
    for number in range(4):
        names.append(folder.new_attachment("sets"))
        write_file(folder.attachment(names[-1]), "part/content", b"of one commit")
        folder.commit(attached(number, sets=names[-1], rows=kept, none=None))
    assert left(folder, place) == sorted([kept, *names[-2:]])
    again = CheckpointFolder(place, {})  # another process
    under_way = again.new_attachment("sets")
    write_file(again.attachment(under_way), "content", b"of the next commit")
    again.commit(attached(4, rows=kept))
    assert left(again, place) == sorted([kept, names[-1], under_way])
    again.commit(attached(5))
    again.commit(attached(6))
    assert left(again, place) == []


def test_a_commit_with_a_damaged_attachment_is_passed_over(place: Location) -> None:
    folder = CheckpointFolder(place, {})
    for number in range(2):
        folder.commit(attached(number, sets=folder.new_attachment("sets")))

    def check(found: Document) -> None:
        if found.body["number"] == 1:
            raise CheckpointError("it is damaged")

    with pytest.warns(RuntimeWarning, match="Skipping a checkpoint"):
        found = folder.latest(check)
    assert found is not None
    assert found.body["number"] == 0


@pytest.mark.parametrize(
    "name", ["..", "../00000001-00000000", "sets-1-0", "/tmp", "sets-00000001-0000000g", 7, ["x"]]
)
def test_names_of_attachments_are_no_paths(name: Any) -> None:
    for body in ({"attached": {"sets": name}}, {"state": {"attached": {"sets": name}}}):
        with pytest.raises(ModelFormatError, match="have invalid names"):
            attachments_of(body)
