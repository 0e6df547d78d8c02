"""Sealed documents: folders of plain JSON values and arrays, with checksums of everything.

Layout: a Zarr v3 group whose attributes are the document::

    <url>/zarr.json            the group; its attributes: format, format_version, kind, body,
                               arrays (shape, dtype and sha256 of each), sha256 of all that
    <url>/<array>/zarr.json    see `daskcluster.storage.arrays`
    <url>/<array>/c/...

Reading a document executes no code from it, and all its content is checked.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from daskcluster.errors import InvalidParameterError, ModelFormatError, ModelNotFoundError
from daskcluster.host import format_bytes, host_memory
from daskcluster.storage.arrays import ArraySpec, decode, encode
from daskcluster.storage.files import file_size, read_at_most
from daskcluster.storage.location import Location
from daskcluster.storage.zarr_stores import HEAD

_SIMPLE = (str, bool, int, float, type(None))
_MOST_DEPTH = 32
_MOST_BITS = 1000


def plain(value: Any) -> Any:
    """Return `value` as plain JSON values (NumPy scalars and arrays, tuples and enums converted).

    Raises
    ------
    InvalidParameterError
        A value has no plain form.

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
        raise InvalidParameterError(f"{value} cannot be saved in a model; use None or a number.")
    if isinstance(value, str):
        return str(value)  # an enum is written as its value
    if isinstance(value, _SIMPLE):
        return value
    raise InvalidParameterError(
        f"a saved model holds plain values only, not {type(value).__name__}."
    )


def odd_value(value: Any) -> str | None:
    """Return a problem with plain values from a file; None if there is none.

    Refuses deep nesting, and numbers that do not fit a float, so that readers need not expect them.

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
            return "a whole number too large for a float"
    return None


def read_text(body: Mapping[str, Any], name: str) -> str:
    """Return the text `name` of a document; control characters are refused, as texts go to terminals."""
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
    """Return the object `name` of a document whose values are texts; see `read_text`."""
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
    # repr of a number with thousands of digits raises, and no document may cause that.
    return repr(value)[:40] if isinstance(value, str | float) else f"of type {type(value).__name__}"


LEAST_LIMIT = 1 << 24
_EXPANSION = 64
"""Largest JSON, as a fraction of memory: parsed JSON takes up to about twenty times its length."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""Valid array names; they become part of a path."""


@dataclass(frozen=True)
class Form:
    """A family of documents.

    Attributes
    ----------
    format : str
        Value of the field ``format``.
    version : int
        The only version that this release reads and writes.
    noun : str
        Name of such a document in errors.
    """

    format: str
    version: int
    noun: str


@dataclass(frozen=True, eq=False)
class Document:
    """The content of a document.

    Attributes
    ----------
    kind : str
        Kind within the family.
    body : dict
        Plain JSON values.
    arrays : dict of ndarray
        float32, float64 or int64, of one or two axes, none of them empty.
    """

    kind: str
    body: dict[str, Any]
    arrays: dict[str, np.ndarray]


def sealed(form: Form, document: Document) -> Iterator[tuple[str, bytes]]:
    """Yield relative path and content of the files of a document; the last one makes it readable."""
    odd = odd_value(plain(document.body))
    if odd:
        raise InvalidParameterError(f"{odd} cannot be saved in a {form.noun}.")
    specs = []
    for name, values in document.arrays.items():
        spec = ArraySpec.of(name, values)
        specs.append(spec)
        yield from encode(spec, values)
    attributes = plain(
        {
            "format": form.format,
            "format_version": form.version,
            "kind": document.kind,
            "arrays": {spec.name: spec.entry() for spec in specs},
            "body": document.body,
        }
    )
    attributes["sha256"] = _digest(attributes)
    head = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    yield HEAD, json.dumps(head, indent=1, allow_nan=False).encode()


def unsealed(
    form: Form,
    place: Location,
    arrays_of: Mapping[str, tuple[Collection[str], Collection[str]]] | None = None,
) -> Document:
    """Read a document and check all of it.

    Parameters
    ----------
    form : Form
    place : Location
    arrays_of : mapping of str to two collections of str, optional
        Known kinds, the arrays that each must have, and those that it may have.

    Raises
    ------
    ModelNotFoundError
        There is no readable document at `place`.
    ModelFormatError
        It is not such a document, is damaged, or has a version or kind unknown to this release.
    """
    attributes = _read_head(form, place)
    kind, body, entries = (attributes[name] for name in ("kind", "body", "arrays"))
    if not isinstance(kind, str) or (arrays_of is not None and kind not in arrays_of):
        raise ModelFormatError(
            f"{place.url!r} is a {form.noun} of kind {str(kind)[:40]!r}, known are "
            f"{', '.join(sorted(arrays_of or ()))}; load it with a newer daskcluster."
        )
    if not isinstance(entries, dict) or not (
        arrays_of is None or set(entries) - set(arrays_of[kind][1]) == set(arrays_of[kind][0])
    ):
        raise _damaged(form, place, "it does not have the arrays of its kind")
    if not all(map(_NAME.fullmatch, entries)):
        raise _damaged(form, place, "it has arrays with invalid names")
    if not isinstance(body, dict):
        raise _damaged(form, place, "its document has no body")
    odd = odd_value(body)
    if odd:
        raise _damaged(form, place, f"its document holds {odd}")
    specs = [ArraySpec.parse(name, entry) for name, entry in sorted(entries.items())]
    arrays = {spec.name: decode(place, spec) for spec in specs}
    return Document(kind, body, arrays)


def read_body(form: Form, place: Location) -> dict[str, Any]:
    """Read and check only the body of a document, not its arrays.

    Raises
    ------
    ModelFormatError
    """
    body = _read_head(form, place)["body"]
    if not isinstance(body, dict):
        raise _damaged(form, place, "its document has no body")
    return body


def looks_like(form: Form, place: Location) -> bool:
    """Return whether there is a document of this family, damaged or not."""
    try:
        return form.format.encode() in read_at_most(place, HEAD, LEAST_LIMIT)
    except ModelNotFoundError:
        return False


def _read_all(form: Form, place: Location) -> bytes:
    content = read_at_most(place, HEAD, LEAST_LIMIT)
    if len(content) <= LEAST_LIMIT:
        return content
    # A history of a million iterations takes some 200 MB. Check the size before reading more: a sparse file
    # takes no room on its disk.
    limit, size = max(LEAST_LIMIT, host_memory() // _EXPANSION), file_size(place, HEAD)
    content = read_at_most(place, HEAD, limit) if size <= limit else content
    if max(size, len(content)) > limit:
        size_limit = f"{format_bytes(limit)}, a {_EXPANSION}th of this host's memory"
        raise _damaged(form, place, f"its document is larger than {size_limit}")
    return content


def _read_head(form: Form, place: Location) -> dict[str, Any]:
    content = _read_all(form, place)
    try:
        head = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(form, place, "its zarr.json is not valid JSON") from error
    attributes = head.get("attributes") if isinstance(head, dict) else None
    if not isinstance(attributes, dict) or attributes.get("format") != form.format:
        raise ModelFormatError(
            f"{place.url!r} is not a daskcluster {form.noun}: expected format={form.format!r} in its "
            f"zarr.json; give the URL of a {form.noun} written by a fit."
        )
    version = attributes.get("format_version")
    if version is True or version != form.version:
        shown = str(version)[:20] if isinstance(version, str | float) else _short(version)
        raise ModelFormatError(
            f"{place.url!r} has {form.noun} format version {shown}, this release reads version "
            f"{form.version}; upgrade daskcluster or save the {form.noun} again with this release."
        )
    claimed = attributes.pop("sha256", None)
    try:
        digest = _digest(attributes)
    except RecursionError as error:
        raise _damaged(form, place, "its document is nested too deeply") from error
    if claimed != digest:
        raise _damaged(form, place, "its document fails its checksum")
    if set(attributes) != {"format", "format_version", "kind", "arrays", "body"}:
        raise _damaged(form, place, "its document has unexpected or missing entries")
    return attributes


def _short(version: Any) -> str:
    # str of a whole number with thousands of digits raises.
    small = isinstance(version, int) and -(2**63) < version < 2**63
    return str(version) if small or version is None else "of an unknown form"


def _digest(attributes: Mapping[str, Any]) -> str:
    canonical = json.dumps(attributes, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _damaged(form: Form, place: Location, what: str) -> ModelFormatError:
    return ModelFormatError(
        f"the {form.noun} at {place.url!r} is damaged: {what}; save it again or restore a copy."
    )


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
    for name, array in document.arrays.items():
        if not _fits(array.shape, shapes.get(name)):
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
