"""Renders the chart with Helm's own engine, and says what is wrong with what comes out."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "daskcluster"
FIT = ["fit", "s3://rows/noise.zarr", "--n-clusters", "5", "--model", "s3://rows/model"]


def load_script(name: str) -> Any:
    """Import a script of deploy/ by its path."""
    path = ROOT / "deploy" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
