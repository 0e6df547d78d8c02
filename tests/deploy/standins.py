"""Programs that stand in for `helm`, `kubectl` and `docker`: what a cluster would run, they run here.

Charts are rendered by Helm's own engine, their containers are processes of this machine that start by the
image's entry point, secrets are files. What a scheduler in the cluster listens on is a port of this host.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.chart import ROOT, Container, by_kind, pods, render

ENTRYPOINT = str(ROOT / "deploy" / "docker" / "entrypoint.sh")
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
PLACE = ("AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL")
PROGRAMS = ("helm", "kubectl", "docker")
_FOLDER, _PORT = "STANDIN_FOLDER", "STANDIN_PORT"
_OWN = {  # several containers have one address here
    "scheduler": ("--dashboard-address", ":0"),
    "worker": ("--worker-port", "0", "--nanny-port", "0", "--dashboard-address", ":0"),
}


def install(programs: Path, folder: Path, port: int) -> dict[str, str]:
    """Put the programs next to others, and return the variables that they need."""
    folder.mkdir()
    for name in PROGRAMS:
        file = programs / name
        file.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -m tests.deploy.standins {name} "$@"\n'
        )
        file.chmod(0o755)
    return {_FOLDER: str(folder), _PORT: str(port), "DASKCLUSTER_WARM_UP": "0"}


def stop_all(folder: Path) -> None:
    """Stop all containers that have not ended."""
    for file in folder.glob("*.pid"):
        if not file.with_suffix(".code").exists():
            with suppress(ProcessLookupError):
                os.killpg(int(file.read_text()), signal.SIGKILL)
        file.unlink()


class Containers:
    """What runs: a process, its log and its exit code for each name."""

    def __init__(self) -> None:
        self.folder = Path(os.environ[_FOLDER])
        self.scheduler = f"127.0.0.1:{os.environ[_PORT]}"

    def start(self, name: str, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start a container, unless it runs already."""
        if (self.folder / f"{name}.pid").exists():
            return
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                ["sh", "-c", '"$@"; echo $? > "$0"', str(self.folder / f"{name}.code"), ENTRYPOINT,
                 *arguments],
                env={**_without_bucket(), **variables}, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        (self.folder / f"{name}.pid").write_text(str(process.pid))

    def role(self, name: str, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start a scheduler or worker next to others on one address."""
        own = list(_OWN.get(arguments[0], ()))
        if arguments[0] == "scheduler":
            own += ["--port", os.environ[_PORT]]
        self.start(name, [*arguments, *own], variables)

    def code(self, name: str, seconds: float = 240.0) -> int:
        """Return the exit code of a container, waiting for its end."""
        file, deadline = self.folder / f"{name}.code", time.monotonic() + seconds
        while not (file.exists() and file.read_text()):
            if time.monotonic() > deadline:
                sys.exit(f"{name} has not ended:\n{self.log(name)}")
            time.sleep(0.2)
        return int(file.read_text())

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def images(self, where: str, *more: str) -> list[str]:
        """Return the images that were built here or pushed to a registry, after adding more."""
        file = self.folder / f"{where}.json"
        found: list[str] = json.loads(file.read_text()) if file.exists() else []
        file.write_text(json.dumps([*found, *more]))
        return [*found, *more]

    def secret(self, name: str) -> Path:
        return self.folder / "secrets" / name


def _without_bucket() -> dict[str, str]:
    # Containers have what they are given of a bucket, and not what the shell that starts them has.
    return {name: value for name, value in os.environ.items() if name not in CREDENTIALS + PLACE}


# -- kubectl and helm: a release is a list of manifests -------------------------------------------------


def helm(containers: Containers, words: Sequence[str]) -> int:
    """``install``, ``upgrade``, ``rollback`` and ``uninstall`` of one release."""
    parser = argparse.ArgumentParser(prog="helm")
    parser.add_argument("verb", choices=["install", "upgrade", "rollback", "uninstall"])
    parser.add_argument("release")
    parser.add_argument("chart", nargs="?")
    parser.add_argument("--values", action="append", default=[])
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--reuse-values", "--reset-then-reuse-values", action="store_true")
    given = parser.parse_args(words)
    kept = containers.folder / f"{given.release}.release"
    if given.verb == "uninstall":
        stop_all(containers.folder)
        kept.unlink()
        return 0
    revisions: list[dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else []
    assert bool(revisions) == (given.verb != "install"), f"{given.release}: {len(revisions)}"
    if given.verb == "rollback":
        return _released(containers, kept, revisions, revisions[int(given.chart) - 1])
    assert (Path(given.chart) / "Chart.yaml").exists()
    values = revisions[-1]["values"] if given.reuse_values else {}
    for file in given.values:
        values = _merged(values, yaml.safe_load(Path(file).read_text()))
    for text in given.set:
        name, _, value = text.partition("=")
        node: Any = yaml.safe_load(value)
        for key in reversed(name.split(".")):
            node = {key: node}
        values = _merged(values, node)
    manifests = render(values, given.release, len(revisions) + 1)
    return _released(containers, kept, revisions, {"values": values, "manifests": manifests})


def _released(
    containers: Containers, kept: Path, revisions: list[dict[str, Any]], new: dict[str, Any]
) -> int:
    manifests = new["manifests"]
    if revisions:  # Helm deletes what the new revision does not have
        names = [each["metadata"]["name"] for each in manifests]
        for old in revisions[-1]["manifests"]:
            name = old["metadata"]["name"]
            ended = (containers.folder / f"{name}.code").exists()
            assert old["kind"] != "Job" or name in names or ended, f"{name} still runs"
    for pod in pods(manifests):
        for container in pod["containers"]:
            assert container["image"] in containers.images("pushed"), container["image"]
    kept.write_text(json.dumps([*revisions, new]))
    service = by_kind(manifests, "Service")["metadata"]["name"]
    account = by_kind(manifests, "ServiceAccount")["metadata"]
    # What a cloud gives to pods of a service account that has an identity.
    identity = dict.fromkeys(CREDENTIALS, "identity") | {name: os.environ[name] for name in PLACE}
    identity = identity if "annotations" in account else {}
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "Job"):
            _apply(containers, manifest, f"{service}:8786", identity)
    return 0


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(one)
    for key, value in other.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = _merged(found[key], value) if both else value
    return found


def _apply(
    containers: Containers, manifest: Mapping[str, Any], service: str, identity: Mapping[str, str]
) -> None:
    """Run the pods of a workload, each with the secrets that it refers to."""
    (pod,) = pods([manifest])
    name, tls = manifest["metadata"]["name"], containers.folder
    for volume in pod["volumes"]:
        if "secret" in volume:
            tls = containers.secret(volume["secret"]["secretName"])
            assert tls.is_dir(), f"no secret {tls.name}"
    secrets = dict(identity)
    for source in pod["containers"][0].get("envFrom", []):
        for file in containers.secret(source["secretRef"]["name"]).iterdir():
            secrets[file.name] = file.read_text()
    replaced = {
        service: containers.scheduler,
        "/tls/": f"{tls}/",
        "/scratch": str(containers.folder / "scratch"),
    }
    for number in range(manifest["spec"].get("replicas", 1)):
        one = f"{name}-{number}" if manifest["kind"] == "Deployment" else name
        container = Container(pod, replaced, one)
        containers.role(one, container.arguments, {**secrets, **container.variables})


def kubectl(containers: Containers, words: Sequence[str]) -> int:
    """``create secret generic``, ``wait`` and ``logs`` of a job, ``port-forward``, ``rollout status``."""
    verb, *rest = words[1:] if words[0] == "rollout" else words
    names = [word for word in rest if not word.startswith("--")]
    if verb == "create":
        assert names[:2] == ["secret", "generic"], words
        folder = containers.secret(names[2])
        folder.mkdir(parents=True)
        for word in rest:
            option, _, pair = word.partition("=")
            key, _, value = pair.partition("=")
            if option == "--from-literal":
                (folder / key).write_text(value)
            elif option == "--from-file":
                (folder / key).write_bytes(Path(value).read_bytes())
        return 0
    kind, _, name = names[0].partition("/")
    found = next(
        manifest
        for file in containers.folder.glob("*.release")
        for manifest in json.loads(file.read_text())[-1]["manifests"]
        if (manifest["kind"].lower(), manifest["metadata"]["name"]) == (kind, name)
    )
    if verb == "port-forward":
        offered = {str(port["port"]) for port in found["spec"]["ports"]}
        wanted = {os.environ[_PORT]: "8786"}  # the port that this host has for it
        assert {wanted.get(port, port) for port in names[1:]} <= offered, (names, offered)
        return 0
    if verb == "status":
        assert kind == "deployment", words
        return 0
    code = containers.code(name)
    if verb == "logs":
        sys.stdout.write(containers.log(name))
        return 0
    assert verb == "wait", words
    if code:
        sys.stderr.write(containers.log(name))
    return code


# -- docker: images are names; with compose, a service is a container -------------------------------------


def docker(containers: Containers, words: Sequence[str]) -> int:
    """``build``, ``tag`` and ``push``, and ``compose``."""
    return _compose(containers, words[1:]) if words[0] == "compose" else _image(containers, words)


def _image(containers: Containers, words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="docker")
    parser.add_argument("verb", choices=["build", "tag", "push"])
    parser.add_argument("names", nargs="+")
    parser.add_argument("--file")
    parser.add_argument("--tag")
    given = parser.parse_args(words)
    if given.verb == "build":
        assert (Path(given.names[0]) / given.file).exists()
        containers.images("built", given.tag)
        return 0
    assert given.names[0] in containers.images("built"), given.names
    containers.images({"tag": "built", "push": "pushed"}[given.verb], given.names[-1])
    return 0


def _compose(containers: Containers, words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="docker compose")
    parser.add_argument("--file", required=True)
    parser.add_argument("verb", choices=["up", "run", "down"])
    given, rest = parser.parse_known_args(words)
    services = yaml.safe_load(Path(given.file).read_text())["services"]
    if given.verb == "down":
        stop_all(containers.folder)
        return 0
    words = [word for word in rest if word not in ("--detach", "--rm")]
    chosen = words if given.verb == "up" else words[:1]
    for name in chosen:
        service = services[name]
        assert interpolated(service["image"], os.environ) in containers.images("built")
        user = int(interpolated(service["user"], os.environ).partition(":")[0])
        for volume in service["volumes"]:
            if isinstance(volume, dict):
                folder = Path(interpolated(volume["source"], os.environ))
                assert may_write(folder, user), f"user {user} cannot write to {folder}"
        arguments = service.get("command", []) if given.verb == "up" else words[1:]
        texts = {
            name: os.environ.get(name, "") if text is None else text  # without a value: the shell's
            for name, text in service["environment"].items()
        } | dict(enumerate(arguments))
        mapped = {key: _on_this_host(str(text), containers) for key, text in texts.items() if text}
        variables = {str(key): text for key, text in mapped.items() if isinstance(key, str)}
        arguments = [text for key, text in mapped.items() if isinstance(key, int)]
        if given.verb == "run":
            containers.start("cli", arguments, variables)
            code = containers.code("cli")
            sys.stdout.write(containers.log("cli"))
            return code
        for number in range(2 if "scale" in service else 1):
            containers.role(f"{name}-{number}", arguments, variables)
    return 0


def interpolated(text: str, environment: Mapping[str, str]) -> str:
    """Return a text of a compose file with its variables, or their defaults."""
    return re.sub(
        r"\$\{(\w+):-([^}]*)\}", lambda match: environment.get(match[1]) or match[2], text
    )


def may_write(folder: Path, user: int) -> bool:
    """Return whether a process without capabilities may write to a folder; groups do not count."""
    found = folder.stat()
    return bool(found.st_mode & (stat.S_IWUSR if found.st_uid == user else stat.S_IWOTH))


def _on_this_host(text: str, containers: Containers) -> str:
    for port in ("8786", os.environ[_PORT]):
        text = text.replace(f"scheduler:{port}", containers.scheduler)
    return text.replace("/data/", f"{os.environ.get('DATA', './data')}/")


if __name__ == "__main__":
    run = {"helm": helm, "kubectl": kubectl, "docker": docker}[sys.argv[1]]
    sys.exit(run(Containers(), sys.argv[2:]))
