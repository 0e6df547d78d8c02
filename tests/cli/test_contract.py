"""Flags, exit codes and JSON keys of all commands are those on record.

``python -m tests.cli.test_contract`` records them anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from daskcluster.cli.main import main

RECORD = Path(__file__).with_name("commands.json")
RUNS = (
    "convert rows.npy rows.zarr",
    "shuffle rows.npy mixed.zarr --random-state 0",
    "shuffle rows.npy again.zarr --dry-run",
    "info rows.zarr",
    "fit rows.zarr -k 3 --model m --labels l --random-state 0",
    "fit rows.zarr -k 3 --model m",
    "fit rows.zarr -k 3 --model n --dry-run",
    "fit rows.zarr",
    "info m",
    "predict m rows.zarr --output p --distances",
    "predict m rows.zarr --output p --resume --level x",
    "score m rows.zarr --metrics all",
    "coreset rows.zarr --size 20 --output c --quality 2",
    "coreset rows.zarr --size 20 --output d --dry-run",
    "sample m rows.zarr --size 20 --output s",
    "sample m rows.zarr --size 20 --output t --dry-run",
    "dedup rows.zarr --output g",
    "dedup rows.zarr --output h --dry-run",
    "dedup rows.zarr --output h --dry-run --memory-limit 1MB",
    "partition rows.zarr --output q --target-size 100",
    "partition rows.zarr --output r --dry-run",
    "sweep rows.zarr -k 2:4 --seeds 1 --output table.json",
    "sweep rows.zarr --detach",
    "stream rows.zarr --state state --n-clusters 3 --once",
    "stream rows.zarr --state state --n-clusters 3 --once --every 3s",
    "stream-status state",
    "report m --data rows.zarr --output m.json",
    "demo --rows 5000 --workers 0",
    "jobs list",
)


def commands(group: click.Group = main) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", each) for inner, each in commands(command))
        else:
            yield name, command


def flags() -> dict[str, str]:
    """Return the commands that have a parameter, by its names, type and default."""
    found: dict[str, list[str]] = {}
    for name, command in commands():
        for each in command.params:
            kind = getattr(each.type, "choices", None) or each.type.name
            names = " ".join([*each.opts, *each.secondary_opts])
            facts = [names, f"{kind}", f"{each.to_info_dict()['default']!r}"]
            known = ("is_flag", "multiple", "required")
            facts += [fact for fact in known if getattr(each, fact, False)]
            found.setdefault(", ".join(facts), []).append(name)
    return {line: ", ".join(sorted(names)) for line, names in sorted(found.items())}


def outcome(line: str) -> list[Any]:
    """Return the exit code of a run, and the keys of its JSON, with those of objects in it."""
    words = line.split()
    is_json = words[0] != "stream"
    done = CliRunner().invoke(main, [*words, *(["--json"] if is_json else [])])
    lines = done.stdout.splitlines()
    found = json.loads(lines[-1]) if lines and done.exit_code == 0 else {}
    keys = [
        f"{name}: {' '.join(value)}" if isinstance(value, dict) else name
        for name, value in found.items()
    ]
    return [done.exit_code, ", ".join(sorted(keys))]


def contract() -> dict[str, Any]:
    """Return what is to be compared; runs in the current folder."""
    rng = np.random.default_rng(0)
    np.save("rows.npy", np.round(rng.normal(size=(300, 2)), 4))
    return {"flags": flags(), "runs": {line: outcome(line) for line in RUNS}}


def test_commands_are_as_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found, recorded = json.loads(json.dumps(contract())), json.loads(RECORD.read_text())
    for what, before in recorded.items():
        now = found[what]
        changed = {
            name: (before.get(name), now.get(name))
            for name in {**before, **now}
            if before.get(name) != now.get(name)
        }
        assert not changed, (what, changed)


if __name__ == "__main__":
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        RECORD.write_text(json.dumps(contract(), indent=1) + "\n")
