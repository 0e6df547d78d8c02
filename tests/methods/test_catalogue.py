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


def class_of(algorithm: Algorithm) -> Any:
    return resolve_name(algorithm.estimator)


def defaults_of(algorithm: Algorithm) -> dict[str, Any]:
    signature = inspect.signature(class_of(algorithm)).parameters
    return {name: p.default for name, p in signature.items()}


def test_the_table_has_every_parameter_with_its_default() -> None:
    for name, algorithm in ALGORITHMS.items():
        assert {p.name: p.default for p in algorithm.table} == defaults_of(algorithm), name
        assert "n_clusters" in algorithm.parameters, name
        assert callable(resolve_name(algorithm.plan or "builtins:print")), name


def test_values_that_an_algorithm_fixes_are_no_parameters() -> None:
    for name, algorithm in ALGORITHMS.items():
        assert set(algorithm.defaults) <= set(algorithm.parameters), name
        assert not {algorithm.argument(p) for p in algorithm.parameters} & set(algorithm.fixed)
        values = class_of(algorithm)(**algorithm.arguments({})).get_params(deep=False)
        assert values.items() >= algorithm.fixed.items(), name


def every_parameter() -> list[tuple[Algorithm, Parameter]]:
    return [
        (algorithm, p) for algorithm in ALGORITHMS.values() for p in algorithm.parameters.values()
    ]


def test_parameters_explain_themselves() -> None:
    for algorithm, parameter in every_parameter():
        assert parameter.help.endswith("."), (algorithm, parameter)
        if isinstance(parameter.default, str):
            assert parameter.default in {*parameter.choices, parameter.word}, algorithm


def test_a_fit_refuses_values_that_are_no_choice() -> None:
    for entry, parameter in every_parameter():
        if parameter.choices and not parameter.other:
            given = {entry.argument(parameter.name): "nonsense"}
            listed = ", ".join(map(repr, parameter.choices))
            with pytest.raises(
                InvalidParameterError, match=re.escape(f"must be a str among {{{listed}}}")
            ):
                class_of(entry)(**entry.fixed, **given).fit(np.zeros((9, 1)))


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


def test_unknown_parameters_are_reported_with_the_known_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
