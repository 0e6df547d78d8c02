"""Work of this package without the Dask annotations of its caller.

Dask adds the annotations that hold where a task is submitted to the task itself. Tasks of this package go
where the package sends them, so foreign workers, resources or retries would contradict that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Context
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def unannotated(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call `function` where no annotations hold, and return what it returns.

    Spans stay: on the dashboard they say whose work a task is, and they place nothing.

    Examples
    --------
    >>> import dask
    >>> with dask.annotate(priority=3):
    ...     unannotated(dask.get_annotations)
    {}
    """
    import dask  # by those who compute with dask only

    spans = {name: value for name, value in dask.get_annotations().items() if name == "span"}
    return Context().run(_annotated, spans, function, arguments, options)


def without_annotations(function: F) -> F:
    """Let a function run where no annotations hold; see `unannotated`."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        return unannotated(function, *arguments, **options)

    return cast(F, call)


def _annotated(
    annotations: Mapping[str, Any],
    function: Callable[..., T],
    arguments: tuple[Any, ...],
    options: Mapping[str, Any],
) -> T:
    import dask

    with dask.annotate(**annotations):
        return function(*arguments, **options)
