"""The health check of the image: queries the scheduler, worker or stream that runs as process 1.

A stream answers only with `--metrics-port`.
"""

from __future__ import annotations

import re
import sys
import urllib.request
from pathlib import Path

PORTS = {"scheduler": 8787, "worker": 8788}


def port_of(command: list[str]) -> int | None:
    """Return the port of a command's health endpoint, or None if it has none.

    Examples
    --------
    >>> port_of(["python3", "/opt/bin/dask", "worker", "--dashboard-address", ":8788"])
    8788
    >>> port_of(["/sbin/init", "--", "/opt/entrypoint.sh", "scheduler"])
    8787
    >>> port_of(["python3", "/opt/bin/daskcluster", "stream", "s3://in/", "--metrics-port", "8791"])
    8791
    >>> port_of(["python3", "/opt/bin/daskcluster", "fit", "rows.zarr"]) is None
    True
    """
    text = " ".join(command)
    served = re.findall(r"--metrics-port[ =](\d+)", text)
    if served:
        return int(served[-1])
    # Below an init process, the command is the entry point.
    if not any(part == "dask" or part.endswith(("/dask", "/entrypoint.sh")) for part in command):
        return None
    given = re.findall(r"--dashboard-address[ =]\S*:(\d+)", text)
    roles = [PORTS[part] for part in command if part in PORTS]
    return int(given[-1]) if given else (roles or [None])[0]


def main() -> int:
    content = Path("/proc/1/cmdline").read_bytes()
    port = port_of([part.decode(errors="replace") for part in content.split(b"\0") if part])
    if port is None:
        return 0  # a command is healthy as long as it runs
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=25) as answer:
            return 0 if answer.status == 200 else 1
    except OSError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
