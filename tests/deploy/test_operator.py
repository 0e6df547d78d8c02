"""Mode `operator`: what the Dask operator's own controller makes of the chart's objects goes together."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
import yaml

from tests.deploy.chart import CHART, FIT, by_kind, crds, pods, render
from tests.deploy.operated import operated

JOB = {"enabled": True, "args": FIT}
TLS = {"enabled": True, "secretName": "certificates"}
STREAM = {
    "enabled": True,
    "args": ["stream", "s3://a/in", "--state", "s3://a/s", "--n-clusters", "5", "--every", "1m"],
}
ALONE: dict[str, Any] = {"mode": "operator", "job": JOB, "tls": TLS, "metrics": {"enabled": True}}
TOGETHER: dict[str, Any] = {**ALONE, "stream": STREAM, "podAnnotations": {"a": "b"}}


def templates(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return metadata and specifications of all pods that workloads will have."""
    return [
        m if m["kind"] == "Pod" else m["spec"]["template"]
        for m in manifests
        if m["kind"] != "Service"
    ]


def selected(selector: dict[str, Any], manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    wanted = selector["matchLabels"].items()
    return [m for m in manifests if wanted <= m["metadata"]["labels"].items()]


def parts(manifests: list[dict[str, Any]]) -> list[str]:
    return [m["metadata"]["labels"]["app.kubernetes.io/component"] for m in manifests]


@pytest.mark.parametrize(
    "values", [ALONE, TOGETHER, {"mode": "operator"}], ids=["alone", "together", "bare"]
)
def test_the_objects_of_the_operator_are_valid(values: dict[str, Any]) -> None:
    validator = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    made = operated(render(values))
    for manifest in made:
        validator.validate(manifest, "1.30", strict=True)
    n_clusters = 2 if values is TOGETHER else 1
    assert parts(templates(made)).count("worker") == 2 * n_clusters
    assert len([m for m in made if m["kind"] == "Service"]) == n_clusters


def test_every_pod_has_the_address_of_its_scheduler() -> None:
    rendered = render(TOGETHER)
    made = operated(rendered)
    services = {m["metadata"]["name"] for m in made if m["kind"] == "Service"}
    assert services == {"clusters-daskcluster-scheduler", "clusters-daskcluster-1-scheduler"}
    # The job and what it has of its own meet at one scheduler, the stream and its cluster at the other.
    stream = by_kind(rendered, "Deployment", "stream")["spec"]["template"]
    found = [addresses(template["spec"]) for template in [*templates(made), stream]]
    assert {address for each in found for address in each} == {
        f"tls://{name}:8786" for name in services
    }
    assert all(len(each) == 1 for each in found)
    (runner,) = (m for m in made if m["kind"] == "Pod")
    assert addresses(runner["spec"]) == ["tls://clusters-daskcluster-1-scheduler:8786"]
    assert runner["metadata"]["name"] == "clusters-daskcluster-1-runner"


def addresses(pod: dict[str, Any]) -> list[str]:
    return [
        variable["value"]
        for container in pod["containers"]
        for variable in container["env"]
        if variable["name"] == "DASK_SCHEDULER_ADDRESS"
    ]


@pytest.mark.parametrize("values", [ALONE, TOGETHER], ids=["alone", "together"])
def test_policies_and_monitors_select_the_pods_of_the_operator(values: dict[str, Any]) -> None:
    rendered = render(values)
    made = operated(rendered)
    every = templates(made)
    policy = by_kind(rendered, "NetworkPolicy")["spec"]
    assert selected(policy["podSelector"], every) == every
    for part in ("scheduler", "worker"):
        budget = by_kind(rendered, "PodDisruptionBudget", part)["spec"]
        assert set(parts(selected(budget["selector"], every))) == {part}
    monitor = by_kind(rendered, "ServiceMonitor")["spec"]
    services = [m for m in made if m["kind"] == "Service"]
    assert selected(monitor["selector"], services) == services
    ports = {port["name"] for service in services for port in service["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["endpoints"]} <= ports
    monitor = by_kind(rendered, "PodMonitor", "worker")["spec"]
    assert set(parts(selected(monitor["selector"], every))) == {"worker"}


def test_the_operator_may_ask_schedulers() -> None:
    def asked(values: dict[str, Any]) -> list[dict[str, Any]]:
        rules = by_kind(render(values), "NetworkPolicy")["spec"]["ingress"]
        own = {"app.kubernetes.io/name": "dask-kubernetes-operator"}
        return [
            rule
            for rule in rules
            for source in rule["from"]
            if source["podSelector"].get("matchLabels") == own
        ]

    (rule,) = asked(ALONE)
    assert [port["port"] for port in rule["ports"]] == [8786, 8787]
    assert asked({}) == []
    assert asked({**ALONE, "networkPolicy": {"operator": []}}) == []


def test_the_autoscaler_of_the_page_scales_the_cluster_of_the_release() -> None:
    page = (CHART / "README.md").read_text()
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    scaler = yaml.safe_load(text)
    jsonschema.Draft202012Validator(crds()[scaler["kind"]]).validate(scaler)
    cluster = by_kind(render({"mode": "operator"}), "DaskCluster")
    assert scaler["spec"]["cluster"] == cluster["metadata"]["name"]


def test_each_worker_has_the_name_that_the_operator_gave_it() -> None:
    for pod in pods(operated(render({"mode": "operator"}))):
        (container,) = pod["containers"]
        given = {variable["name"]: variable.get("value") for variable in container["env"]}
        if container["name"] == "worker":
            assert container["args"][1:3] == ["--name", "$(DASK_WORKER_NAME)"]
            assert given["DASK_WORKER_NAME"].startswith("clusters-daskcluster-default-worker-")
