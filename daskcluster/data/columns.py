"""Which columns of a table are features, ids and weights, as a caller chooses them."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from daskcluster.errors import InvalidDataError, InvalidParameterError

NULLS = ("error", "drop")
_IDS = re.compile(r"(^|.*[_\- .])(id|ids|uuid|guid|index|key|rowid)$|^unnamed: 0$", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnChoice:
    """The choice of columns of a table.

    Attributes
    ----------
    features : tuple of str, optional
    drop : tuple of str
        Columns that are no features, where `features` does not say which are.
    id_column : str, optional
    weights : str, optional
    nulls : {"error", "drop"}
        What happens to rows that lack a value.
    expected : tuple of str
        The features of a model: those to read where nothing else is chosen and all of them are there.

    Examples
    --------
    >>> ColumnChoice.of("embedding", id_column="id").features
    ('embedding',)
    """

    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    id_column: str | None = None
    weights: str | None = None
    nulls: str = "error"
    expected: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of(
        cls,
        columns: str | Sequence[str] | None = None,
        *,
        drop: str | Sequence[str] | None = None,
        id_column: str | None = None,
        nulls: str = "error",
    ) -> ColumnChoice:
        """Return the choice that arguments of `daskcluster.open_dataset` make.

        Raises
        ------
        InvalidParameterError
            Columns named twice, both `columns` and `drop`, or an unknown value of `nulls`.
        """
        features, without = _names(columns, "columns"), _names(drop, "drop")
        if nulls not in NULLS:
            raise InvalidParameterError(f"nulls={nulls!r} should be one of {', '.join(NULLS)}.")
        if features is not None and without is not None:
            raise InvalidParameterError(
                "columns= and drop= were both given; name the features, or what to leave out."
            )
        if features is not None and id_column in features:
            raise InvalidParameterError(
                f"id_column={id_column!r} is one of columns= as well; an id is no feature."
            )
        return cls(features, without or (), id_column, None, nulls)

    def features_among(self, columns: Collection[Any]) -> tuple[str, ...] | None:
        """Return the chosen features of a table with these columns; None: what is left is the default."""
        if self.features is None and not self.drop and set(self.expected) <= set(columns):
            return self.expected or None
        return self.features

    @property
    def is_default(self) -> bool:
        """Nothing was chosen."""
        return self == ColumnChoice()


def column_choice(
    given: ColumnChoice | Mapping[str, Any] | str | Sequence[str] | None,
) -> ColumnChoice:
    """Return the choice of a job: names of columns, or a mapping of the arguments of `ColumnChoice.of`.

    Examples
    --------
    >>> column_choice({"id_column": "id"}).id_column, column_choice(None).is_default
    ('id', True)
    """
    if isinstance(given, ColumnChoice):
        return given
    if isinstance(given, Mapping):
        return ColumnChoice.of(**given)
    return ColumnChoice.of(given)


def _names(given: str | Sequence[str] | None, what: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidParameterError(
            f"{what}={given!r} should be the name of a column, or several names."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidParameterError(f"{what}= names {twice[0]!r} twice; name each column once.")
    return names


def refuse_duplicates(names: Iterable[Any], choice: ColumnChoice, what: str) -> None:
    """Refuse a table that has several columns of one name among those that are read.

    Parameters
    ----------
    names : iterable of hashable
        Of all columns.
    choice : ColumnChoice
        Without `features`, all columns are read but those of `drop`.
    what : str
        What errors call the table.

    Raises
    ------
    InvalidDataError

    Examples
    --------
    >>> refuse_duplicates(["a", "b", "b"], ColumnChoice.of("a"), "the table")
    """
    names = list(names)
    features = choice.features_among(names)
    read = {*(set(names).difference(choice.drop) if features is None else features)}
    read |= {choice.id_column, choice.weights}
    for name, count in Counter(names).items():
        if count > 1 and name in read:
            at = " and ".join(str(i) for i, each in enumerate(names) if each == name)
            raise InvalidDataError(
                f"{what} has {count} columns named {name!r} (numbers {at}, from 0), which cannot be "
                "distinguished; rename them, or choose other columns with columns= or drop= (--columns, "
                "--drop)."
            )


def looks_like_id(name: str) -> bool:
    """Return True for names such as ``id``, ``user_id`` or ``index``.

    Examples
    --------
    >>> [looks_like_id(name) for name in ("id", "user_id", "Index", "width", "humid")]
    [True, True, True, False, False]
    """
    return bool(_IDS.match(name))


def looks_like_path(weights: str) -> bool:
    """Return True for what names a file of weights rather than a column.

    Examples
    --------
    >>> looks_like_path("s3://b/w.zarr"), looks_like_path("w.npy"), looks_like_path("weight")
    (True, True, False)
    """
    return "/" in weights or weights.lower().endswith((".npy", ".zarr")) or os.path.exists(weights)


def warn_of_id_columns(names: Sequence[Any]) -> None:
    """Warn that columns look like ids and are used as features, if there are any."""
    if not names:
        return
    shown = ", ".join(map(repr, names))
    warnings.warn(
        f"Column {shown} looks like an id and is used as a feature. Name it with id_column={names[0]!r} "
        f"(--id-column {names[0]}), leave it out with drop= (--drop), or choose the features with columns= "
        "(--columns).",
        UserWarning,
        stacklevel=2,
    )
