"""Typed access to the fields of a model's document; none of them is trusted unchecked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from daskcluster.errors import InvalidParameterError, ModelFormatError

_SIMPLE = (str, bool, int, float, type(None))
_MOST_DEPTH = 32
_MOST_BITS = 1000


def plain(value: Any) -> Any:
    """Return `value` as plain JSON values (NumPy scalars and arrays, tuples and enums converted).

    Raises
    ------
    InvalidParameterError
        Something in it has no plain form.

    Examples
    --------
    >>> plain({"a": np.float32(0.5), "b": (1, None)})
    {'a': 0.5, 'b': [1, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidParameterError(f"{value} has no place in a saved model; use None or a number.")
    if isinstance(value, str):
        return str(value)  # an enum is written as its value
    if isinstance(value, _SIMPLE):
        return value
    raise InvalidParameterError(
        f"a saved model holds plain values only, not {type(value).__name__}."
    )


def odd_value(value: Any) -> str | None:
    """Return what is odd about plain values that came from a file; None if nothing is.

    Whoever shows, sums or saves them need not expect values nested without end, or numbers that no
    float holds.

    Examples
    --------
    >>> odd_value({"a": [1, 2.5, None, "x"]})
    >>> odd_value({"a": [float("inf")]})
    'a number that is not finite'
    """
    left: list[tuple[Any, int]] = [(value, 0)]
    while left:
        each, depth = left.pop()
        if depth > _MOST_DEPTH:
            return f"values nested deeper than {_MOST_DEPTH}"
        if isinstance(each, dict | list):
            inner = each.values() if isinstance(each, dict) else each
            left += [(one, depth + 1) for one in inner]
        elif isinstance(each, float) and not math.isfinite(each):
            return "a number that is not finite"
        elif isinstance(each, int) and each.bit_length() > _MOST_BITS:
            return "a whole number that no float holds"
    return None


def read_text(body: Mapping[str, Any], name: str) -> str:
    """Return the text `name` of a document. It is shown on terminals, so control characters are refused."""
    value = _read(body, name)
    if not (isinstance(value, str) and value.isprintable()):
        raise _wrong(name, value, "a text of printable characters")
    return value


def read_count(body: Mapping[str, Any], name: str) -> int:
    """Return the whole number >= 0 `name` of a document."""
    value = _read(body, name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise _wrong(name, value, "a whole number >= 0")
    return value


def read_number(body: Mapping[str, Any], name: str) -> float:
    """Return the finite number `name` of a document."""
    value = _read(body, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(name, value, "a finite number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _wrong(name, number, "a finite number")
    return number


def read_mapping(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object `name` of a document."""
    value = _read(body, name)
    if not isinstance(value, dict):
        raise _wrong(name, value, "an object")
    return value


def read_texts(body: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the object `name` of a document whose values are texts, as `read_text` has them."""
    found = read_mapping(body, name)
    if not all(
        isinstance(v, str) and v.isprintable() and k.isprintable() for k, v in found.items()
    ):
        raise _wrong(name, found, "an object of texts of printable characters")
    return found


def read_records(body: Mapping[str, Any], name: str) -> tuple[dict[str, Any], ...]:
    """Return the list of objects `name` of a document."""
    value = _read(body, name)
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise _wrong(name, value, "a list of objects")
    return tuple(value)


def read_names(body: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """Return the list of texts `name` of a document, or None where it is null."""
    value = _read(body, name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise _wrong(name, value, "a list of texts or null")
    return tuple(value)


def _read(body: Mapping[str, Any], name: str) -> Any:
    if name not in body:
        raise ModelFormatError(f"the model's document lacks {name!r}; save the model again.")
    return body[name]


def _wrong(name: str, value: Any, rule: str) -> ModelFormatError:
    return ModelFormatError(
        f"{name!r} in the model's document is {_shown(value)}, should be {rule}; "
        "save the model again."
    )


def _shown(value: Any) -> str:
    # repr of a number with thousands of digits raises; nothing a document says may do that.
    return repr(value)[:40] if isinstance(value, str | float) else f"of type {type(value).__name__}"
