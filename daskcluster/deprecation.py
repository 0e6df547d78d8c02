"""Names that have moved: they still work for one version, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any


def moved(module: str, **names: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module whose names have moved.

    Parameters
    ----------
    module : str
        Name of the module.
    **names : str
        Where each name is now, as ``"module:name"``.

    Examples
    --------
    >>> find = moved("daskcluster.old", Missing="daskcluster.errors:DatasetNotFoundError")
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as heard:
    ...     find("Missing").__name__
    'DatasetNotFoundError'
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new_name = names[name].partition(":")
        warnings.warn(
            f"{module}.{name} is now {home}.{new_name}; the old name goes with the next version.",
            FutureWarning,
            stacklevel=2,
        )
        return resolve_name(names[name])

    return find
