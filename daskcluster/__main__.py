"""Run the command line: ``python -m daskcluster``."""

from __future__ import annotations

from daskcluster.cli.main import main

if __name__ == "__main__":
    main(prog_name="python -m daskcluster")
