"""Parameters are declared once: signatures, docstrings and checks against the declarations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster import jobs
from daskcluster.errors import InvalidParameterError, WrongTypeError
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.parameters import Parameter
from daskcluster.parameters.checks import check_value
from tests.methods.declared import check_declaration, described, estimators


def plain_parameters() -> list[tuple[Any, Parameter]]:
    return [
        (estimator, parameter)
        for estimator in estimators()
        for parameter in estimator._parameters
        if parameter.is_plain
    ]


def test_every_class_of_the_catalogue_declares_its_parameters() -> None:
    assert {entry.class_name for entry in ALGORITHMS.values()} < {e.__name__ for e in estimators()}
    for each in estimators():
        assert "_parameters" in vars(each)
    for entry in ALGORITHMS.values():
        assert entry.table in [each._parameters for each in estimators()]


@pytest.mark.parametrize("estimator", estimators(), ids=lambda each: each.__name__)
def test_signature_and_docstring_have_what_is_declared(estimator: Any) -> None:
    check_declaration(estimator)


def bad_values(parameter: Parameter) -> list[Any]:
    """Return values just outside of what is declared, and one of a wrong type."""
    found: list[Any] = []
    if parameter.kind in (int, float):
        step = 1 if parameter.kind is int else 1e-9
        found += [parameter.ge - step] if parameter.ge is not None else []
        found += [parameter.le + step] if parameter.le is not None else []
        found += [edge for edge in (parameter.gt, parameter.lt) if edge is not None]
        found += [math.nan, math.inf] if parameter.kind is float else []
    if not parameter.also:
        found += [[], b"1", "nonsense" if not parameter.other else 3]
        found += [] if parameter.takes_none else [None]
        found += [True] if parameter.kind is not bool else [1]
        found += [2.5] if parameter.kind is int else []
    return found


def good_values(parameter: Parameter) -> list[Any]:
    found: list[Any] = [*parameter.choices, parameter.default]
    found += [10**400] if parameter.name == "random_state" else []
    found += [parameter.word] if parameter.word else []
    found += [None, False, np.bool_(False)] if parameter.off else []
    found += [np.bool_(True)] if parameter.kind is bool else []
    if parameter.kind in (int, float):
        numpy = np.int64 if parameter.kind is int else np.float64
        found += [edge for edge in (parameter.ge, parameter.le) if edge is not None]
        found += [numpy(edge) for edge in (parameter.ge, parameter.le) if edge is not None]
    return found


def test_estimators_refuse_values_that_are_not_declared() -> None:
    for estimator, parameter in plain_parameters():
        for value in bad_values(parameter):
            text = "nothing"
            try:
                estimator(**{parameter.name: value}).check_parameters()
            except InvalidParameterError as error:
                text = str(error)
            assert text == (
                f"The {parameter.name!r} parameter of {estimator.__name__} must be {parameter.rule}. "
                f"Got {value!r} instead."
            )


def test_declared_values_are_allowed() -> None:
    for estimator, parameter in plain_parameters():
        for value in good_values(parameter):
            check_value(estimator.__name__, parameter, value)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_name_has_one_default_range_and_type_but_where_a_method_says_otherwise(
    name: str,
) -> None:
    """A range is a matter of the name: it may not differ between methods by accident."""
    ranges = {"n_neighbors", "learning_rate", "truncation", "coreset_size"}
    first = {p.name: p for p in ALGORITHMS["auto"].table}
    for p in ALGORITHMS[name].table:
        if p.name in first and p.name not in ranges:
            other = first[p.name]
            assert (p.kind, p.ge, p.gt, p.le, p.lt) == (
                other.kind, other.ge, other.gt, other.le, other.lt,
            )  # fmt: skip


def test_wrong_types_are_bad_values_as_well() -> None:
    size = Parameter("size", int, 8, "Rows.", ge=1)
    with pytest.raises(WrongTypeError, match=r"an int >= 1\. Got 'x' instead"):
        check_value("Any", size, "x")
    assert issubclass(WrongTypeError, ValueError)
    assert issubclass(WrongTypeError, TypeError)


def test_a_class_of_ones_own_may_have_fewer_parameters() -> None:
    class Mine(dc.KMeans):
        def __init__(self, n_clusters: int = 2) -> None:
            super().__init__(n_clusters, max_iter=-1)

    with pytest.raises(InvalidParameterError, match="'max_iter' parameter of Mine"):
        Mine().fit(np.zeros((4, 2)))


@pytest.mark.parametrize("given", [{"max_time": 0}, {"n_clusters": 0}, {"init": "nonsense"}])
def test_jobs_refuse_before_they_begin(given: dict[str, Any], tmp_path: Path) -> None:
    arguments = {"n_clusters": 2, **given}
    if "init" in given:
        arguments |= {"algorithm": "hierarchical"}
    with pytest.raises(InvalidParameterError, match=f"The {next(iter(given))!r} parameter of"):
        jobs.fit("no-such-rows", model=str(tmp_path / "m"), name="job", **arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("parameter", "words", "rule"),
    [
        (Parameter("a", float, 0.5, "", ge=0, lt=1), "float in [0, 1), default 0.5",
         "a float in [0, 1)"),
        (Parameter("a", float, 0.5, "", gt=0, le=1), "float in (0, 1], default 0.5",
         "a float in (0, 1]"),
        (Parameter("a", int, None, "", le=3), "int <= 3, optional",
         "an int <= 3 or None"),
        (Parameter("a", int, 1, "", lt=3, off="none"), "int < 3, None or False, default 1",
         "an int < 3 or None or False"),
        (Parameter("a", str, "b", "", ("b", "c"), "the URL of a thing"), '{"b", "c"} or URL, default "b"',
         "a str among {'b', 'c'} or the URL of a thing"),
    ],
)  # fmt: skip
def test_a_declaration_in_words(parameter: Parameter, words: str, rule: str) -> None:
    assert (described(parameter), parameter.rule) == (words, rule)
