"""The catalogue against the estimators: names, defaults, and what is said of unknown parameters."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest

from daskcluster.errors import InvalidParameterError
from daskcluster.methods.catalogue import (
    ALGORITHMS,
    estimator_path,
)
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter

OBJECTS = {"engine", "callbacks"}
"""Constructor arguments that have no plain value, of every estimator."""


def class_of(algorithm: Algorithm) -> Any:
    return resolve_name(algorithm.estimator)


def defaults_of(algorithm: Algorithm) -> dict[str, Any]:
    signature = inspect.signature(class_of(algorithm)).parameters
    return {name: p.default for name, p in signature.items()}


by_name = pytest.mark.parametrize("name", ALGORITHMS)


@by_name
def test_the_table_has_every_parameter_with_its_default(name: str) -> None:
    algorithm = ALGORITHMS[name]
    table = {p.name: p.default for p in algorithm.table}
    assert table == defaults_of(algorithm)


@by_name
def test_objects_are_arguments_of_every_estimator(name: str) -> None:
    assert set(inspect.signature(class_of(ALGORITHMS[name])).parameters) >= OBJECTS


@by_name
def test_what_a_name_decides_is_an_argument_and_nobody_may_give_it(name: str) -> None:
    algorithm = ALGORITHMS[name]
    assert set(algorithm.fixed) <= set(defaults_of(algorithm))
    assert set(algorithm.defaults) <= set(algorithm.parameters)
    assert not {algorithm.argument(p) for p in algorithm.parameters} & set(algorithm.fixed)
    estimator = class_of(algorithm)(**algorithm.arguments({}))
    assert {k: v for k, v in estimator.get_params(deep=False).items() if k in algorithm.fixed} == (
        dict(algorithm.fixed)
    )


@by_name
def test_every_algorithm_has_a_number_of_clusters_by_the_same_name(name: str) -> None:
    assert "n_clusters" in ALGORITHMS[name].parameters


def every_parameter() -> list[tuple[str, Parameter]]:
    return [
        (f"{name}-{p.name}", p)
        for name, algorithm in ALGORITHMS.items()
        for p in algorithm.parameters.values()
    ]


def test_parameters_explain_themselves() -> None:
    for name, parameter in every_parameter():
        assert parameter.help.endswith("."), name
        assert parameter.kind in (int, float, str, bool), name
        if isinstance(parameter.default, str):
            assert parameter.default in {*parameter.choices, parameter.word}, name


@by_name
def test_the_estimator_refuses_what_is_no_choice(name: str) -> None:
    entry = ALGORITHMS[name]
    for parameter in entry.parameters.values():
        if parameter.choices and not parameter.other:
            given = {entry.argument(parameter.name): "nonsense"}
            listed = ", ".join(map(repr, parameter.choices))
            with pytest.raises(
                InvalidParameterError, match=re.escape(f"must be a str among {{{listed}}}")
            ):
                class_of(entry)(**entry.fixed, **given).fit(np.zeros((9, 1)))


@by_name
def test_a_plan_is_a_function(name: str) -> None:
    plan = ALGORITHMS[name].plan
    assert not plan or callable(resolve_name(plan))


def test_arguments_are_renamed_and_completed() -> None:
    table = (Parameter("n_clusters", int, 8, "Many."), Parameter("size", int, None, "Some."))
    algorithm = Algorithm(
        "m:Mixture",
        table,
        fixed={"kind": "full"},
        defaults={"size": 7},
        rename={"n_clusters": "n_components"},
    )
    assert algorithm.arguments({"n_clusters": 3}) == {"n_components": 3, "size": 7, "kind": "full"}
    assert algorithm.arguments({"size": 9})["size"] == 9


def test_what_is_unknown_is_reported_with_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (Parameter("n_clusters", int, 8, "Many."), Parameter("batch_rows", int, 1, "Some."))
    monkeypatch.setitem(ALGORITHMS, "other", Algorithm("m:Other", table))
    with pytest.raises(InvalidParameterError) as caught:
        ALGORITHMS.check("lloyd", ["batch_rows"])
    text = str(caught.value)
    assert text.startswith("algorithm='lloyd' has no parameter 'batch_rows'")
    assert "'batch_rows' is a parameter of other." in text
    assert "The parameters of 'lloyd' are n_clusters, init, n_init, max_iter" in text
    assert ALGORITHMS.owners("batch_rows") == ("other",)
    with pytest.raises(InvalidParameterError, match="no algorithm has it; did you mean 'max_iter'"):
        ALGORITHMS.check("lloyd", ["max_iters"])
    with pytest.raises(InvalidParameterError, match=r"no algorithm has it\. The"):
        ALGORITHMS.check("lloyd", ["xyz"])
    # Decided by the name, not a parameter next to it.
    with pytest.raises(InvalidParameterError, match="has no parameter 'algorithm'"):
        ALGORITHMS.check("lloyd", ["algorithm"])


def test_unknown_algorithms() -> None:
    with pytest.raises(InvalidParameterError, match=r"'loyd' should be one of auto.*mean 'lloyd'"):
        ALGORITHMS.find("loyd")


def test_estimators_by_the_name_of_their_class() -> None:
    for algorithm in ALGORITHMS.values():
        path = estimator_path(algorithm.class_name)
        assert path == algorithm.estimator
        assert class_of(algorithm).__name__ == algorithm.class_name
    assert estimator_path("os") is None


def test_the_catalogue_imports_nothing_heavy() -> None:
    script = (
        "import sys\nimport daskcluster.methods.catalogue\n"
        "heavy = {'numpy', 'dask', 'sklearn', 'numba', 'zarr', 'scipy', 'click'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
