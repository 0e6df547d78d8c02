"""The other end of `daskcluster.jobs.submit`.

A scheduler unpickles what it hands on. It finds this module, which imports nothing, in place of the
job's, which imports compiled kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


def call(job: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Call the job of that name, here on a worker."""
    return getattr(import_module("daskcluster.jobs"), job)(*arguments, **options)
