"""What runs on workers imports no scikit-learn: with all that comes along it takes 140 MB a process."""

from __future__ import annotations

import subprocess
import sys

TASKS = """
daskcluster.methods.streaming.tree
daskcluster.engine.operations
daskcluster.methods.backward_euler.starts
daskcluster.methods.hierarchical.cells
daskcluster.seeding.methods
"""
"""Modules of functions that travel; those of chunkwise functions import less."""


def test_tasks_do_without_scikit_learn() -> None:
    program = f"import sys\nfor name in {TASKS.split()}:\n    __import__(name)\n"
    program += "print(*sorted({'sklearn', 'pandas', 'pyarrow'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout.split() == [], found.stderr
    assert found.returncode == 0, found.stderr
