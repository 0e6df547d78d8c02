"""The workers that Dask's annotations of the caller allow a fit to use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dask

from daskcluster.engine.compat import resolved
from daskcluster.errors import InvalidParameterError

NO_LIMITS: Mapping[str, Any] = {"workers": [], "resources": {}, "allow_other_workers": False}
"""Annotations that say which workers may be used, without saying it; all others are ignored."""
_MOST_SHOWN = 8


@dataclass(frozen=True)
class WorkerLimit:
    """The workers that ``dask.annotate(workers=..., resources=...)`` allows.

    Parameters
    ----------
    workers : tuple
        Names, addresses or hosts; empty for any.
    resources : mapping of name to amount
        Each worker must have as much, in use or not.
    is_preference : bool
        Use other workers while there are none of these (``allow_other_workers=True``).

    Examples
    --------
    >>> limit = WorkerLimit(resources={"GPU": 1})
    >>> limit
    dask.annotate(resources={'GPU': 1})
    >>> workers = {"tcp://10.0.0.5:40001": {"name": "a", "host": "10.0.0.5", "resources": {"GPU": 2}}}
    >>> list(limit.admitted(workers))
    ['tcp://10.0.0.5:40001']
    """

    workers: tuple[Any, ...] = ()
    resources: Mapping[str, float] = field(default_factory=dict)
    is_preference: bool = False

    @classmethod
    def of_caller(cls) -> WorkerLimit:
        """Return the limit that holds here.

        Raises
        ------
        InvalidParameterError
            An annotation is a function of a task's key.
        """
        found = limits_of_caller()
        workers = found.get("workers") or ()
        return cls(
            workers=tuple(workers) if isinstance(workers, list | tuple | set) else (workers,),
            resources=found.get("resources") or {},
            is_preference=bool(found.get("allow_other_workers")),
        )

    @property
    def is_strict(self) -> bool:
        """Whether some workers must not be used."""
        return bool(self.workers or self.resources) and not self.is_preference

    def admitted(self, workers: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Return those of `workers` that may be used.

        Parameters
        ----------
        workers : mapping of address to the scheduler's information
        """
        meant = self._meant(workers)
        found = {a: info for a, info in workers.items() if a in meant and self._suffices(info)}
        return found or (dict(workers) if self.is_preference else {})

    def unmatched(self, there: Mapping[str, Mapping[str, Any]]) -> str:
        """Return the text of an error: none of these workers is admitted."""
        return (
            f"no worker matches {self}; the cluster has {described(there)}. Start workers that match "
            "(`dask worker ADDRESS --name NAME --resources 'NAME=AMOUNT'`), or change or leave out the "
            "annotation."
        )

    def _meant(self, workers: Mapping[str, Mapping[str, Any]]) -> set[str]:
        if not self.workers:
            return set(workers)
        found: set[str] = set()
        for worker in self.workers:
            text = ":".join(map(str, worker)) if isinstance(worker, list | tuple) else str(worker)
            # A name is looked up in the network only if no worker has it.
            found |= _spelled(text, workers) or _spelled(resolved(text), workers)
        return found

    def _suffices(self, info: Mapping[str, Any]) -> bool:
        there = info.get("resources") or {}
        return all(
            name in there and there[name] >= amount for name, amount in self.resources.items()
        )

    def __repr__(self) -> str:
        given: dict[str, Any] = {"workers": list(self.workers), "resources": dict(self.resources)}
        shown = [f"{name}={value!r}" for name, value in given.items() if value]
        return f"dask.annotate({', '.join(shown)})"


def limits_of_caller() -> dict[str, Any]:
    """Return the annotations that hold here and limit workers, as ``dask.annotate`` takes them.

    Raises
    ------
    InvalidParameterError
        One is a function of a task's key.
    """
    found = {name: value for name, value in dask.get_annotations().items() if name in NO_LIMITS}
    for name, value in found.items():
        if callable(value):
            raise InvalidParameterError(
                f"dask.annotate({name}={value!r}) chooses by the key of a task, and one limit holds for "
                "all tasks of a fit; give names, addresses or amounts, or leave the annotation out."
            )
    return found


def _spelled(text: str, workers: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return {
        address
        for address, info in workers.items()
        if text in (address, str(info.get("name")), info.get("host"))
    }


def described(workers: Mapping[str, Mapping[str, Any]]) -> str:
    """Return names, addresses and resources of workers as text.

    Examples
    --------
    >>> described({"tcp://10.0.0.5:40001": {"name": "a", "resources": {"GPU": 1}}})
    "tcp://10.0.0.5:40001 (name 'a', resources {'GPU': 1})"
    """
    shown = [
        f"{address} (name {info.get('name')!r}, resources {info.get('resources') or 'none'})"
        for address, info in list(workers.items())[:_MOST_SHOWN]
    ]
    more = len(workers) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
