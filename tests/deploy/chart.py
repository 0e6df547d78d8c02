"""Renders the chart with Helm's own engine, and says what is wrong with what comes out."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "daskcluster"
FIT = ["fit", "s3://rows/noise.zarr", "--n-clusters", "5", "--model", "s3://rows/model"]


def settled(value: Any) -> Any:
    """Return what a call gives, also where it gives it later."""
    return asyncio.run(value) if inspect.isawaitable(value) else value
