"""Public names are listed, and found."""

from __future__ import annotations

import pytest

import daskcluster
from daskcluster import extending, jobs


@pytest.mark.parametrize("module", [daskcluster, jobs])
def test_dir_lists_the_public_names(module: object) -> None:
    assert dir(module) == sorted(module.__all__)  # type: ignore[attr-defined]


def test_all_that_extensions_import_is_there() -> None:
    assert all(getattr(extending, name).__name__ == name for name in extending.__all__)
    with pytest.raises(AttributeError, match="no attribute 'register_nothing'"):
        _ = extending.register_nothing
