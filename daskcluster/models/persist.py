"""Models on disk: a Zarr v3 group whose attributes are the model's JSON document.

Format version 1::

    <url>/zarr.json            the group; its attributes: format, format_version, kind, body,
                               arrays (shape, dtype and sha256 of each), sha256 of all that
    <url>/<array>/zarr.json    see `daskcluster.models.plain_zarr`
    <url>/<array>/c/...

A model is there whole or not at all; loading one executes nothing that it brings along.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from daskcluster.data.staging import Staging
from daskcluster.data.staging import check_free as check_output_free
from daskcluster.errors import ModelFormatError, ModelNotFoundError, OutputExistsError
from daskcluster.models.fields import plain
from daskcluster.models.folder import Folder
from daskcluster.models.kinds import KINDS, Model
from daskcluster.models.plain_zarr import ArraySpec, decode, encode

FORMAT = "daskcluster-model"
FORMAT_VERSION = 1
MAX_DOCUMENT_BYTES = 1 << 24
HEAD = "zarr.json"

_REPLACEABLE = ("group",)


def save_model(
    model: Model,
    url: str,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Save `model` under `url`.

    Parameters
    ----------
    model : KMeansModel, or any other `daskcluster.models.kinds.Model`
    url : str
        A path or an fsspec URL.
    overwrite : bool
        Replace a model that is there. Anything that is not a model is never replaced.
    storage_options : mapping, optional
        Passed to the file system.

    Raises
    ------
    OutputExistsError
        Something is there that may not be replaced.

    Notes
    -----
    Cost: a few kB beyond the arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.models.kmeans import KMeansModel
    >>> model = KMeansModel(np.eye(2), np.ones(2), n_rows=2)
    >>> save_model(model, "memory://doctest/model.zarr", overwrite=True)
    >>> load_document("memory://doctest/model.zarr").centres
    array([[1., 0.],
           [0., 1.]])
    """
    check_free(url, overwrite=overwrite, storage_options=storage_options)
    files = dict(_files(model))
    staging = Staging.begin(
        url, overwrite=overwrite, storage_options=storage_options, kinds=_REPLACEABLE
    )
    try:
        staging.commit(files)
    except BaseException:
        staging.abort()
        raise


def check_free(
    url: str, *, overwrite: bool = False, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Raise `OutputExistsError` now if `save_model` would refuse `url` later."""
    check_output_free(url, overwrite=overwrite, storage_options=storage_options, kinds=_REPLACEABLE)
    folder = Folder(url, storage_options)
    if overwrite and folder.size(HEAD) >= 0 and not _looks_ours(folder):
        # Any other Zarr group may hold somebody's rows.
        raise OutputExistsError(
            f"The output {folder.url!r} exists and is not a model, so overwrite=True does not touch "
            "it; choose another name, or remove it yourself."
        )


def is_model(url: str, *, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Whether a model, sound or damaged, stands under `url`."""
    return _looks_ours(Folder(url, storage_options))


def load_document(url: str, storage_options: Mapping[str, Any] | None = None) -> Model:
    """Load the model under `url`, checking all of it.

    Parameters
    ----------
    url : str
        A path or an fsspec URL.
    storage_options : mapping, optional
        Passed to the file system.

    Raises
    ------
    ModelNotFoundError
        Nothing readable is there.
    ModelFormatError
        What is there is no model, is damaged, or has a format version that this release does not
        know.
    """
    folder = Folder(url, storage_options)
    attributes = _read_head(folder)
    kind = attributes["kind"]
    entries = attributes["arrays"]
    if not isinstance(entries, dict) or set(entries) != KINDS[kind].array_names:
        raise _damaged(folder, "its arrays are not those of its kind")
    specs = [ArraySpec.parse(name, entry) for name, entry in sorted(entries.items())]
    arrays = {spec.name: decode(folder, spec) for spec in specs}
    body = attributes["body"]
    if not isinstance(body, dict):
        raise _damaged(folder, "its document has no body")
    return KINDS[kind].from_parts(body, arrays)


def _files(model: Model) -> Iterator[tuple[str, bytes]]:
    specs = []
    for name, values in model.arrays().items():
        spec = ArraySpec.of(name, values)
        specs.append(spec)
        yield from encode(spec, values)
    document = plain(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "kind": model.kind,
            "arrays": {spec.name: spec.entry() for spec in specs},
            "body": model.body(),
        }
    )
    document["sha256"] = _digest(document)
    head = {"zarr_format": 3, "node_type": "group", "attributes": document}
    yield HEAD, json.dumps(head, indent=1, allow_nan=False).encode()


def _read_head(folder: Folder) -> dict[str, Any]:
    content = folder.read(HEAD, MAX_DOCUMENT_BYTES)
    if len(content) > MAX_DOCUMENT_BYTES:
        raise _damaged(folder, f"its document is larger than {MAX_DOCUMENT_BYTES} bytes")
    try:
        head = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(folder, "its zarr.json is no JSON") from error
    attributes = head.get("attributes") if isinstance(head, dict) else None
    if not isinstance(attributes, dict) or attributes.get("format") != FORMAT:
        raise ModelFormatError(
            f"{folder.url!r} is no daskcluster model: its zarr.json does not say "
            f"format={FORMAT!r}; give the URL that a fit wrote its model to."
        )
    _check_version(folder, attributes)
    claimed = attributes.pop("sha256", None)
    if claimed != _digest(attributes):
        raise _damaged(folder, "its document fails its checksum")
    if set(attributes) != {"format", "format_version", "kind", "arrays", "body"}:
        raise _damaged(folder, "its document has other parts than it should")
    if not isinstance(attributes["kind"], str) or attributes["kind"] not in KINDS:
        raise ModelFormatError(
            f"{folder.url!r} is a model of kind {str(attributes['kind'])[:40]!r}, known are "
            f"{', '.join(sorted(KINDS))}; load it with a newer daskcluster."
        )
    return attributes


def _check_version(folder: Folder, attributes: Mapping[str, Any]) -> None:
    version = attributes.get("format_version")
    if version is True or version != FORMAT_VERSION:
        shown = str(version)[:20] if isinstance(version, str | float) else _short(version)
        raise ModelFormatError(
            f"{folder.url!r} has model format version {shown}, this release reads version "
            f"{FORMAT_VERSION}; upgrade daskcluster or save the model again with this release."
        )


def _short(version: Any) -> str:
    # str of a whole number with thousands of digits raises.
    small = isinstance(version, int) and -(2**63) < version < 2**63
    return str(version) if small or version is None else "of an unknown form"


def _looks_ours(folder: Folder) -> bool:
    try:
        return FORMAT.encode() in folder.read(HEAD, MAX_DOCUMENT_BYTES)
    except ModelNotFoundError:
        return False


def _digest(document: Mapping[str, Any]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _damaged(folder: Folder, what: str) -> ModelFormatError:
    return ModelFormatError(
        f"the model at {folder.url!r} is damaged: {what}; save it again or restore a copy."
    )
