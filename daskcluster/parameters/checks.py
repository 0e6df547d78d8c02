"""Checks of arguments against the declarations of parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from daskcluster.errors import InvalidParameterError, WrongTypeError
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter


def check_arguments(algorithm: Algorithm, given: Mapping[str, Any]) -> None:
    """Check the parameters that were `given` under the name of an algorithm; see `check_value`."""
    declared = {parameter.name: parameter for parameter in algorithm.table}
    for name, value in algorithm.arguments(given).items():
        check_value(algorithm.class_name, declared[name], value)


def check_value(owner: str, parameter: Parameter, value: Any) -> None:
    """Refuse a value of a parameter of `owner` that its declaration does not allow.

    Raises
    ------
    WrongTypeError
        The value is of another type.
    InvalidParameterError
        It is out of range, or no choice.

    Examples
    --------
    >>> check_value("KMeans", Parameter("n_init", int, "auto", "Starts.", word="auto", ge=1), 0)
    Traceback (most recent call last):
    daskcluster.errors.InvalidParameterError: The 'n_init' parameter of KMeans must be an int >= 1 or \
'auto'. Got 0 instead.
    """
    if not parameter.is_plain or _is_allowed_word(parameter, value) or _is_also(parameter, value):
        return
    is_of_kind = _KINDS[parameter.kind](value)
    if not (is_of_kind and _in_range(parameter, value)):
        kind = InvalidParameterError if is_of_kind else WrongTypeError
        raise kind(
            f"The {parameter.name!r} parameter of {owner} must be {parameter.rule}. Got {value!r} instead."
        )


def _is_allowed_word(parameter: Parameter, value: Any) -> bool:
    if value is None:
        return parameter.takes_none
    if _is_bool(value):
        return bool(parameter.off) and not value
    return isinstance(value, str) and bool(parameter.word) and value == parameter.word


def _is_also(parameter: Parameter, value: Any) -> bool:
    return any(
        _ALSO[kind](value) if kind in _ALSO else not _KINDS[parameter.kind](value)
        for kind in parameter.also
    )


def _in_range(parameter: Parameter, value: Any) -> bool:
    if parameter.kind is str:
        return not parameter.choices or bool(parameter.other) or value in parameter.choices
    return (
        -math.inf < value < math.inf
        and (parameter.ge is None or value >= parameter.ge)
        and (parameter.gt is None or value > parameter.gt)
        and (parameter.le is None or value <= parameter.le)
        and (parameter.lt is None or value < parameter.lt)
    )


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


_KINDS: Mapping[type, Callable[[Any], bool]] = {
    int: lambda value: isinstance(value, (int, np.integer)) and not _is_bool(value),
    float: lambda value: (
        isinstance(value, (int, float, np.integer, np.floating)) and not _is_bool(value)
    ),
    str: lambda value: isinstance(value, str),
    bool: _is_bool,
}
_ALSO: Mapping[str, Callable[[Any], bool]] = {"bool": _is_bool, "callable": callable}
"""The part of `Parameter.also` that can be checked at once."""


_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(s|min|m|h|d|w)\s*", re.IGNORECASE)


def seconds_of(text: str) -> float | None:
    """Return a time such as ``"90s"``, ``"10m"``, ``"6h"``, ``"7d"`` in seconds; None if it is none.

    Examples
    --------
    >>> seconds_of("1.5h"), seconds_of("200")
    (5400.0, None)
    """
    match = _DURATION.fullmatch(text)
    return float(match.group(1)) * _UNITS[match.group(2).lower()] if match else None
