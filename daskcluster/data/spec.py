"""`RowsSpec`: how the rows of a source are read, as a caller says it, made and checked once."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from shlex import quote
from typing import Any, Self

from daskcluster.chunkwise.feature_scaling import SCALES
from daskcluster.errors import InvalidDataError, InvalidParameterError

MISSING = ("error", "drop", "mean", "partial")
_IDS = re.compile(
    r"(^|.*[_\- .])(id|ids|uuid|guid|index|key|rowid)$|^(unnamed: 0)?$", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class RowsSpec:
    """How the rows of a source are read; `daskcluster.open_dataset` explains each field.

    Equal specs read equal rows. Options of a store are no part of it: they may hold credentials.

    Attributes
    ----------
    array : str, optional
    features : tuple of str, optional
        The argument ``columns``.
    drop : tuple of str
        Columns that are no features, where `features` does not say which are.
    id_column : str, optional
    weights : str, optional
        A name or a URL. Values are passed apart from the spec.
    missing : {"error", "drop", "mean", "partial"}, optional
        None: nobody has said. It is an error, unless a model leaves such rows out.
    scale : {"standard", "minmax"}, optional
    flatten : bool
    grid : mapping, optional
        ``features``, ``nodata``, ``select`` and ``dequantize`` of `daskcluster.open_grid`, if the source is
        a grid.
    decode : bool, optional
    expected : tuple of str
        The features of a model: those to read where nothing else is chosen and all of them are there.

    Examples
    --------
    >>> RowsSpec.of(columns="embedding", id_column="id").features
    ('embedding',)
    """

    array: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    id_column: str | None = None
    weights: str | None = None
    missing: str | None = None
    scale: str | None = None
    flatten: bool = False
    grid: Mapping[str, Any] | None = field(default=None, hash=False)
    decode: bool | None = None
    expected: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of(
        cls,
        *,
        columns: Mapping[str, Any] | str | Sequence[str] | None = None,
        drop: str | Sequence[str] | None = None,
        nulls: str | None = None,
        missing: str | None = None,
        scale: str | None = None,
        weights: Any = None,
        **others: Any,
    ) -> Self:
        """Return the spec that keyword arguments of `daskcluster.open_dataset` or of a job make.

        A job takes `columns` also as a mapping of ``columns``, ``drop``, ``id_column`` and ``nulls``.

        Raises
        ------
        InvalidParameterError
            Columns named twice, both `columns` and `drop`, or an unknown value.
        """
        if isinstance(columns, Mapping):
            return cls.of(
                missing=missing, scale=scale, weights=weights, **{**others, "drop": drop, **columns}
            )
        features, without = _names(columns, "columns"), _names(drop, "drop")
        if features is not None and without is not None:
            raise InvalidParameterError(
                "columns= and drop= were both given; name the features, or what to leave out."
            )
        if features is not None and others.get("id_column") in features:
            raise InvalidParameterError(
                f"id_column={others['id_column']!r} is one of columns= as well; an id is no feature."
            )
        return cls(
            features=features,
            drop=without or (),
            missing=_missing(missing, nulls),
            scale=_one_of(scale, (*SCALES, None), "scale"),
            weights=weights if isinstance(weights, str) else None,
            **others,
        )

    @classmethod
    def among(cls, arguments: Mapping[str, Any], expected: Sequence[str] | None = None) -> Self:
        """Return the spec that is among the arguments of a job, by their names."""
        own = {each.name for each in fields(cls)} - {"features", "expected"}
        names = {"columns", "nulls"} | own
        given = {name: value for name, value in arguments.items() if name in names}
        return cls.of(**given, expected=tuple(expected or ()))

    def features_among(self, columns: Collection[Any]) -> tuple[str, ...] | None:
        """Return the chosen features of a table with these columns; None: what is left is the default."""
        if self.features is None and not self.drop and set(self.expected) <= set(columns):
            return self.expected or None
        return self.features

    @property
    def chooses_columns(self) -> bool:
        """Whether features or ids of a table were chosen."""
        return bool(self.features or self.drop) or self.id_column is not None

    def refuse_all_but(self, options: Collection[str], what: str) -> None:
        """Raise if the spec has an option that a source does not have.

        Parameters
        ----------
        options : collection of {"array", "columns", "decode"}
            Those that the source has.
        what : str
            What errors call the source.

        Raises
        ------
        InvalidParameterError
        """
        if self.array is not None and "array" not in options:
            raise InvalidParameterError(
                f"array={self.array!r} names an array of a Zarr group, but {what}; leave array= out."
            )
        if self.chooses_columns and "columns" not in options:
            raise InvalidParameterError(
                f"columns=, drop= and id_column= choose columns of a table, but {what}; leave them out."
            )
        if self.decode is not None and "decode" not in options:
            raise InvalidParameterError(
                f"decode={self.decode} says how a stored array is read, but {what}; leave decode= out."
            )


AS_THEY_ARE = RowsSpec()


def _one_of(value: Any, allowed: Sequence[Any], name: str) -> Any:
    if value not in allowed:
        raise InvalidParameterError(
            f"{name}={value!r} should be one of {', '.join(map(str, allowed))}."
        )
    return value


def _missing(missing: str | None, nulls: str | None) -> str | None:
    """Return `missing`, of which `nulls` is an older name that drops rows."""
    _one_of(missing, (*MISSING, None), "missing")
    if _one_of(nulls, ("error", "drop", None), "nulls") != "drop":
        return missing
    if missing not in (None, "error", "drop"):
        raise InvalidParameterError(
            f"nulls='drop' and missing={missing!r} were both given; leave nulls= out, which is an older "
            "name of missing='drop'."
        )
    warnings.warn(
        "nulls='drop' is an older name of missing='drop' (--missing drop), and will go; use that.",
        FutureWarning,
        stacklevel=4,
    )
    return "drop"


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


def refuse_duplicates(names: Iterable[Any], spec: RowsSpec, what: str) -> None:
    """Refuse a table that has several columns of one name among those that are read.

    Parameters
    ----------
    names : iterable of hashable
        Names of all columns.
    spec : RowsSpec
        Without `features`, all columns are read but those of `drop`.
    what : str
        What errors call the table.

    Raises
    ------
    InvalidDataError

    Examples
    --------
    >>> refuse_duplicates(["a", "b", "b"], RowsSpec(features=("a",)), "the table")
    """
    names = list(names)
    features = spec.features_among(names)
    read = {*(set(names).difference(spec.drop) if features is None else features)}
    read |= {spec.id_column, spec.weights}
    for name, count in Counter(names).items():
        if count > 1 and name in read:
            at = " and ".join(str(i) for i, each in enumerate(names) if each == name)
            raise InvalidDataError(
                f"{what} has {count} columns named {name!r} (numbers {at}, from 0), which cannot be "
                "distinguished; rename them, or choose other columns with columns= or drop= (--columns, "
                "--drop)."
            )


def names_of(labels: Sequence[Any]) -> tuple[str, ...] | None:
    """Return the labels of columns as text; None for 0, 1, ..., which pandas gives columns without names.

    Examples
    --------
    >>> names_of([2001, 2002]), names_of([0, 1])
    (('2001', '2002'), None)
    """
    labels = list(labels)
    return None if labels == list(range(len(labels))) else tuple(map(str, labels))


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


def warn_of_id_columns(
    columns: Iterable[Any], counts: Callable[[Any], bool] = lambda name: False
) -> None:
    """Warn of features with names of ids, and of those that count rows, if there are any."""
    names = [name for name in columns if looks_like_id(str(name)) or counts(name)]
    if not names:
        return
    shown = ", ".join(map(repr, names))
    warnings.warn(
        f"Column {shown} looks like an id and is used as a feature. Name it with id_column={names[0]!r} "
        f"(--id-column {quote(str(names[0]))}), leave it out with drop= (--drop), or choose the features "
        "with columns= (--columns).",
        UserWarning,
        stacklevel=2,
    )
