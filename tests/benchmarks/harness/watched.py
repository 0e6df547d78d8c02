"""Run a command in a separate process; record its lines, JSON record, seconds and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.harness.race import say

EVERY = 0.2
"""Seconds between two measurements of the memory."""
_ROOT = Path(__file__).resolve().parents[3]


@dataclass
class Log:
    """Figures of a run.

    Attributes
    ----------
    seconds : float
        From start to end.
    peak_bytes : int
        Largest sum of the resident sizes of all processes of the run.
    record : dict
        JSON record of the command.
    lines : list of (seconds, text)
        Lines on stderr with their times.
    """

    seconds: float = 0.0
    peak_bytes: int = 0
    record: dict[str, Any] = field(default_factory=dict)
    lines: list[tuple[float, str]] = field(default_factory=list)


def watch(words: list[str], folder: Path, tell: Callable[[str], None] = say) -> Log:
    """Run ``daskcluster`` with `words`, including ``--json``, in `folder`; `tell` is called with its lines.

    Raises
    ------
    RuntimeError
        The command failed.
    """
    log, began = Log(), time.perf_counter()
    places = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-c", "from daskcluster.cli.main import main; main()", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stdout is not None
    sampler = threading.Thread(target=_sample, args=(process.pid, log), daemon=True)
    sampler.start()
    for line in process.stderr:
        log.lines.append((time.perf_counter() - began, line.rstrip()))
        tell(f"    {log.lines[-1][0]:7.1f} s  {log.lines[-1][1]}")
    out = process.stdout.read()
    if process.wait():
        raise RuntimeError(
            f"daskcluster {' '.join(words)} ended with exit code {process.returncode}: {out}"
        )
    log.seconds = time.perf_counter() - began
    sampler.join()
    log.record = json.loads(out.splitlines()[-1])
    return log


def _sample(pid: int, log: Log) -> None:
    """Record the largest total resident size of a process and its children, until it ends."""
    while True:
        try:
            process = psutil.Process(pid)
            tree = [process, *process.children(recursive=True)]
            log.peak_bytes = max(log.peak_bytes, sum(each.memory_info().rss for each in tree))
            if process.status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.Error:
            return
        time.sleep(EVERY)
