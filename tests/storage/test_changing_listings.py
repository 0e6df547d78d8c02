"""Listings of a store in memory while another thread writes there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from daskcluster.storage.files import list_files, list_names, write_file
from daskcluster.storage.location import locate
from daskcluster.storage.retry import while_others_write
from daskcluster.storage.row_state import StateFiles

PLACE = "memory://changing-listings"


class Restless(dict[str, Any]):
    """Changes in the first two iterations over it."""

    rounds = 0

    def __iter__(self) -> Iterator[str]:
        self._change()
        return super().__iter__()

    def items(self) -> Any:
        self._change()
        return super().items()

    def _change(self) -> None:
        self.rounds += 1
        if self.rounds <= 2:
            raise RuntimeError("dictionary changed size during iteration")


@pytest.mark.parametrize(
    "names",
    [
        lambda: [file.name for file in list_files(locate(PLACE))],
        lambda: list_names(locate(PLACE)),
        lambda: [run[2] for run in StateFiles(locate(PLACE), 2)._runs()] or ["a.json"],
    ],
)
def test_what_changes_while_it_is_listed_is_listed_again(
    names: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(locate(PLACE), "a.json", b"{}")
    store = Restless(MemoryFileSystem.store)
    monkeypatch.setattr(MemoryFileSystem, "store", store)
    assert names() == ["a.json"]
    assert store.rounds > 2


def test_other_errors_are_raised_at_once() -> None:
    calls = []

    def fail() -> None:
        calls.append(1)
        raise RuntimeError("no such thing")

    with pytest.raises(RuntimeError, match="no such thing"):
        while_others_write(fail)
    assert len(calls) == 1
