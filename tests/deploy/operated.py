"""What the Dask operator makes of the chart's objects: its own controller, run without an API server.

Its handlers are called as kopf calls them; where they would create an object in Kubernetes, the object is
kept, and those that have handlers of their own (a cluster, a group of workers) are handed on to these.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Generator, Mapping
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

import pytest

_LOGGER = logging.getLogger(__name__)


class _Created:
    """Stands for a class of objects of the API: what is created is kept."""

    def __init__(self, manifest: Mapping[str, Any], kept: list[dict[str, Any]]) -> None:
        self._manifest = dict(manifest)
        self._kept = kept

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self

    @property
    def name(self) -> str:
        return str(self._manifest["metadata"]["name"])

    async def exists(self) -> bool:
        return False

    async def create(self) -> None:
        self._kept.append(self._manifest)

    async def cluster(self) -> Any:
        return SimpleNamespace(labels={})


async def _nothing(*_: Any, **__: Any) -> AsyncIterator[Any]:
    """Return no objects: the API has none yet."""
    for each in ():
        yield each


def operated(manifests: list[dict[str, Any]], namespace: str = "analysis") -> list[dict[str, Any]]:
    """Return the Deployments, Services and Pods that the operator makes of DaskClusters and DaskJobs."""
    package = "dask_kubernetes.operator.controller.controller"
    controller = pytest.importorskip(package, reason="dask-kubernetes is not installed")
    waiting = [m for m in manifests if m["kind"] in ("DaskCluster", "DaskJob")]
    made: list[dict[str, Any]] = []

    def kept(manifest: Mapping[str, Any], namespace: str) -> _Created:
        return _Created(manifest, waiting)

    kinds = ("Deployment", "Service", "Pod", "DaskCluster", "DaskWorkerGroup")
    with (
        patch.multiple(controller, **dict.fromkeys(kinds, kept)),
        patch.object(controller.kr8s.asyncio, "get", _nothing),
        patch.multiple(controller.kopf, adopt=_leave, label=_leave),
    ):
        while waiting:
            manifest = waiting.pop(0)
            if manifest["kind"] in ("DaskCluster", "DaskJob", "DaskWorkerGroup"):
                asyncio.run(_handled(controller, manifest, namespace))
            else:
                made.append(manifest)
    return made


def _leave(*_: Any, **__: Any) -> None:
    """Leave a manifest as it is: owners have identities that only an API server gives."""


async def _handled(controller: Any, manifest: dict[str, Any], namespace: str) -> None:
    handlers = {
        "DaskCluster": controller.daskcluster_create_components,
        "DaskJob": controller.daskjob_create_components,
        "DaskWorkerGroup": controller.daskworkergroup_replica_update,
    }
    metadata, spec = manifest["metadata"], manifest["spec"]
    if manifest["kind"] == "DaskCluster":
        controller.validate_cluster_name(metadata["name"])
    message = {part: metadata.get(part, {}) for part in ("labels", "annotations")}
    await handlers[manifest["kind"]](
        name=metadata["name"],
        namespace=namespace,
        spec=spec,
        meta=SimpleNamespace(**message),
        body=manifest,
        patch=SimpleNamespace(status={}),
        logger=_LOGGER,
        new=spec.get("worker", {}).get("replicas"),
    )
