"""The chart: every matrix of values renders to valid objects, bad values are refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import daskcluster
from daskcluster.cli.job_commands import job_command
from daskcluster.jobs.catalogue import declared_jobs
from tests.deploy.chart import (
    CHART,
    FIT,
    ROOT,
    by_kind,
    crds,
    load_script,
    pods,
    render,
    rendered_files,
)

EXAMPLES = sorted((ROOT / "deploy" / "helm" / "examples").glob("*.yaml"))
KUBERNETES = "1.30"
JOB = {"enabled": True, "args": FIT}
TLS = {"enabled": True, "secretName": "certificates"}
STREAM = {
    "enabled": True,
    "args": ["stream", "s3://a/in", "--state", "s3://a/s", "--n-clusters", "5", "--every", "1m"],
}
MATRIX: dict[str, dict[str, Any]] = {
    "defaults": {},
    "job": {"job": JOB},
    "cron": {"cronJob": {"enabled": True, "args": FIT}},
    "stream": {"stream": STREAM},
    "everything": {
        "job": JOB, "cronJob": {"enabled": True, "args": FIT}, "stream": STREAM, "tls": TLS,
        "metrics": {"enabled": True, "labels": {"release": "prometheus"}},
        "image": {"repository": "a/b", "digest": "sha256:" + "0" * 64, "pullSecrets": ["registry"]},
        "serviceAccount": {"annotations": {"iam.gke.io/gcp-service-account": "x@y"}},
        "env": [{"name": "AWS_REGION", "value": "eu-west-1"}],
        "envFrom": [{"secretRef": {"name": "bucket"}}],
        "podLabels": {"team": "a"}, "podAnnotations": {"b": "c"},
        "scheduler": {"nodeSelector": {"pool": "stable"}, "priorityClassName": "high",
                      "service": {"type": "LoadBalancer", "annotations": {"internal": "true"}}},
        "worker": {"tolerations": [{"key": "spot", "operator": "Exists"}], "cacheClaim": "kernels",
                   "affinity": {"nodeAffinity": {}}, "extraArgs": ["--lifetime", "12h"],
                   "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
                                                  "whenUnsatisfiable": "DoNotSchedule"}]},
        "networkPolicy": {"clients": [{"podSelector": {}}], "monitors": [{"namespaceSelector": {}}]},
    },
    "bare": {
        "serviceAccount": {"create": False}, "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False}, "worker": {"replicas": 0},
    },
    "operator": {"mode": "operator"},
    "operator-job": {"mode": "operator", "job": JOB, "tls": TLS},
    "operator-everything": {
        "mode": "operator", "job": JOB, "cronJob": {"enabled": True, "args": FIT},
        "stream": STREAM, "metrics": {"enabled": True},
    },
}  # fmt: skip
MATRIX |= {f"example-{file.stem}": yaml.safe_load(file.read_text()) for file in EXAMPLES}


@pytest.fixture(params=sorted(MATRIX))
def manifests(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return render(MATRIX[request.param])


def test_objects_are_valid(manifests: list[dict[str, Any]]) -> None:
    validator = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    assert manifests
    for manifest in manifests:
        group = manifest["apiVersion"].partition("/")[0]
        if group == "kubernetes.dask.org":
            jsonschema.Draft202012Validator(crds()[manifest["kind"]]).validate(manifest)
        elif group != "monitoring.coreos.com":  # schemas of that operator come with it
            validator.validate(manifest, KUBERNETES, strict=True)
    names = [(m["kind"], m["metadata"]["name"]) for m in manifests]
    assert len(set(names)) == len(names)


def test_pods_of_custom_objects_are_valid_pods(manifests: list[dict[str, Any]]) -> None:
    validator = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    for spec in pods(manifests):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
        validator.validate(pod, KUBERNETES, strict=True)


def test_nothing_runs_with_more_rights_than_it_needs(manifests: list[dict[str, Any]]) -> None:
    for pod in pods(manifests):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        mounted = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert {mount["name"] for mount in container["volumeMounts"]} <= mounted
            assert "command" not in container  # the image's entry point knows the roles
            for variable in container["env"]:
                assert set(variable) <= {"name", "value", "valueFrom"}


def test_a_batch_run_has_scheduler_and_name() -> None:
    rendered = render({"job": JOB, "cronJob": {"enabled": True, "args": FIT}})
    (job,) = pods([by_kind(rendered, "Job")])
    (cron,) = pods([by_kind(rendered, "CronJob")])
    tail = ["--scheduler", "$(DASK_SCHEDULER_ADDRESS)", "--timeout", "300", "--name", "$(JOB_NAME)"]
    for pod in (job, cron):
        assert pod["containers"][0]["args"] == [*FIT, *tail]
    variables = {v["name"]: v for v in job["containers"][0]["env"]}
    assert variables["JOB_NAME"]["value"] == "clusters-daskcluster-1"
    address = variables["DASK_SCHEDULER_ADDRESS"]["value"]
    assert address == "tcp://clusters-daskcluster-scheduler:8786"
    service = by_kind(rendered, "Service", "scheduler")
    assert service["metadata"]["name"] == "clusters-daskcluster-scheduler"
    assert {port["port"] for port in service["spec"]["ports"]} == {8786, 8787}


def test_every_command_of_the_cluster_has_scheduler_and_name() -> None:
    for command in declared_jobs():
        for part in ("job", "cronJob"):
            container = container_of({part: {"enabled": True, "args": [command, "s3://a/b"]}})
            arguments = container["args"]
            assert arguments[-2:] == ["--name", "$(JOB_NAME)"]
            assert arguments[arguments.index("--scheduler") + 1] == "$(DASK_SCHEDULER_ADDRESS)"
    own = ["stream", "--name", "mine", "--scheduler", "tcp://a:1"]
    assert container_of({"job": {"enabled": True, "args": own}})["args"] == own


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_commands_of_examples_are_understood(file: Path) -> None:
    rendered = render(yaml.safe_load(file.read_text()))
    for pod in pods(rendered):
        name, *given = pod["containers"][0]["args"]
        if name in ("scheduler", "worker"):
            continue
        command = job_command(declared_jobs()[name])
        with command.make_context(name, given) as context:
            assert context.params["scheduler"] == "$(DASK_SCHEDULER_ADDRESS)"
            assert context.params["name"]


def container_of(values: dict[str, Any]) -> dict[str, Any]:
    """Return the one container that runs a command."""
    containers = [container for pod in pods(render(values)) for container in pod["containers"]]
    (found,) = (each for each in containers if each["name"] in ("command", "stream"))
    return dict(found)


@pytest.mark.parametrize("mode", ["deployment", "operator"])
def test_a_stream_that_is_stuck_is_started_again(mode: str) -> None:
    container = container_of({"mode": mode, "stream": {**STREAM, "stallSeconds": 600}})
    arguments = container["args"]
    assert arguments[: len(STREAM["args"])] == STREAM["args"]
    for option, value in (
        ("--name", "clusters-daskcluster-stream"),
        ("--scheduler", "$(DASK_SCHEDULER_ADDRESS)"),
        ("--metrics-port", "8791"),
        ("--stall-after", "600s"),
    ):
        assert arguments[arguments.index(option) + 1] == value
    assert container["ports"] == [{"name": "http-metrics", "containerPort": 8791}]
    for probe in (container["startupProbe"], container["livenessProbe"]):
        assert probe["httpGet"] == {"path": "/health", "port": "http-metrics"}
    stream = job_command(declared_jobs()["stream"])
    with stream.make_context("stream", arguments[1:]) as context:
        assert context.params["stall_after"] == 600.0
    # A command that ends has nothing to answer with.
    assert not {"livenessProbe", "ports"} & set(container_of({"job": JOB}))


def test_figures_of_a_stream_are_read() -> None:
    rendered = render({"stream": STREAM, "metrics": {"enabled": True}})
    monitor = by_kind(rendered, "PodMonitor", "-stream")["spec"]
    assert [each["port"] for each in monitor["podMetricsEndpoints"]] == ["http-metrics"]
    labels = by_kind(rendered, "Deployment", "stream")["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    alone = render({"metrics": {"enabled": True}})
    assert by_kind(alone, "PodMonitor")["metadata"]["name"].endswith("-worker")


def sources_of(policy: dict[str, Any], port: int) -> list[dict[str, Any]]:
    """Return what a network policy lets connect to a port."""
    return [
        source
        for rule in policy["spec"]["ingress"]
        if port in [each["port"] for each in rule["ports"]]
        for source in rule["from"]
    ]


@pytest.mark.parametrize("mode", ["deployment", "operator"])
def test_prometheus_reaches_all_that_is_monitored(mode: str) -> None:
    monitoring = yaml.safe_load((ROOT / "deploy/helm/examples/monitoring.yaml").read_text())
    values = {"mode": mode, "stream": STREAM}
    rendered = render({**values, **monitoring})
    policy = by_kind(rendered, "NetworkPolicy")
    ports = {
        (container["name"], port["name"]): port["containerPort"]
        for pod in pods(rendered)
        for container in pod["containers"]
        for port in container.get("ports", [])
    }
    monitors = [m for m in rendered if m["kind"] in ("ServiceMonitor", "PodMonitor")]
    assert len(monitors) == 3
    # What the Prometheus operator gives to the pods of Prometheus, wherever they run.
    prometheus = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    }
    for monitor in monitors:
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        spec = monitor["spec"]
        part = spec["selector"]["matchLabels"]["app.kubernetes.io/component"]
        (endpoint,) = spec.get("endpoints") or spec["podMetricsEndpoints"]
        assert prometheus in sources_of(policy, ports[part, endpoint["port"]])
    assert prometheus not in sources_of(policy, 8786)
    closed = by_kind(render(values), "NetworkPolicy")
    assert all(prometheus not in sources_of(closed, port) for port in ports.values())
    own = {"networkPolicy": {"prometheus": [], "monitors": [{"podSelector": {}}]}}
    chosen = by_kind(render({**values, **monitoring, **own}), "NetworkPolicy")
    assert {"podSelector": {}} in sources_of(chosen, 8791)
    assert prometheus not in sources_of(chosen, 8791)


@pytest.mark.parametrize("mode", ["deployment", "operator"])
def test_labels_and_annotations_reach_all_pods(mode: str) -> None:
    values = {**MATRIX["operator-everything"], "mode": mode, "podLabels": {"team": "a"}}
    found = metadata_of_pods(render({**values, "podAnnotations": {"b": "c"}}))
    # Scheduler, worker, job, nightly and stream; a job of the operator has a cluster of its own.
    assert len(found) == (5 if mode == "deployment" else 7)
    for metadata in found:
        assert metadata["labels"]["team"] == "a"
        assert metadata["annotations"] == {"b": "c"}


def metadata_of_pods(node: Any) -> list[dict[str, Any]]:
    """Return what stands next to the specification of each pod."""
    if isinstance(node, list):
        return [found for each in node for found in metadata_of_pods(each)]
    if not isinstance(node, dict):
        return []
    own = [node.get("metadata", {})] if "containers" in (node.get("spec") or {}) else []
    return [*own, *(found for each in node.values() for found in metadata_of_pods(each))]


def test_notes_name_the_services_and_jobs() -> None:
    def notes(values: dict[str, Any]) -> str:
        (text,) = (t for file, t in rendered_files(values).items() if file.endswith("NOTES.txt"))
        return text

    assert "service/clusters-daskcluster-scheduler 8786 8787" in notes({"job": JOB})
    assert "tls://localhost:8786 --tls-ca ca.crt" in notes({"tls": TLS})
    assert "job/" not in notes({})
    assert f"daskcluster:{daskcluster.__version__} is in no registry" in notes({})
    assert "in no registry" not in notes({"image": {"repository": "registry.example.com/a"}})
    # The cluster of a job goes with it: there is nothing to forward.
    assert "port-forward" not in notes({"mode": "operator", "job": JOB})
    assert "worker.replicas" not in notes({"mode": "operator", "job": JOB})
    assert "deployment/clusters-daskcluster-stream" in notes({"stream": STREAM})


def test_selectors_find_their_pods() -> None:
    rendered = render(MATRIX["everything"])
    labels = {
        part: by_kind(rendered, "Deployment", part)["spec"]["template"]["metadata"]["labels"]
        for part in ("scheduler", "worker", "stream")
    }
    for part in ("scheduler", "worker", "stream"):
        selector = by_kind(rendered, "Deployment", part)["spec"]["selector"]["matchLabels"]
        assert [p for p, own in labels.items() if selector.items() <= own.items()] == [part]
    service = by_kind(rendered, "Service", "scheduler")["spec"]["selector"]
    assert [p for p, own in labels.items() if service.items() <= own.items()] == ["scheduler"]
    policy = by_kind(rendered, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    assert all(policy.items() <= own.items() for own in labels.values())


def test_tls_reaches_all_roles() -> None:
    for values in ({"tls": TLS, "job": JOB}, {"tls": TLS, "job": JOB, "mode": "operator"}):
        for pod in pods(render(values)):
            variables = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
            assert variables["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "True"
            assert variables["DASK_DISTRIBUTED__COMM__TLS__WORKER__KEY"] == "/tls/tls.key"
            address = variables.get("DASK_SCHEDULER_ADDRESS", "tls://")
            assert address.startswith("tls://")


@pytest.mark.parametrize(
    ("resources", "threads"),
    [
        ({"limits": {"cpu": "4", "memory": "8Gi"}}, "4"),
        ({"limits": {"cpu": "1500m", "memory": "8Gi"}}, "2"),
        ({"limits": {"cpu": 3, "memory": "8Gi"}}, "3"),
        ({"requests": {"cpu": "250m"}, "limits": {"cpu": None, "memory": "8Gi"}}, "1"),
    ],
)
def test_threads_follow_the_limit(resources: dict[str, Any], threads: str) -> None:
    rendered = render({"worker": {"resources": resources}})
    (pod,) = pods([by_kind(rendered, "Deployment", "worker")])
    arguments = pod["containers"][0]["args"]
    assert arguments[arguments.index("--nthreads") + 1] == threads


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mode": "helm"}, ["mode", "deployment", "operator"]),
        ({"worker": {"replica": 3}}, ["replica"]),
        ({"worker": {"replicas": -1}}, ["replicas"]),
        ({"worker": {"resources": {"limits": {"memory": "much"}}}}, ["memory"]),
        ({"worker": {"resources": {"limits": {"memory": None}}}}, ["memory"]),
        ({"job": {"enabled": True}}, ["job.args should be a command"]),
        ({"job": {"enabled": True, "args": ["rm", "-rf"]}}, ["args"]),
        ({"tls": {"enabled": True}}, ["tls.secretName should name the secret"]),
        ({"image": {"digest": "latest"}}, ["digest"]),
        ({"cronJob": {"schedule": "at night"}}, ["schedule"]),
        ({"env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}]}, ["looks like a secret", "envFrom"]),
        ({"metrics": {"interval": 30}}, ["interval"]),
        ({"stream": {"enabled": True}}, ["stream.args should be [stream, SOURCE"]),
        ({"stream": {"args": ["fit"]}}, ["args"]),
        ({"stream": {"stallSeconds": 0}}, ["stallSeconds"]),
        ({"stream": {**STREAM, "args": ["stream", "s3://a/in", "--once"]}}, ["should have --every"]),
        ({"stream": {**STREAM, "args": [*STREAM["args"], "--metrics-port=1"]}}, ["the chart gives them"]),
    ],
)  # fmt: skip
def test_bad_values_are_refused_in_words(values: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  (Helm's own)
        render(values)
    for word in words:
        assert word in str(caught.value)


def test_it_is_strictly_lint_clean() -> None:
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    found = helm.lint(str(CHART), strict=True)
    assert found["errors"] == []
    assert [m for m in found["messages"] if "icon is recommended" not in m["error"]] == []


def test_every_value_is_in_the_schema_and_documented() -> None:
    document = load_script("helm/document.py")
    assert (CHART / "README.md").read_text() == document.readme()
    text = (CHART / "values.yaml").read_text()
    described = {name for name, _, _ in document.described(text)}
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())

    def names(node: dict[str, Any], prefix: str = "") -> set[str]:
        found = set()
        for key, value in node["properties"].items():
            has_own = "properties" in value and "allOf" not in value
            found |= names(value, f"{prefix}{key}.") if has_own else {f"{prefix}{key}"}
        return found

    assert names(schema) - {"global"} == described
