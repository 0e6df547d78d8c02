"""Names that have moved are found at their old places, with a warning."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

import daskcluster
from daskcluster import extending, jobs

MOVED = {
    "daskcluster.errors:ReachError": "DataNotReachableError",
    "daskcluster.data.sources:register_source": "register_source",
    "daskcluster.jobs:register_job": "register_job",
    "daskcluster.jobs.spec:register_job": "register_job",
    "daskcluster.methods.kernel_kmeans.fit:register_gram": "register_gram",
    "daskcluster.methods.kmeans.bounds:register_bounds": "register_bounds",
}


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_warns(old: str) -> None:
    jobs.__dict__.pop("register_job", None)  # which it keeps after the first use
    with pytest.warns(
        FutureWarning, match=rf"is now daskcluster\.(errors|extending)\.{MOVED[old]}"
    ):
        assert resolve_name(old).__name__ == MOVED[old]


@pytest.mark.parametrize("module", [daskcluster, jobs])
def test_dir_lists_the_public_names(module: object) -> None:
    assert dir(module) == sorted(module.__all__)  # type: ignore[attr-defined]


def test_all_that_extensions_import_is_there() -> None:
    assert all(getattr(extending, name).__name__ == name for name in extending.__all__)
    with pytest.raises(AttributeError, match="no attribute 'register_nothing'"):
        _ = extending.register_nothing
