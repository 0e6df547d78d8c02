"""``python -m daskcluster`` is the command."""

from __future__ import annotations

from daskcluster.cli.main import main

if __name__ == "__main__":
    main(prog_name="python -m daskcluster")
