"""Runs what `sklearn_suite` loads: every function once for every chunking."""

from __future__ import annotations

from tests.estimators.sklearn_suite import CHUNKINGS, load

for _chunking, _chunks in CHUNKINGS.items():
    for _name, _function in load(_chunks).items():
        globals()[f"{_name}__{_chunking}"] = _function
