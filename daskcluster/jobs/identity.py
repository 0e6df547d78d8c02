"""The identity of a run of a job: its arguments as plain values, its name, lease and Dask task."""

from __future__ import annotations

import datetime as dt
import hashlib
import inspect
import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

import numpy as np

from daskcluster.errors import InvalidParameterError, WrongTypeError
from daskcluster.jobs import catalogue  # which imports jobs of others, and they may import this
from daskcluster.jobs.spec import PACE
from daskcluster.parameters.shared import METHODS
from daskcluster.storage.lease import Lease, folder_of
from daskcluster.storage.location import locate

_APART = frozenset({
    "name", "engine", "callbacks", "heard", "overwrite", "resume", "scratch", "storage_options",
})  # fmt: skip
"""Arguments that do not change what a job computes. Options of a store may hold credentials."""
_URLS = frozenset({
    "centroids", "checkpoint", "distances", "labels", "model", "output", "posteriors", "report", "rows",
    "source", "state",
})  # fmt: skip
_MAYBE_URLS = frozenset({"how", "keep", "weights"})
_LISTED = 64
"""Most values of an array that are kept as they are."""
_HASHED_BYTES = 64 * 1024**2
_MOST_CHARACTERS = 1000
_LARGEST_INT = 2**63 - 1
_SHOWN_AS_THEY_ARE = slice | complex | bytes | dt.date | dt.time | dt.timedelta


def given_to(job: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return arguments and keyword arguments of a job by parameter, as `locals()` at its start has them.

    Raises
    ------
    WrongTypeError
        The job cannot be called with them.
    """
    try:
        return inspect.signature(job).bind(*arguments, **options).arguments
    except TypeError as error:
        raise WrongTypeError(
            f"jobs.{job.__name__} cannot be called with these arguments: {error}; see "
            f"help(jobs.{job.__name__})."
        ) from error


def plain_arguments(job: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a job's result depends on, as plain values.

    What equals its default is left out, so that it does not matter whether it was given.

    Parameters
    ----------
    job : str
        A name in `daskcluster.jobs`.
    given : mapping
        Arguments by parameter; see `given_to`.

    Examples
    --------
    >>> plain_arguments("fit", {"source": "x.npy", "n_clusters": np.int64(5), "parameters": {"tol": 0.1}})
    {'source': 'x.npy', 'n_clusters': 5, 'tol': 0.1}
    >>> plain_arguments("score", {"model": "m", "source": "x.npy", "metrics": [], "engine": "local"})
    {'model': 'm', 'source': 'x.npy'}
    """
    function = getattr(import_module("daskcluster.jobs"), job)
    flat: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            flat |= given.get(name, {})
        elif name in given:
            flat[name] = given[name]
    found = {name: plain_value(value) for name, value in flat.items() if name not in _APART}
    for name, default in _defaults(job, function, flat).items():
        is_default = name in found and bool(found[name] == plain_value(default))
        if is_default or (default is None and found.get(name) in ({}, [])):
            found.pop(name, None)
    return found


def located(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain arguments with absolute paths, and digests instead of long values.

    Raises
    ------
    InvalidParameterError
        A URL is empty or contains a credential.

    Examples
    --------
    >>> located({"source": "s3://bucket/rows.zarr/", "n_clusters": 5})
    {'source': 's3://bucket/rows.zarr', 'n_clusters': 5}
    """
    found = absolute(arguments)
    for name, value in found.items():
        text = json.dumps(value, sort_keys=True)
        if len(text) > _MOST_CHARACTERS:
            kind = f"{len(value)} values" if isinstance(value, list) else type(value).__name__
            found[name] = f"<{kind} {_digest(text.encode())}>"
    return found


def absolute(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with absolute paths, for a process with another working directory.

    Examples
    --------
    >>> absolute({"source": "s3://bucket/rows.zarr/", "weights": "column"})
    {'source': 's3://bucket/rows.zarr', 'weights': 'column'}
    """
    may_be = _MAYBE_URLS - ({"weights"} if given.get("array") is not None else set())
    return {name: _located(name, value, may_be) for name, value in given.items()}


def _defaults(job: str, function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of a job, and of what it passes on."""
    spec, found = catalogue.spec_of(job), dict[str, Any]()
    if spec is not None and (known := spec.catalogue) is not None:
        entry = known.get(str(given.get("algorithm") or next(iter(known))))
        parameters = {} if entry is None else entry.parameters
        found = {name: parameter.default for name, parameter in parameters.items()}
    elif spec is not None:
        found = {parameter.name: parameter.default for parameter in spec.parameters}
    functions = [resolve_name(spec.extends)] if spec is not None and spec.extends else []
    for each in (*functions, function):
        taken = inspect.signature(each).parameters
        found |= {name: parameter.default for name, parameter in taken.items()}
    return {
        name: default for name, default in found.items() if default is not inspect.Parameter.empty
    }


def plain_value(value: Any) -> Any:
    """Return a value as plain JSON values; arrays become lists or digests."""
    text = json.dumps(value, default=_of_object)
    return json.loads(text, parse_int=_int, parse_constant=lambda name: str(float(name)))


def _int(text: str) -> int | str:
    return int(text) if abs(int(text)) <= _LARGEST_INT else text


def _of_object(value: Any) -> Any:
    """Return what JSON has in place of a value that it lacks."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, range):
        return list(value)
    if isinstance(value, set | frozenset):
        return sorted((plain_value(entry) for entry in value), key=repr)
    if isinstance(value, _SHOWN_AS_THEY_ARE):
        return repr(value)
    value = getattr(value, "cluster_centers_", getattr(value, "means_", value))
    if type(value).__module__.partition(".")[0] in ("pandas", "polars"):
        value = value.to_numpy() if hasattr(value, "to_numpy") else value
    if not isinstance(value, np.ndarray):
        module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
        return f"<{module}.{name}>" if name else f"<{type(value).__name__}>"
    if value.size <= _LISTED:
        return value.tolist()
    rows = np.ascontiguousarray(value[:: 1 + value.nbytes // _HASHED_BYTES])
    content = repr(rows.tolist()).encode() if value.dtype == object else rows.tobytes()
    return f"<array {value.shape} {value.dtype} {_digest(content)}>"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _located(name: str, value: Any, may_be: Collection[str]) -> Any:
    if isinstance(value, list):
        return [_located(name, entry, may_be) for entry in value]
    if not (isinstance(value, str) and _is_url(name, value, may_be)):
        return value
    for link in value.split("::"):  # `locate` finds credentials in URLs that are no chains
        locate(link or value)
    return locate(value).url


def _is_url(name: str, text: str, may_be: Collection[str]) -> bool:
    if text.startswith("<"):  # an object
        return False
    if "://" in text or name in _URLS:
        return True
    if name == "init":
        return text not in METHODS
    return name in may_be and ("/" in text or text.lower().endswith((".npy", ".zarr")))


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(name: Any) -> str:
    """Return `name` if it is a valid job name.

    Raises
    ------
    InvalidParameterError

    Examples
    --------
    >>> check_name("nightly-2026-11-21")
    'nightly-2026-11-21'
    """
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InvalidParameterError(
            f"name={str(name)[:120]!r} should be 1 to 100 letters, digits, dots, dashes or underscores "
            "and begin with a letter or digit; choose another name for the job."
        )
    return name


def new_name(kind: str) -> str:
    """Return a unique name."""
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def name_of_key(key: Any) -> str:
    """Return the name of the job that runs as the Dask task `key`; equal keys have equal names.

    Examples
    --------
    >>> name_of_key("fit-0123abcd")
    'fit-0123abcd'
    """
    text = str(key)
    if _NAME.fullmatch(text):
        return text
    return f"task-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


# -- where a job runs ----------------------------------------------------------------------------


def current_task() -> Any:
    """Return `daskcluster.engine.connect` if this thread runs a Dask task, else None."""
    if "distributed" not in sys.modules:
        return None
    from daskcluster.engine import connect

    return connect if connect.in_task() else None


def lease_of(
    job: str,
    name: str,
    output: Any,
    arguments: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
) -> Lease:
    """Return the lease of a job on its main output, not taken yet.

    Parameters
    ----------
    job, name : str
        Name of the job's function, and of the job.
    output : str or path
    arguments : mapping
        See `daskcluster.jobs.run.located`.
    storage_options : mapping, optional
    """
    apart = PACE | {
        catalogue.output_name(job)
    }  # the lease is next to the output, wherever that has moved
    kept = {n: value for n, value in arguments.items() if n not in apart}
    return Lease(folder_of(output, storage_options), name, kept)
