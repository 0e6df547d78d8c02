"""A folder that holds one sealed document: plain JSON values and arrays, with checksums of all.

Layout: a Zarr v3 group whose attributes are the document::

    <url>/zarr.json            the group; its attributes: format, format_version, kind, body,
                               arrays (shape, dtype and sha256 of each), sha256 of all that
    <url>/<array>/zarr.json    see `daskcluster.storage.arrays`
    <url>/<array>/c/...

Reading one executes nothing that it brings along, and believes nothing that it claims.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.errors import InvalidParameterError, ModelFormatError, ModelNotFoundError
from daskcluster.host import format_bytes, host_memory
from daskcluster.storage.arrays import ArraySpec, decode, encode
from daskcluster.storage.fields import odd_value, plain
from daskcluster.storage.files import file_size, read_at_most
from daskcluster.storage.location import Location
from daskcluster.storage.zarr_stores import HEAD

LEAST_LIMIT = 1 << 24
_EXPANSION = 64
"""JSON takes up to some twenty times its length once it is read; half of the memory is enough for that."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""What an array may be called: its name becomes part of a path."""


@dataclass(frozen=True)
class Form:
    """A family of documents.

    Attributes
    ----------
    format : str
        What they say that they are.
    version : int
        The one version that this release reads and writes.
    noun : str
        What errors call one of them.
    """

    format: str
    version: int
    noun: str


@dataclass(frozen=True, eq=False)
class Document:
    """What such a folder holds.

    Attributes
    ----------
    kind : str
        Which of the family.
    body : dict
        Plain JSON values.
    arrays : dict of ndarray
        float32, float64 or int64, of one or two axes, none of them empty.
    """

    kind: str
    body: dict[str, Any]
    arrays: dict[str, np.ndarray]


def sealed(form: Form, document: Document) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a document by relative path; the last one makes it readable."""
    odd = odd_value(plain(document.body))
    if odd:
        raise InvalidParameterError(f"{odd} has no place in a saved {form.noun}.")
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
    form: Form, place: Location, arrays_of: Mapping[str, Collection[str]] | None = None
) -> Document:
    """Read a document and check all of it.

    Parameters
    ----------
    form : Form
    place : Location
    arrays_of : mapping of str to collection of str, optional
        The kinds that are known, and the arrays that each must have.

    Raises
    ------
    ModelNotFoundError
        Nothing readable is there.
    ModelFormatError
        It is something else, is damaged, or has a version or kind that this release does not know.
    """
    attributes = _read_head(form, place)
    kind, body, entries = (attributes[name] for name in ("kind", "body", "arrays"))
    if not isinstance(kind, str) or (arrays_of is not None and kind not in arrays_of):
        raise ModelFormatError(
            f"{place.url!r} is a {form.noun} of kind {str(kind)[:40]!r}, known are "
            f"{', '.join(sorted(arrays_of or ()))}; load it with a newer daskcluster."
        )
    if not isinstance(entries, dict) or (
        arrays_of is not None and set(entries) != set(arrays_of[kind])
    ):
        raise _damaged(form, place, "its arrays are not those of its kind")
    if not all(map(_NAME.fullmatch, entries)):
        raise _damaged(form, place, "its arrays are not named as they should be")
    if not isinstance(body, dict):
        raise _damaged(form, place, "its document has no body")
    odd = odd_value(body)
    if odd:
        raise _damaged(form, place, f"its document holds {odd}")
    specs = [ArraySpec.parse(name, entry) for name, entry in sorted(entries.items())]
    arrays = {spec.name: decode(place, spec) for spec in specs}
    return Document(kind, body, arrays)


def most_bytes() -> int:
    """Return how large a ``zarr.json`` may be: what is real and fits memory, whoever wrote it.

    A history of a million iterations takes some 200 MB.
    """
    return max(LEAST_LIMIT, host_memory() // _EXPANSION)


def read_body(form: Form, place: Location) -> dict[str, Any]:
    """Read the body of a document alone, and check that.

    Raises
    ------
    ModelFormatError
    """
    body = _read_head(form, place)["body"]
    if not isinstance(body, dict):
        raise _damaged(form, place, "its document has no body")
    return body


def looks_like(form: Form, place: Location) -> bool:
    """Whether a document of that family, sound or damaged, stands there."""
    try:
        return form.format.encode() in read_at_most(place, HEAD, LEAST_LIMIT)
    except ModelNotFoundError:
        return False


def _read_all(form: Form, place: Location) -> bytes:
    content = read_at_most(place, HEAD, LEAST_LIMIT)
    if len(content) <= LEAST_LIMIT:
        return content
    # Its size is looked at before more is read: a file with holes takes no room on its disk.
    limit, size = most_bytes(), file_size(place, HEAD)
    content = read_at_most(place, HEAD, limit) if size <= limit else content
    if max(size, len(content)) > limit:
        raise _damaged(
            form,
            place,
            f"its document is larger than {format_bytes(limit)}, a {_EXPANSION}th of this host's memory",
        )
    return content


def _read_head(form: Form, place: Location) -> dict[str, Any]:
    content = _read_all(form, place)
    try:
        head = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(form, place, "its zarr.json is no JSON") from error
    attributes = head.get("attributes") if isinstance(head, dict) else None
    if not isinstance(attributes, dict) or attributes.get("format") != form.format:
        raise ModelFormatError(
            f"{place.url!r} is no daskcluster {form.noun}: its zarr.json does not say "
            f"format={form.format!r}; give the URL that a fit wrote its {form.noun} to."
        )
    _check_version(form, place, attributes)
    claimed = attributes.pop("sha256", None)
    try:
        digest = _digest(attributes)
    except RecursionError as error:
        raise _damaged(form, place, "its document is nested too deeply") from error
    if claimed != digest:
        raise _damaged(form, place, "its document fails its checksum")
    if set(attributes) != {"format", "format_version", "kind", "arrays", "body"}:
        raise _damaged(form, place, "its document has other parts than it should")
    return attributes


def _check_version(form: Form, place: Location, attributes: Mapping[str, Any]) -> None:
    version = attributes.get("format_version")
    if version is True or version != form.version:
        shown = str(version)[:20] if isinstance(version, str | float) else _short(version)
        raise ModelFormatError(
            f"{place.url!r} has {form.noun} format version {shown}, this release reads version "
            f"{form.version}; upgrade daskcluster or save the {form.noun} again with this release."
        )


def _short(version: Any) -> str:
    # str of a whole number with thousands of digits raises.
    small = isinstance(version, int) and -(2**63) < version < 2**63
    return str(version) if small or version is None else "of an unknown form"


def _digest(attributes: Mapping[str, Any]) -> str:
    canonical = json.dumps(attributes, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _damaged(form: Form, place: Location, what: str) -> ModelFormatError:
    return ModelFormatError(
        f"the {form.noun} at {place.url!r} is damaged: {what}; save it again or restore a copy."
    )
