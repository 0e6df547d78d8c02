"""The peak of memory, in bytes on every system."""

from __future__ import annotations

import pytest

from tests.benchmarks.harness import memory


def test_the_peak_is_in_bytes_on_every_system(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = memory.peak_bytes()
    monkeypatch.setattr(memory, "read", lambda path: "")
    # Here the kernel counts in kB; a Mac's counts in bytes.
    assert peak / 2 < memory.peak_bytes() < peak * 100
    kilobytes = memory.peak_bytes() // 1024
    monkeypatch.setattr(memory.platform, "system", lambda: "Darwin")
    assert memory.peak_bytes() == pytest.approx(kilobytes, rel=0.05)
