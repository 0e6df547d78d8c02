"""Results have the bits that were committed, whatever the CPU; and the comparison sees one that has not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from daskcluster.kernels.jit import tile_name
from tests.digests import __main__ as command
from tests.digests.digest import REWRITE, committed, differences, digest_of, digests_of, message
from tests.digests.fits import FITS


@pytest.mark.kernels
@pytest.mark.parametrize("name", FITS)
def test_the_committed_bits(name: str) -> None:
    found = {name: digests_of(FITS[name]())}
    unlike = differences(found, committed())
    assert not unlike, message(unlike, 1, tile_name())


def test_every_fit_is_committed_and_nothing_else() -> None:
    assert committed().keys() == FITS.keys(), f"run `{REWRITE}`"


def test_a_digest_tells_bits_and_shapes_and_dtypes_apart() -> None:
    values = np.arange(6.0)
    last = values.copy()
    last[5] = np.nextafter(5.0, 6.0)
    others = (last, values.reshape(2, 3), values.astype("f4"), -values)
    assert len({digest_of(each) for each in (values, *others)}) == 5
    assert digest_of(values[::-1][::-1]) == digest_of(values)
    with pytest.raises(TypeError, match="NoneType"):
        digest_of(None)


def test_plain_is_without_what_only_newer_cpus_have() -> None:
    reported = (
        "from numpy._core import _multiarray_umath as core\n"
        "print([name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name)])"
    )
    environment = {**os.environ, **command.plain_environment()}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", reported],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n", done.stderr


def test_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.digests import digest

    fits = {"short": lambda: {"a": np.ones(3)}, "long": lambda: {"b": np.zeros(2)}}
    monkeypatch.setattr(digest, "COMMITTED", tmp_path / "some.json")
    monkeypatch.setattr(command, "FITS", fits)
    assert command.main([]) == 1
    assert "short: a" in capsys.readouterr().out
    assert command.main(["--write"]) == 0
    assert command.main([]) == 0
    monkeypatch.setitem(fits, "long", lambda: {"b": np.ones(2)})
    assert command.main(["--only", "short"]) == 0
    assert command.main(["--only", "long"]) == 1
    assert command.main(["--write", "--only", "long"]) == 0
    assert "1 have new bits\n  long: b" in capsys.readouterr().out
    assert digest.committed().keys() == fits.keys()
    with pytest.raises(SystemExit):
        command.main(["--only", "nothing"])
