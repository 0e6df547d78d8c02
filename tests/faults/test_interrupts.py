"""Control-C and SIGTERM: a fit leaves in time, and resumes from its last commit."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskcluster.models.fitted import load_document
from tests.faults.processes import Command, kill

FIT = "--n-clusters 60 --tol 0 --init random --random-state 0 --algorithm lloyd --max-iter"
STOPS = [
    pytest.param(signal.SIGINT, 130, "Interrupted", id="INT"),
    pytest.param(signal.SIGTERM, 143, "Terminated", id="TERM"),
]
CLUSTER = pytest.param(("--workers", "2"), id="cluster", marks=pytest.mark.slow)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("noise.npy", np.random.default_rng(0).random((100_000, 8), np.float32))
    return tmp_path


def stopped(
    here: Path,
    number: signal.Signals,
    *arguments: str,
    after: str,
) -> Any:
    """Return a command that was sent a signal when `after` stood on its stderr, and its exit code."""
    command = Command([*arguments, "--progress"], here, "stopped")
    deadline = time.monotonic() + 120
    while after not in command.stderr:
        if not command.process.is_alive() or time.monotonic() > deadline:
            kill(command.process)
            pytest.fail(command.stderr)
        time.sleep(0.01)
    os.kill(command.process.pid, number)
    code, _ = command.end(60)
    return command, code


@pytest.mark.parametrize("place", [pytest.param((), id="threads"), CLUSTER])
@pytest.mark.parametrize(("number", "code", "word"), STOPS)
def test_a_fit_leaves_and_resumes(
    here: Path, number: signal.Signals, code: int, word: str, place: tuple[str, ...]
) -> None:
    fit = ["fit", "noise.npy", *FIT.split(), "40", *place]
    kept = [*fit, "--checkpoint", "kept", "--checkpoint-every", "2"]
    command, ended = stopped(here, number, *kept, "--model", "m.zarr", after="iteration 3/")
    assert (ended, command.stdout) == (code, "")
    assert (
        f"{word}; no half-written output was left. The state of the fit is stored at"
        in command.stderr
    )
    assert "the same call with --resume resumes from it." in " ".join(command.stderr.split())
    assert "Traceback" not in command.stderr
    assert not any(path.name.startswith("m.zarr") for path in here.iterdir())
    again = Command([*kept, "--resume", "--model", "m.zarr", "--json"], here, "again")
    assert again.end(120)[0] == 0, again.stderr
    whole = Command([*fit, "--model", "whole.zarr"], here, "whole")
    assert whole.end(120)[0] == 0, whole.stderr
    found, expected = load_document("m.zarr"), load_document("whole.zarr")
    assert found.centres.tobytes() == expected.centres.tobytes()
    assert found.n_iter == expected.n_iter == 40


@pytest.mark.parametrize(("number", "code", "word"), STOPS)
def test_without_a_checkpoint_it_leaves_at_once(
    here: Path, number: signal.Signals, code: int, word: str
) -> None:
    fit = ["fit", "noise.npy", *FIT.split(), "100000", "--model", "m.zarr"]
    command, ended = stopped(here, number, *fit, after="iteration 3/")
    assert ended == code
    assert command.stderr.endswith(f"{word}; no half-written output was left.\n")
    assert not any(path.name.startswith("m.zarr") for path in here.iterdir())


@pytest.mark.kills
@pytest.mark.parametrize(("number", "code", "word"), STOPS)
@pytest.mark.parametrize("name", ["predict", "coreset"])
def test_other_commands_leave_nothing(
    here: Path, number: signal.Signals, code: int, word: str, name: str
) -> None:
    # A file with a hole: it takes no space, and a pass over it takes seconds.
    np.lib.format.open_memmap("long.npy", mode="w+", dtype=np.float32, shape=(10**8, 8)).flush()
    fit = Command(["fit", "noise.npy", *FIT.split(), "1", "--model", "m.zarr"], here, "fit")
    assert fit.end(120)[0] == 0, fit.stderr
    words = {
        "predict": ["predict", "m.zarr", "long.npy", "--output", "out.zarr", "--threads", "1"],
        "coreset": ["coreset", "long.npy", "--size", "1000", "--output", "out.zarr"],
    }
    before = sorted(os.listdir())
    command = Command(words[name], here, "stopped")
    time.sleep(1)
    while name == "predict" and not any(Path().glob("out.zarr*")):
        assert command.process.is_alive(), command.stderr
        time.sleep(0.01)
    time.sleep(0.5)  # until it is at work
    assert command.process.is_alive(), "it was over before it could be stopped"
    os.kill(command.process.pid, number)
    assert command.end(60)[0] == code, command.stderr
    assert word in command.stderr
    left = [entry for entry in sorted(os.listdir()) if not entry.startswith("stopped")]
    assert left == before
