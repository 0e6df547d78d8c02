"""What killed writers leave next to a local output goes with the next whole one, and nothing else does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskcluster.data.writer import ZarrSink

WRITER = """
import os, sys
import numpy as np
from daskcluster.data.writer import ZarrSink
sink = ZarrSink.create(sys.argv[1], n_rows=10, chunk_rows=4, mark=sys.argv[2])
sink.write(0, np.arange(4))
print("writing", flush=True)
sys.stdin.read()
"""
MARK = "0123456789abcdef"


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "l.zarr")


def started(target: str, mark: str) -> Any:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, target, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "writing\n"
    return process


@pytest.fixture
def writer(target: str) -> Iterator[Any]:
    """Yield another process that writes to the target, and is not done."""
    process = started(target, MARK)
    yield process
    process.kill()
    process.communicate()


def write(target: str, **options: Any) -> None:
    with ZarrSink.create(target, n_rows=10, chunk_rows=4, **options).transaction() as sink:
        sink.write(0, np.arange(10))


def folders(target: str) -> list[str]:
    return sorted(os.listdir(Path(target).parent))


def test_a_whole_output_removes_what_a_killed_writer_has_left(writer: Any, target: str) -> None:
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    nearby = [f"{target}.partial-mine", f"{target}.partial", f"{target}.partial-0123abcd.old"]
    nearby += [f"{target}2.partial-0123abcd"]
    for path in nearby:
        os.mkdir(path)
    os.symlink(nearby[0], f"{target}.partial-0123abcd")
    assert len(folders(target)) == 6
    write(target)
    names = [os.path.basename(path) for path in (target, *nearby, f"{target}.partial-0123abcd")]
    assert folders(target) == sorted(names)


def test_a_writer_that_lives_is_left_alone(writer: Any, target: str) -> None:
    growing = folders(target)
    write(target)
    assert folders(target) == sorted([*growing, "l.zarr"])
    with pytest.raises(FileNotFoundError), _never_done(target):
        raise FileNotFoundError  # what is removed is its own alone
    assert folders(target) == sorted([*growing, "l.zarr"])


def _never_done(target: str) -> Any:
    return ZarrSink.create(target, n_rows=10, chunk_rows=4, overwrite=True).transaction()


def test_nothing_is_removed_before_there_is_a_whole_output(writer: Any, target: str) -> None:
    writer.kill()
    writer.wait()
    left = folders(target)
    with pytest.raises(FileNotFoundError), _never_done(target):
        raise FileNotFoundError
    assert folders(target) == left
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(target, mark=MARK, resume=True)  # it was of the same output, and is taken over
    assert folders(target) == ["l.zarr"]


def test_taking_over_from_a_writer_that_lives_warns(writer: Any, target: str) -> None:
    assert len(folders(target)) == 1
    with pytest.warns(RuntimeWarning, match=r"Another process still writes .*l\.zarr"):
        write(target, mark=MARK, resume=True)
    assert folders(target) == ["l.zarr"]
    assert writer.poll() is None


def test_an_output_that_was_moved_away_goes_too(target: str) -> None:
    """As where a writer was killed between its two renames."""
    os.mkdir(f"{target}.partial-0123abcd.replaced")
    write(target)
    assert folders(target) == ["l.zarr"]


def test_without_file_locks_nothing_is_removed(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr("fcntl.flock", unsupported)
    left = f"{target}.partial-0123abcd"
    os.mkdir(left)
    write(target)
    assert os.path.isdir(left)
