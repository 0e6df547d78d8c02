"""Renders the chart with Helm's own engine, and says what is wrong with what comes out."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def rendered_files(
    values: dict[str, Any], name: str = "clusters", revision: int = 1
) -> dict[str, str]:
    """Return what the chart makes of `values`, by the names of its templates.

    Raises
    ------
    Exception
        Helm refuses the values, or a template fails.
    """
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        found: dict[str, str] = chart.render(
            values, name=name, namespace="analysis", revision=revision
        )
    return found


def render(
    values: dict[str, Any], name: str = "clusters", revision: int = 1
) -> list[dict[str, Any]]:
    """Return the manifests that the chart makes of `values`; raises as `rendered_files`."""
    files = rendered_files(values, name, revision)
    texts = [text for file, text in files.items() if file.endswith(".yaml")]
    return [
        document
        for text in texts
        for document in yaml.safe_load_all(text)
        if isinstance(document, dict)
    ]


@cache
def crds() -> dict[str, Any]:
    """Return the schemas of the Dask operator by kind."""
    package = pytest.importorskip("dask_kubernetes", reason="dask-kubernetes is not installed")
    found = {}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # nearly a megabyte
    for file in Path(package.__file__).parent.rglob("crds/*.yaml"):
        for definition in yaml.load_all(file.read_text(), loader):
            names = definition["spec"]["names"]
            found[names["kind"]] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert {"DaskCluster", "DaskJob"} <= set(found)
    return found


def by_kind(manifests: list[dict[str, Any]], kind: str, part: str = "") -> dict[str, Any]:
    """Return the manifest of a kind whose name ends in `part`."""
    found = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"].endswith(part)]
    assert len(found) == 1, [(m["kind"], m["metadata"]["name"]) for m in manifests]
    return found[0]


def pods(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the specifications of all pods in the manifests, wherever they stand."""
    found: list[dict[str, Any]] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "containers" in node:
                found.append(node)
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(manifests)
    return found


class Container:
    """A rendered container as a process: its arguments and variables, with addresses of a test.

    Parameters
    ----------
    pod : mapping
    replaced : mapping
        What stands for parts of the values of variables.
    name : str
        Of the pod, and whatever else a variable takes from it.
    """

    def __init__(
        self, pod: Mapping[str, Any], replaced: Mapping[str, str], name: str = "pod-0"
    ) -> None:
        (container,) = pod["containers"]
        self.variables = {v["name"]: v.get("value", name) for v in container["env"]}
        for old, new in replaced.items():
            self.variables = {k: v.replace(old, new) for k, v in self.variables.items()}
        self.arguments = [
            re.sub(r"\$\((\w+)\)", lambda match: self.variables[match[1]], text)
            for text in container["args"]
        ]
