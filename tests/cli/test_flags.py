"""Flags come from one table; bad usage is refused with exit code 2 before anything is imported."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from daskcluster import jobs
from daskcluster.cli.fit import command as fit_command
from daskcluster.cli.main import COMMANDS, main
from daskcluster.cli.options import Size, click_type
from daskcluster.estimators import kmeans
from daskcluster.estimators.initial import METHODS
from daskcluster.parameters import KMEANS, Parameter

OBJECTS = {"engine", "callbacks"}
"""Parameters of the estimator that have no plain value."""


def test_the_table_has_every_parameter_of_the_estimator() -> None:
    signature = inspect.signature(kmeans.KMeans.__init__).parameters
    plain = {name: p.default for name, p in signature.items() if name not in OBJECTS | {"self"}}
    assert {p.name: p.default for p in KMEANS} == plain


def test_the_choices_are_those_of_the_estimator() -> None:
    choices = {p.name: p.choices for p in KMEANS if p.choices}
    assert choices == {
        "init": METHODS,
        "algorithm": kmeans.ALGORITHMS,
        "metric": kmeans.METRICS,
    }


def test_every_parameter_is_a_flag_and_an_argument_of_the_job() -> None:
    flags = {flag for option in fit_command.params for flag in option.opts}
    job = inspect.signature(jobs.fit).parameters
    for parameter in KMEANS:
        assert parameter.flag in flags
        assert parameter.name in job
        if parameter.name != "n_clusters":
            assert job[parameter.name].default == parameter.default


@pytest.mark.parametrize("parameter", KMEANS, ids=lambda p: p.name)
def test_defaults_pass_their_own_flags(parameter: Parameter) -> None:
    if parameter.default is not None:
        text = str(parameter.default)
        assert click_type(parameter).convert(text, None, None) == parameter.default


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(run: Callable[..., Result], name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output
    assert all(option.help for option in command_of(name).params if isinstance(option, click.Option)
               and option.name not in {"output", "n_rows", "n_features", "n_clusters",
                                       "random_state"})  # fmt: skip


def command_of(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("800MB", 800_000_000),
        ("1.5GiB", 3 * 2**29),
        ("2e9", 2 * 10**9),
        ("64 kib", 65536),
        ("7", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "much", "-1GB", "1XB", "0", "1.2.3MB", "GB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size such as"):
        Size().convert(text, None, None)


BAD_USAGE: list[tuple[tuple[str, ...], str]] = [
    (("fit", "rows.npy", "--model", "m"), "Missing option '--n-clusters'"),
    (("fit", "rows.npy", "--n-clusters", "3"), "Missing option '--model'"),
    (("fit", "--n-clusters", "3", "--model", "m"), "Missing argument 'SOURCE'"),
    (("fit", "rows.npy", "--n-clusters", "0", "--model", "m"), "0 is not in the range x>=1"),
    (("fit", "rows.npy", "--n-clusters", "x", "--model", "m"), "'x' is not a valid integer"),
    (("fit", "rows.npy", "--n-clusters", "3", "--model", "m", "--max-iter", "-1"), "range x>=0"),
    (("fit", "rows.npy", "--n-clusters", "3", "--model", "m", "--algorithm", "magic"), "'magic'"),
    (
        ("fit", "rows.npy", "--n-clusters", "3", "--model", "m", "--init", "kmeans++"),
        "'kmeans++' should be one of auto, k-means++, k-means||, afk-mc2, random, or the URL of a saved",
    ),
    (("fit", "rows.npy", "--n-clusters", "3", "--model", "m", "--n-init", "many"), "'many'"),
    (("fit", "rows.npy", "--n-clusters", "3", "--model", "m", "--memory-limit", "lots"), "a size"),
    (
        ("score", "m", "rows.npy", "--scheduler", "tcp://h:1", "--workers", "2"),
        "give one of the two",
    ),
    (("score", "m", "rows.npy", "--scheduler", "tcp://h:1", "--threads", "2"), "leave it out"),
    (("score", "m", "rows.npy", "--storage-option", "anon"), "should be KEY=VALUE"),
    (("predict", "m", "rows.npy"), "Missing option '--output'"),
    (("dance",), "No such command 'dance'"),
    (("fit", "rows.npy", "--detach"), "No such option"),
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    BAD_USAGE,
    ids=lambda a: " ".join(a)[:60] if isinstance(a, tuple) else "",
)
def test_bad_usage(
    run: Callable[..., Result], here: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert [file.name for file in here.iterdir()] == ["rows.npy"]


@pytest.mark.parametrize(
    "option", ["secret=hunter2", "key=hunter2", "client_kwargs.aws_session_token=hunter2"]
)
def test_secrets_do_not_belong_on_a_command_line(run: Callable[..., Result], option: str) -> None:
    result = run("info", "s3://bucket/rows.zarr", "--storage-option", option)
    assert result.exit_code == 2
    assert "looks like a secret" in result.stderr
    assert "AWS_ACCESS_KEY_ID" in result.stderr
    assert "hunter2" not in result.output


def test_storage_options_reach_nested_ones(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    seen: dict[str, Any] = {}

    def is_model(url: str, *, storage_options: Any) -> bool:
        seen.update(storage_options)
        raise OSError("enough")

    monkeypatch.setattr("daskcluster.models.persist.is_model", is_model)
    options = ("anon=true", "endpoint_url=http://h:9", "client_kwargs.region_name=eu-west-1")
    result = run("info", "s3://b/r", *(part for o in options for part in ("--storage-option", o)))
    assert result.exit_code == 1
    assert seen == {
        "anon": True,
        "endpoint_url": "http://h:9",
        "client_kwargs": {"region_name": "eu-west-1"},
    }


def test_help_imports_nothing_but_click() -> None:
    script = (
        "import sys\n"
        "from daskcluster.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "main(['fit', '--help'], standalone_mode=False)\n"
        "heavy = {'numpy', 'dask', 'distributed', 'sklearn', 'numba', 'zarr', 'scipy', 'rich',\n"
        "         'matplotlib', 'pandas', 'fsspec'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_also_a_sub_command_of_dask(here: Path) -> None:
    dask = click.Group("dask")
    dask.add_command(main)
    runner = CliRunner()
    listed = runner.invoke(dask, ["daskcluster", "--help"])
    assert listed.exit_code == 0
    assert "convert" in listed.stdout
    for arguments, code in ((["info", "absent"], 1), (["info"], 2), (["info", "rows.npy"], 0)):
        assert runner.invoke(dask, ["daskcluster", *arguments]).exit_code == code
