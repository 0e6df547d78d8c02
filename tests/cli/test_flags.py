"""Flags come from one table; bad usage is refused with exit code 2 before anything is imported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from daskcluster.cli.main import COMMANDS, main
from daskcluster.cli.options import (
    SIZE,
    AlgorithmCommand,
    click_type,
    given_parameters,
    parameter_options,
)
from daskcluster.errors import InvalidParameterError
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.parameters import Algorithm, Parameter


def cases() -> list[tuple[str, Parameter]]:
    return [
        (f"{name}-{parameter.name}", parameter)
        for name, algorithm in ALGORITHMS.items()
        for parameter in algorithm.parameters.values()
    ]


def test_defaults_pass_their_own_flags() -> None:
    for name, parameter in cases():
        if parameter.default is None:
            continue
        text = parameter.off if parameter.default is False else ""
        value = click_type(parameter).convert(text or str(parameter.default), None, None)
        assert value == parameter.default, name
        assert type(value) is type(parameter.default), name


def is_refused(parameter: Parameter, value: Any) -> bool:
    try:
        click_type(parameter).convert(str(value), None, None)
    except click.BadParameter:
        return True
    return False


def test_flags_refuse_values_outside_the_declared_range() -> None:
    for name, parameter in cases():
        step = 1 if parameter.kind is int else 1e-9
        closed = [(parameter.ge, -step), (parameter.le, step)]
        bad = [edge + beyond for edge, beyond in closed if edge is not None]
        bad += [edge for edge in (parameter.gt, parameter.lt) if edge is not None]
        bad += ["nonsense"] if parameter.choices else []
        for value in bad:
            assert is_refused(parameter, value), (name, value)
        for edge in (parameter.ge, parameter.le):
            if edge is not None:
                assert click_type(parameter).convert(str(edge), None, None) == edge, name


OTHER = Algorithm(
    "daskcluster.estimators.other:Other",
    (
        Parameter("n_clusters", int, 8, "Number of clusters.", ge=1),
        Parameter("max_iter", int, 100, "Updates.", ge=1),
        Parameter("batch_rows", int, "auto", "Rows of a batch.", word="auto", ge=1),
        Parameter("spread", str, False, "How.", choices=("wide",), off="none"),
        Parameter("mix", bool, True, "Mix rows."),
    ),
)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Any]]:
    """Return a function that reads flags where ``other`` is the only algorithm next to k-means."""
    for name in [name for name, entry in ALGORITHMS.items() if entry.class_name != "KMeans"]:
        monkeypatch.delitem(ALGORITHMS, name)
    monkeypatch.setitem(ALGORITHMS, "other", OTHER)
    seen: dict[str, Any] = {}

    @click.command("fit", cls=AlgorithmCommand)
    @parameter_options(required=("n_clusters",))
    def command(**values: Any) -> None:
        seen.update(given_parameters(values))

    def call(*arguments: str) -> tuple[int, Any]:
        seen.clear()
        result = CliRunner().invoke(command, ["--n-clusters", "3", *arguments])
        return result.exit_code, dict(seen) if result.exit_code == 0 and seen else result.output

    return call


def test_only_flags_that_were_given_are_passed_on(given: Any) -> None:
    assert given() == (0, {"algorithm": "auto", "n_clusters": 3})
    assert given("--tol", "0") == (0, {"algorithm": "auto", "n_clusters": 3, "tol": 0.0})
    other = ("--algorithm", "other")
    common = {"algorithm": "other", "n_clusters": 3}
    assert given(*other, "--spread", "none", "--no-mix", "--batch-rows", "auto") == (
        0,
        {**common, "spread": False, "mix": False, "batch_rows": "auto"},
    )
    assert given("--mix", "--spread", "wide", "--batch-rows", "7", *other) == (
        0,
        {**common, "spread": "wide", "mix": True, "batch_rows": 7},
    )


def test_a_value_is_checked_as_the_chosen_algorithm_has_it(given: Any) -> None:
    assert given("--max-iter", "0")[0] == 0
    for arguments in (("--max-iter", "0"), ("--spread", "narrow"), ("--batch-rows", "few")):
        code, output = given("--algorithm", "other", *arguments)
        assert code == 2
        assert f"Invalid value for '{arguments[0]}'" in output


def test_a_flag_that_the_algorithm_lacks_is_bad_usage(given: Any) -> None:
    for algorithm, flags, name in (
        ("lloyd", ("--batch-rows", "7"), "batch_rows"),
        ("other", ("--tol", "0"), "tol"),
    ):
        code, output = given("--algorithm", algorithm, *flags)
        assert code == 2
        with pytest.raises(InvalidParameterError) as caught:
            ALGORITHMS.check(algorithm, [name])
        assert str(caught.value) in " ".join(output.split())


def test_help_says_which_algorithms_have_a_flag(given: Any) -> None:
    _, output = given("--help")
    text = " ".join(output.split())
    parts = re.split("(Clustering|Not with other|Only with other|Options|Algorithms): ", text)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert "[default: 300, 100 for other; >= 0]" in sections["Clustering"]
    assert "moves. [default: 0.0001; >= 0]" in sections["Not with other"]
    assert "Mix rows. [default: --mix]" in sections["Only with other"]
    assert "How. [default: none]" in sections["Only with other"]
    assert "yinyang one bound per row and group of centres" in sections["Algorithms"]


def test_every_command_and_option_explains_itself(run: Callable[..., Result]) -> None:
    plain = {"output", "n_rows", "n_features", "n_clusters", "random_state"}
    for name in COMMANDS:
        assert "Usage:" in run(name, "--help").output
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for option in command.params:
            named = not isinstance(option, click.Option) or option.name in plain or option.help
            assert named, (name, option.name)


def test_sizes_are_numbers_of_bytes_with_a_unit() -> None:
    sizes = {"800MB": 8e8, "1.5GiB": 1.5 * 2**30, "2e9": 2e9, "64 kib": 65536, "7": 7}
    for text, size in sizes.items():
        assert SIZE.convert(text, None, None) == size
    for text in ("", "much", "-1GB", "1XB", "0", "1.2.3MB", "GB"):
        with pytest.raises(click.BadParameter, match="is not a size such as"):
            SIZE.convert(text, None, None)


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
        "'kmeans++' should be one of auto, k-means++, k-means||,",
    ),
    (("fit", "rows.npy", "--n-clusters", "3", "--model", "m", "--n-init", "many"), "'many'"),
    (("fit", "rows.npy", "--n-clusters", "3", "--model", "m", "--memory-limit", "lots"), "a size"),
    (
        ("score", "m", "rows.npy", "--scheduler", "tcp://h:1", "--workers", "2"),
        "give only one of them",
    ),
    (("score", "m", "rows.npy", "--scheduler", "tcp://h:1", "--threads", "2"), "leave it out"),
    (("score", "m", "rows.npy", "--tls-ca", "ca.pem"), "for the scheduler that --scheduler names"),
    (
        ("score", "m", "rows.npy", "--scheduler", "tls://h:1", "--tls-cert", "c.pem"),
        "TLS needs both --tls-ca",
    ),
    (("score", "m", "rows.npy", "--storage-option", "anon"), "should be KEY=VALUE"),
    (("predict", "m", "rows.npy"), "Missing option '--output'"),
    (("dance",), "No such command 'dance'"),
    (("fit", "rows.npy", "--detach-it"), "No such option"),
]


def test_bad_usage(run: Callable[..., Result], here: Path) -> None:
    for arguments, message in BAD_USAGE:
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert message in " ".join(result.stderr.split())
    assert [file.name for file in here.iterdir()] == ["rows.npy"]


def test_secrets_do_not_belong_on_a_command_line(run: Callable[..., Result]) -> None:
    for name in ("secret", "key", "client_kwargs.aws_session_token"):
        result = run("info", "s3://bucket/rows.zarr", "--storage-option", f"{name}=hunter2")
        assert result.exit_code == 2
        assert "looks like a secret" in result.stderr
        assert "AWS_ACCESS_KEY_ID" in result.stderr
        assert "hunter2" not in result.output


def test_storage_options_reach_nested_ones(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    seen: dict[str, Any] = {}

    def is_model(url: str, *, storage_options: Any) -> bool:
        seen.update(storage_options)
        raise OSError("enough")

    monkeypatch.setattr("daskcluster.models.fitted.is_model", is_model)
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
        "heavy = {'numpy', 'dask', 'distributed', 'sklearn', 'numba', 'zarr', 'scipy',\n"
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


def completed(words: str, number: int) -> list[str]:
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "from daskcluster.cli.main import main; main(prog_name='daskcluster')",
        ],
        env={
            **os.environ,
            "_DASKCLUSTER_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(number),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.split()


def test_shells_complete_commands_algorithms_and_paths() -> None:
    assert completed("daskcluster pre", 1) == ["plain,predict"]
    assert "plain,nested" in completed("daskcluster fit --algorithm ne", 3)
    assert completed("daskcluster fit rows", 2) == ["file,rows"]
    assert completed("daskcluster fit x --model mod", 4) == ["file,mod"]


def test_a_quiet_command_prints_json_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(100, 2)))
    flags = ["fit", str(tmp_path / "x.npy"), "-k", "2", "--model", str(tmp_path / "m"), "-q"]
    plain = CliRunner().invoke(main, [*flags, "--progress"])
    assert (plain.exit_code, plain.output) == (0, "")
    found = CliRunner().invoke(main, [*flags, "--json", "--overwrite"])
    assert json.loads(found.stdout)["n_rows"] == 100
