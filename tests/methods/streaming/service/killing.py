"""Two processes: one writes objects, the other repeatedly runs the loop of a stream and kills it.

``python -m tests.methods.streaming.service.killing write FEED N PAUSE OPTIONS``,
``... kill FEED STATE N MORE``; the last word of each is JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from tests.methods.streaming.service.feeds import open_loop, portion

ROOT = Path(__file__).parents[2]
CORRUPT, TWICE = 11, 7
"""Intervals of objects that hold NaN, or come again under another name (in buckets, whose tags show it)."""


def start(*words: Any) -> subprocess.Popen[str]:
    """Start one of the processes, which waits for `begin_together`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.methods.streaming.service.killing", *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def begin_together(*processes: subprocess.Popen[str]) -> None:
    """Let processes begin when all of them have imported what they need."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.close()


def rows_of(number: int) -> np.ndarray:
    """Return the rows of an object; some objects hold a NaN."""
    rows = portion(number, 900)
    if number % CORRUPT == CORRUPT - 1:
        rows[450, 1] = np.nan
    return rows


def good_rows(n_objects: int) -> int:
    """Return the number of rows that can be folded in a number of objects."""
    return 900 * (n_objects - n_objects // CORRUPT)


def write(feed: str, n_objects: int, pause: float, options: dict[str, Any] | None) -> None:
    """Write objects in place, chunk by chunk, so that readers may see half-written ones."""
    _ready()
    for number in range(n_objects):
        rows, names = rows_of(number), [f"part-{number:04d}.zarr"]
        if options and number % TWICE == TWICE - 1:
            names.append(f"part-{number:04d}.zarr-again")
        for name in names:
            array = zarr.create_array(
                f"{feed}/{name}",
                shape=rows.shape,
                chunks=(300, rows.shape[1]),
                dtype=rows.dtype,
                storage_options=options,
            )
            for first in range(0, len(rows), 300):
                array[first : first + 300] = rows[first : first + 300]
                time.sleep(pause / 8)
        time.sleep(pause)


def _ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


def kill(feed: str, state: str, n_kills: int, more: dict[str, Any]) -> None:
    """Repeatedly run the loop and kill it; print the results.

    ``cycles`` that were ended, loops that ``ended`` by themselves before they could be killed, ``seconds``.
    """
    # Everything is imported, and no thread started, before processes are forked.

    _ready()
    rng, cycles, ended, began = random.Random(n_kills), 0, 0, time.perf_counter()
    for number in range(n_kills):
        heard, said = os.pipe()
        child = os.fork()
        if not child:
            loop = open_loop(feed, state, **more)
            os.write(said, b"o")
            loop.run(0.05, lambda cycle, said=said: os.write(said, b"."))
        os.close(said)
        os.read(heard, 1)
        if number % 3 == 2:
            cycles += len(os.read(heard, 1))  # now and then something must be done
        time.sleep(rng.uniform(0.0, 0.8))
        os.kill(child, signal.SIGKILL)
        ended += not os.WIFSIGNALED(os.waitpid(child, 0)[1])
        while message := os.read(heard, 1024):
            cycles += message.count(b".")
        os.close(heard)
    seconds = time.perf_counter() - began
    sys.stdout.write(json.dumps({"cycles": cycles, "ended": ended, "seconds": seconds}))


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    if what == "write":
        write(place, int(rest[0]), float(rest[1]), json.loads(rest[2]))
    else:
        kill(place, rest[0], int(rest[1]), json.loads(rest[2]))
