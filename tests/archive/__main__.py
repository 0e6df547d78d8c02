"""``python -m tests.archive FILE``: write the stored state of every estimator into a new archive.

Archives that are committed stay as they are: they tell whether later versions open what earlier ones wrote.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path

import numpy as np

from daskcluster.storage.lease import Lease, folder_of
from tests.archive.fits import (
    ARGUMENTS,
    FITS,
    MEMORY,
    STREAMS,
    N,
    digest,
    made,
    put_in_memory,
    stream,
    stream_digest,
)
from tests.estimators.interruption import killed
from tests.laws.data import lognormal
from tests.methods.streaming.service.feeds import put


def write(folder: Path) -> None:
    """Write rows, checkpoints, models, streams and leases, and what a fit without interruption finds."""
    rows = lognormal(N, 4)
    expected: dict[str, dict[str, object]] = {"fits": {}, "models": {}, "streams": {}}
    np.save(folder / "rows.npy", rows)
    for name, (_, _, n_commits) in FITS.items():
        kept = {"checkpoint": str(folder / "checkpoints" / name), "checkpoint_every": 1}
        if not killed(lambda n=name, more=kept: made(n, **more).fit(rows), n_commits):
            raise RuntimeError(f"{name} ends before it is stopped")
        whole = made(name).fit(rows)
        expected["fits"][name] = digest(whole)
        whole.save(str(folder / "models" / name))
        expected["models"][name] = np.asarray(whole.predict(rows[:100])).tolist()
    for number in range(2):
        put(folder / "streams" / "streaming" / "feed", number)
        put_in_memory(folder / "streams")
        loop = stream("streaming", "whole" if number else "state")
        loop.cycle()
    expected["streams"]["streaming"] = stream_digest(loop)
    for path in MEMORY.find(f"{STREAMS}"):
        place = folder / "streams" / path.removeprefix(f"/{STREAMS}/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(MEMORY.cat(path))
    for name, state in (("running", ""), ("failed", "failed"), ("done", "done")):
        lease = Lease(folder_of(str(folder / "leases" / name)), name, ARGUMENTS)
        lease.take()
        lease.begin()
        if state:
            lease.end(state, {"inertia": 1.0} if state == "done" else None)
    (folder / "expected.json").write_text(json.dumps(expected))


def main(output: str) -> None:
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        write(folder)
        with tarfile.open(output, "w:xz") as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and "whole" not in path.parts:
                    archive.add(path, path.relative_to(folder))


if __name__ == "__main__":
    main(sys.argv[1])
