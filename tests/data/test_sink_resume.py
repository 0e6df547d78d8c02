"""Outputs go on where an interrupted writer was, appear whole, and are nobody else's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster.data.writer import ZarrSink
from daskcluster.errors import OutputExistsError
from tests.data.conftest import s3  # noqa: F401  (a fixture)

MARK = "0123456789abcdef"
BLOCKS = ((0, 4), (4, 8), (8, 10))


def make(place: Any, **options: Any) -> ZarrSink:
    url, storage = place
    given = {"n_rows": 10, "chunk_rows": 4, "mark": MARK, "storage_options": storage, **options}
    return ZarrSink.create(url, **given)


def fill(sink: ZarrSink, *blocks: tuple[int, int]) -> None:
    for start, stop in blocks:
        sink.write(start, np.arange(start, stop))


def read(place: Any) -> list[int]:
    url, storage = place
    values: list[int] = zarr.open_array(url, mode="r", storage_options=storage)[:].tolist()
    return values


@pytest.fixture(params=["local", "memory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "bucket":
        return f"s3://rows/{tmp_path.name}/l.zarr", request.getfixturevalue("s3")
    local = request.param == "local"
    return (str(tmp_path / "out" / "l.zarr") if local else f"memory://{tmp_path}/l.zarr"), None


def left_to_do(sink: ZarrSink) -> list[tuple[int, int]]:
    return [block for block in BLOCKS if not sink.has(block)]


@pytest.mark.parametrize("asked", [False, True])
def test_another_writer_continues(place: Any, asked: bool) -> None:
    """Also with what a writer left that was killed, and had not been asked to leave anything."""
    fill(make(place, resume=asked), *BLOCKS[:2])
    with make(place, resume=True).transaction() as sink:
        assert left_to_do(sink) == [(8, 10)]
        assert not sink.has((4, 10))
        fill(sink, (8, 10))
    assert read(place) == list(range(10))
    if place[1] is None and "://" not in place[0]:
        assert os.listdir(Path(place[0]).parent) == ["l.zarr"]


@pytest.mark.parametrize(
    ("resume", "error", "message"),
    [
        (True, ConnectionResetError, True),
        (True, KeyboardInterrupt, True),
        (False, KeyboardInterrupt, False),  # nothing stays
        (True, ZeroDivisionError, False),  # and would come again
    ],
)
def test_an_interrupted_write_names_resume(
    place: Any, resume: bool, error: type[BaseException], message: bool
) -> None:
    def fail() -> None:
        with make(place, resume=resume).transaction() as sink:
            fill(sink, BLOCKS[0])
            raise error

    with pytest.raises(error) as caught:
        fail()
    note = f"The finished rows of {make(place).staging.target.url!r} are kept: the same call with "
    note += "resume=True continues with them."
    assert getattr(caught.value, "__notes__", []) == ([note] if message else [])


def test_finished_blocks_are_kept_after_an_error(place: Any) -> None:
    def fail(*blocks: tuple[int, int]) -> None:
        with make(place, resume=True).transaction() as sink:
            fill(sink, *blocks)
            raise ZeroDivisionError

    for block in (BLOCKS[0], BLOCKS[2]):
        with pytest.raises(ZeroDivisionError):
            fail(block)
    assert left_to_do(make(place, resume=True)) == [BLOCKS[1]]


def test_a_partial_output_of_other_rows_is_not_resumed(place: Any) -> None:
    fill(make(place), *BLOCKS[:2])
    assert left_to_do(make(place, mark="f" * 16, resume=True)) == list(BLOCKS)
    assert left_to_do(make(place, mark="", resume=True)) == list(BLOCKS)


def test_without_resume_it_begins_anew(place: Any) -> None:
    fill(make(place, resume=True), *BLOCKS[:2])
    assert left_to_do(make(place)) == list(BLOCKS)


def test_an_output_that_is_there_is_still_refused(place: Any) -> None:
    with make(place).transaction() as sink:
        fill(sink, *BLOCKS)
    with pytest.raises(OutputExistsError, match="exists already"):
        make(place, resume=True)
    with make(place, resume=True, overwrite=True).transaction() as sink:
        assert left_to_do(sink) == list(BLOCKS)
        fill(sink, *BLOCKS)


def test_blocks_that_cannot_be_read_are_written_again(tmp_path: Path) -> None:
    place = str(tmp_path / "l.zarr"), None
    fill(make(place), *BLOCKS)
    (work,) = tmp_path.iterdir()
    (work / "c" / "0").write_bytes(b"")
    content = (work / "c" / "1").read_bytes()
    (work / "c" / "1").write_bytes(bytes(len(content)))
    sink = make(place, resume=True)
    assert left_to_do(sink) == list(BLOCKS[:2])


def test_the_writer_that_got_farthest_is_taken(tmp_path: Path) -> None:
    place = str(tmp_path / "l.zarr"), None
    for blocks in ((BLOCKS[0],), BLOCKS[:2], (BLOCKS[2],)):
        fill(make(place), *blocks)
    assert left_to_do(make(place, resume=True)) == [BLOCKS[2]]


def test_a_writer_whose_blocks_were_taken_over_commits_nothing(tmp_path: Path) -> None:
    place = str(tmp_path / "l.zarr"), None
    first = make(place)
    fill(first, *BLOCKS[:2])
    second = make(place, resume=True)
    fill(first, BLOCKS[2])
    with pytest.raises(OutputExistsError, match="2 blocks of the unfinished output"):
        first.commit()
    fill(second, BLOCKS[2])
    second.commit()
    assert read(place) == list(range(10))


def test_a_block_of_a_group_is_finished_when_all_arrays_have_it(tmp_path: Path) -> None:
    dtype = np.dtype([("label", np.int32), ("share", np.float32)])

    def group(**options: Any) -> ZarrSink:
        url = str(tmp_path / "g.zarr")
        given = {"n_rows": 10, "chunk_rows": 4, "dtype": dtype, "width": 2, "mark": MARK}
        return ZarrSink.create(url, **given, **options)

    sink = group()
    sink.write(0, np.zeros((4, 2), dtype))
    sink.arrays[0].write(4, np.zeros((4, 2), np.int32))
    with group(resume=True).transaction() as again:
        assert [block for block in BLOCKS if not again.has(block)] == list(BLOCKS[1:])
        again.write(4, np.zeros((4, 2), dtype))
        again.write(8, np.zeros((2, 2), dtype))
    assert zarr.open_group(str(tmp_path / "g.zarr"), mode="r")["share"].shape == (10, 2)
