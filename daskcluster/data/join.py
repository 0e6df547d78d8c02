"""Values of rows matched with the rows by name: the indexes of pandas, and the ids of stored rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.errors import InvalidDataError


def in_order_of(rows: Any, values: Any, what: str) -> Any:
    """Return values of rows in the order of the rows, matched by name where both have names.

    Parameters
    ----------
    rows : object
        A frame or Series of pandas has names, unless its index is the default one.
    values : object
        The same.
    what : str
        What errors call the values, in the plural.

    Returns
    -------
    object
        `values` as they are if one side has no names: they belong to the rows by position.

    Raises
    ------
    InvalidDataError
        Names that differ or stand twice; or names on one side only, which are those positions in another
        order.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"x": [1.0, 2.0]}, index=["a", "b"])
    >>> in_order_of(rows, pd.Series([20, 10], index=["b", "a"]), "weights").tolist()
    [10, 20]
    """
    names, ids = _names_of(rows), _names_of(values)
    if names is None or ids is None or ids.equals(names):
        return values
    if not (_is_default(names) or _is_default(ids)):
        return values.iloc[positions_by_id(ids, names, what)]
    if len(ids) == len(names) and ids.is_unique and names.isin(ids).all():
        raise InvalidDataError(
            f"The index of the {what} is the index of the rows in another order, and one of the two is "
            f"the default 0, 1, 2, ..., so that it may mean positions: pass {what}.loc[rows.index] to "
            f"match by name, or {what}.to_numpy() to match by position."
        )
    return values


def _names_of(given: Any) -> Any:
    is_pandas = type(given).__module__.split(".")[0] == "pandas"
    return getattr(given, "index", None) if is_pandas and hasattr(given, "iloc") else None


def _is_default(index: Any) -> bool:
    return type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)


def positions_by_id(ids: Any, names: Any, what: str) -> np.ndarray:
    """Return where each of `names` is among `ids`, both indexes of pandas.

    Raises
    ------
    InvalidDataError
        A name is missing, or stands twice.
    """
    if ids.equals(names):
        return np.arange(len(names))
    for index, of_what in ((ids, what), (names, "rows")):
        if not index.is_unique:
            raise InvalidDataError(
                f"The {what} are matched with the rows by name, and two of the {of_what} are called "
                f"{index[index.duplicated()][0]!r}; make names unique, or pass an array in the order of "
                "the rows."
            )
    found: np.ndarray = ids.get_indexer(names)
    if (found < 0).any():
        raise InvalidDataError(
            f"{int((found < 0).sum()):,} of {len(names):,} rows are not among the {what} by their names, "
            f"e.g. {names[int(np.argmin(found))]!r}; the {what} are of rows such as {ids[0]!r}. Give those "
            "of the same rows, or pass an array in the order of the rows."
        )
    return found
