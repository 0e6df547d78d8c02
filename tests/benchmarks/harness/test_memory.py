from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from tests.benchmarks.harness import memory


def test_the_peak_is_what_others_measure() -> None:
    resident = psutil.Process().memory_info().rss
    assert resident / 2 < memory.peak_bytes() < psutil.virtual_memory().total


def test_the_peak_is_in_bytes_on_every_system(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = memory.peak_bytes()
    monkeypatch.setattr(memory, "read", lambda path: "")
    # Here the kernel counts in kB; a Mac's counts in bytes.
    assert peak / 2 < memory.peak_bytes() < peak * 100
    kilobytes = memory.peak_bytes() // 1024
    monkeypatch.setattr(memory.platform, "system", lambda: "Darwin")
    assert memory.peak_bytes() == pytest.approx(kilobytes, rel=0.05)


def test_what_a_system_lacks_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.npy").write_bytes(b"rows")
    memory.drop_from_cache(tmp_path / "rows.npy")
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    memory.drop_from_cache(tmp_path / "absent.npy")
    assert memory.read(str(tmp_path / "absent")) == ""
    monkeypatch.setattr(memory, "Path", lambda path: tmp_path / "absent" / "clear_refs")
    memory.forget_peak()
