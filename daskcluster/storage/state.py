"""Convert the state of a fit, a dataclass, to a document and back.

A state is a dataclass of numbers, texts, enums of texts, arrays, lists of records, and nested dataclasses;
any of these may be None if its annotation allows it. Arrays, and long lists of records (see
`daskcluster.storage.arrays`), become arrays of the document, named by the path of fields
(``best_centres``). Everything else goes into the body. Reading checks the values against the annotations,
and the arrays against given shapes.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from daskcluster.errors import ModelFormatError
from daskcluster.storage.arrays import records_of, table_of
from daskcluster.storage.document import Document, read_mapping, read_records, read_text

S = TypeVar("S")

_SAFE = 1 << 53
"""Larger integers are written as texts, since other JSON readers would round them."""
_WHOLE = re.compile(r"-?[0-9]{1,24}")
_LISTS = (list, Sequence)
_NOT_FINITE = ("inf", "-inf", "nan")
"""JSON does not have these numbers, so they are written as texts."""

Shapes = Mapping[str, tuple[int | None, ...]]
"""Shapes of arrays by their names in a document; None stands for any length."""


def document_of(state: Any) -> Document:
    """Return a state as a document, of the kind that `stored_kind` returns.

    Parameters
    ----------
    state : dataclass
        Its arrays must be float32, float64 or int64, have one or two axes, and not be empty.

    Examples
    --------
    >>> import numpy as np
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Walk:
    ...     step: int
    ...     centres: np.ndarray
    ...     least: float = math.inf
    >>> document = document_of(Walk(3, np.zeros((2, 1))))
    >>> document.kind, document.body, list(document.arrays)
    ('Walk', {'step': 3, 'centres': 'array', 'least': 'inf'}, ['centres'])
    """
    arrays: dict[str, np.ndarray] = {}
    return Document(stored_kind(type(state)), _body(state, "", arrays), arrays)


def state_of(kind: type[S], document: Document, shapes: Shapes) -> S:
    """Return the state of class `kind` that a document describes.

    A document of an earlier version may lack fields that have defaults. If more has changed, the class has
    a static method ``upgrade(document)``, which returns the document as this version writes it.

    Parameters
    ----------
    kind : type
        A dataclass.
    document : Document
    shapes : mapping of str to tuple of int
        Shapes of all arrays that it may have.

    Raises
    ------
    ModelFormatError
        The document does not describe such a state.
    """
    if document.kind != stored_kind(kind):
        raise ModelFormatError(f"it is of kind {document.kind[:40]!r}, not {stored_kind(kind)!r}.")
    document = getattr(kind, "upgrade", lambda same: same)(document)
    tables = set(_tables(kind, ""))
    for name, array in document.arrays.items():
        if name not in tables and not _fits(array.shape, shapes.get(name)):
            raise ModelFormatError(
                f"its array {name!r} is of shape {array.shape}, not {shapes.get(name, 'there')}."
            )
    built: S = _Reader(document.arrays).built(kind, document.body, "")
    return built


def stored_kind(kind: type) -> str:
    """Return the kind of the documents of a class: its attribute ``stored_kind``, or else its name."""
    return str(getattr(kind, "stored_kind", kind.__name__))


def stored_as(name: str) -> dict[str, str]:
    """Return the metadata for a dataclass field that has another name in documents."""
    return {"stored_as": name}


def check_numbers(name: str, values: np.ndarray, below: int, least: int = 0) -> None:
    """Raise unless array `name` consists of whole numbers from `least` to `below` - 1.

    Raises
    ------
    ModelFormatError

    Examples
    --------
    >>> check_numbers("rows", np.array([0, 4]), 5)
    """
    if values.dtype != np.int64 or (values < least).any() or (values >= below).any():
        raise ModelFormatError(
            f"its {name!r} should be whole numbers from {least} to {below - 1:,}."
        )


def within(part: str, shapes: Shapes) -> Shapes:
    """Return shapes with the names that the arrays of a nested dataclass have.

    Examples
    --------
    >>> within("best", {"centres": (3, 2)})
    {'best_centres': (3, 2)}
    """
    return {f"{part}_{name}": shape for name, shape in shapes.items()}


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...] | None) -> bool:
    return (
        wanted is not None
        and len(shape) == len(wanted)
        and all(length in (each, None) for each, length in zip(shape, wanted, strict=True))
    )


def _tables(kind: Any, prefix: str) -> Iterator[str]:
    """Yield the array names that lists of records may be stored under."""
    for name, hint in get_type_hints(kind).items():
        hint = _without_none(hint)
        if is_dataclass(hint):
            yield from _tables(hint, f"{prefix}{name}_")
        elif get_origin(hint) in _LISTS:
            yield f"{prefix}{name}"


def _without_none(hint: Any) -> Any:
    options = get_args(hint) if NoneType in get_args(hint) else (hint,)
    return next(option for option in options if option is not NoneType)


def _body(state: Any, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        name: _entry(getattr(state, each.name), f"{prefix}{name}", arrays)
        for name, each in _stored_fields(state)
    }


def _stored_fields(kind: Any) -> Iterator[tuple[str, Field[Any]]]:
    """Yield the fields of a dataclass, each with its name in documents; see `stored_as`."""
    for each in fields(kind):
        yield each.metadata.get("stored_as", each.name), each


def _entry(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return "array"
    if is_dataclass(value):
        return _body(value, f"{path}_", arrays)
    if isinstance(value, (list, tuple)):
        table = table_of(value)
        if table is not None:
            arrays[path] = table.values
            return table.columns
        return [{name: _scalar(entry) for name, entry in record.items()} for record in value]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -_SAFE < value < _SAFE:
        return str(value)
    return str(value) if isinstance(value, enum.StrEnum) else value


@dataclass(frozen=True)
class _Reader:
    """Builds dataclasses from the body and arrays of a document."""

    arrays: Mapping[str, np.ndarray]

    def built(self, kind: Any, body: Mapping[str, Any], prefix: str) -> Any:
        hints = get_type_hints(kind)
        values = {
            each.name: self._value(hints[each.name], body, name, f"{prefix}{name}")
            for name, each in _stored_fields(kind)
            if name in body or each.default is each.default_factory is MISSING
        }
        return kind(**values)

    def _value(self, hint: Any, body: Mapping[str, Any], name: str, path: str) -> Any:
        if name not in body:
            raise ModelFormatError(f"it lacks {path!r}.")
        if NoneType in get_args(hint) and body[name] is None:
            return None
        hint = _without_none(hint)
        if hint is np.ndarray:
            if path not in self.arrays:
                raise ModelFormatError(f"it lacks the array {path!r}.")
            return self.arrays[path]
        if is_dataclass(hint):
            return self.built(hint, read_mapping(body, name), f"{path}_")
        if get_origin(hint) in _LISTS:
            if path in self.arrays:
                return records_of(self.arrays[path], read_mapping(body, name), path)
            return [_record(record) for record in read_records(body, name)]
        return _read_scalar(hint, body, name)


def _record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with its numbers converted back from texts."""
    return {name: float(value) if value in _NOT_FINITE else value for name, value in record.items()}


def _read_scalar(kind: Any, body: Mapping[str, Any], name: str) -> Any:
    value = body[name]
    if issubclass(kind, enum.StrEnum):
        if read_text(body, name) in list(kind):
            return kind(value)
    elif kind is float:
        if isinstance(value, float) or value in _NOT_FINITE or _is_whole(value, _SAFE):
            return float(value)
    elif kind is int:
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            return int(value)
        if _is_whole(value, _SAFE):
            return value
    elif isinstance(value, kind):
        return value
    raise ModelFormatError(f"its {name!r} should be of type {kind.__name__}.")


def _is_whole(value: Any, below: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -below < value < below
