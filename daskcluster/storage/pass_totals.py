"""Totals of the passes that a fit has made since its last commit, whole or in part.

A pass adds up statistics of rows. Statistics are exact sums, so the total of the rows that are done, and of
those that are left, is that of a pass that was never interrupted. One file holds one total with the ranges
of its rows::

    <folder>/<fingerprint>.npz

The fingerprint covers what the pass computes and with which parameters: a resumed fit makes the same passes
in the same order, and takes up the first one that it has not finished. A commit of the fit makes all of
these files useless.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import numpy as np

from daskcluster import __version__
from daskcluster.errors import ModelFormatError
from daskcluster.fingerprint import fingerprint
from daskcluster.storage.files import explained, list_names, read_file, remove_folder, write_file
from daskcluster.storage.location import Location
from daskcluster.typing import Range

EVERY_SECONDS = 60.0
"""A total is kept about so often; passes that take less are not kept."""
_COST = 20
"""A total is kept at most so often that this takes a twentieth of the time."""
_DIGEST_BYTES = 32
_TREE = "tree"


class Pace:
    """Says when what is done is to be kept: about every minute, and so that it takes little of the time.

    Attributes
    ----------
    began, kept : float
        When the work began, and when it was last kept.
    """

    def __init__(self) -> None:
        self.began = self.kept = time.monotonic()
        self._wait = EVERY_SECONDS

    def is_due(self) -> bool:
        """Return True if it is time to keep what is done."""
        return time.monotonic() - self.kept >= self._wait

    def stop(self) -> None:
        """Let nothing be due any more."""
        self._wait = math.inf

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep what is done within the block."""
        began = time.monotonic()
        yield
        self.kept = time.monotonic()
        self._wait = max(EVERY_SECONDS, _COST * (self.kept - began))


class PassTotals:
    """The totals of one fit.

    Parameters
    ----------
    folder : Location
        Folder of these files only; created with the first one.
    resume : bool
        Use the totals of an earlier process; otherwise they are removed.

    Attributes
    ----------
    seed : int
        Seed of the fit, kept with its totals: before the first commit, nothing else knows it.
    """

    def __init__(self, folder: Location, *, resume: bool) -> None:
        self.folder, self.seed = folder, 0
        with explained(folder, "checkpoint"):
            self._names = {name for name in list_names(folder) if name.endswith(".npz")}
            if self._names and not resume:
                self.clear()

    def begin(self, reduction: Any, params: Any) -> PassTotal:
        """Return the total of a pass of a reduction that is about to be made."""
        return PassTotal(self, reduction, params)

    def first_seed(self) -> int | None:
        """Return the seed of the earlier process; None if it has kept no total."""
        for name in sorted(self._names):
            content = self.read(name)
            if content is not None:
                return int(_tree(content)["seed"])
        return None

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, without its digest; None, with a warning, if it is damaged."""
        if name not in self._names:
            return None
        with explained(self.folder, "checkpoint"):
            content = read_file(self.folder, name) or b""
        digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if payload and hashlib.sha256(payload).digest() == digest:
            return payload
        self._names.discard(name)
        warnings.warn(
            f"The total {name} in {self.folder.url!r} is damaged; its pass is made again.",
            RuntimeWarning,
            stacklevel=3,
        )
        return None

    def write(self, name: str, payload: bytes) -> None:
        """Write a file, in place of an earlier one of this name."""
        with explained(self.folder, "checkpoint"):
            write_file(self.folder, name, hashlib.sha256(payload).digest() + payload)
        self._names.add(name)

    def clear(self) -> None:
        """Remove all totals: a commit of the fit has made them useless."""
        if self._names:
            remove_folder(self.folder)
            self._names.clear()

    def __bool__(self) -> bool:
        return bool(self._names)


class PassTotal:
    """The total of one pass; made by `PassTotals.begin`.

    Attributes
    ----------
    spans : sequence of (start, stop)
        Rows that an earlier process has finished.
    """

    def __init__(self, totals: PassTotals, reduction: Any, params: Any) -> None:
        self._totals, self._reduction, self._params = totals, reduction, params
        self._name = ""
        self._pace = Pace()
        self._content = totals.read(self.name) if totals else None
        self.spans: list[Range] = []
        if self._content is not None:
            self.spans = [(int(first), int(last)) for first, last in _tree(self._content)["spans"]]
            self._earlier()  # raises now, not after hours

    @property
    def name(self) -> str:
        """Name of the file: a fingerprint takes time, so a short pass has none."""
        if not self._name:
            self._name = f"{fingerprint(__version__, self._reduction.name, self._params)}.npz"
        return self._name

    def left(self, items: Sequence[Range]) -> list[int] | None:
        """Return the numbers of the ranges that are left to be done; None if all are."""
        if not self.spans:
            return None
        done = [
            any(first <= start and stop <= last for first, last in self.spans)
            for start, stop in items
        ]
        n_rows = sum(
            stop - start for (start, stop), is_done in zip(items, done, strict=True) if is_done
        )
        if n_rows != sum(last - first for first, last in self.spans):
            # The rows are cut elsewhere now, so that some of them would count twice.
            self._content, self.spans = None, []
            return None
        return [number for number, is_done in enumerate(done) if not is_done]

    def is_due(self) -> bool:
        """Return True if it is time to call `keep`."""
        return self._pace.is_due()

    def keep(self, value: Any, spans: Sequence[Range]) -> None:
        """Keep the total of more ranges of rows, which is not changed."""
        facts = {"spans": _merged([*self.spans, *spans]), "seed": self._totals.seed}
        with self._pace.keeping():
            try:
                content = encode(self._with_earlier(value), facts)
            except TypeError as error:
                warnings.warn(
                    f"A pass of {self._reduction.name!r} is not kept, so that an interrupted one starts "
                    f"anew: {error}.",
                    RuntimeWarning,
                    stacklevel=3,
                )
            else:
                self._totals.write(self.name, content)
                return
        self._pace.stop()

    def end(self, value: Any, n_rows: int) -> Any:
        """Return the total of all rows, from that of the ranges that were left, or None without any.

        That of a long pass is kept: the next commit may be far.
        """
        if value is None or self._content is not None:
            value = self._with_earlier(value)
        if self._pace.kept > self._pace.began or self.is_due():
            self.spans, self._content = [], None
            self.keep(value, [(0, n_rows)])
        return value

    def _with_earlier(self, value: Any) -> Any:
        if self._content is None:
            return value
        earlier = self._earlier()
        return earlier if value is None else self._reduction.combine(earlier, value)

    def _earlier(self) -> Any:
        assert self._content is not None
        return decode(self._content, self._reduction.zero(self._reduction.prepare(self._params)))


def _merged(spans: Sequence[Range]) -> list[Range]:
    """Return ranges in order, neighbours as one."""
    found: list[Range] = []
    for start, stop in sorted(spans):
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


# -- statistics as bytes -------------------------------------------------------------------------------


def encode(value: Any, facts: Mapping[str, Any]) -> bytes:
    """Return statistics as the bytes of a ``.npz`` file: their arrays, and a tree of plain values.

    Parameters
    ----------
    value : object
        Statistics: dataclasses, tuples, lists, arrays and plain values.
    facts : mapping
        Plain values that are kept with them.
    """
    arrays: list[np.ndarray] = []
    tree = json.dumps({**facts, "value": _node(value, arrays)})
    parts: dict[str, np.ndarray] = {str(number): array for number, array in enumerate(arrays)}
    file = io.BytesIO()
    parts[_TREE] = np.frombuffer(tree.encode(), np.uint8)
    save: Any = np.savez  # its types take the name of an array for one of its own parameters
    save(file, **parts)
    return file.getvalue()


def decode(content: bytes, like: Any) -> Any:
    """Return statistics from the bytes that `encode` made; executes nothing.

    Parameters
    ----------
    content : bytes
    like : object
        Statistics of the same kind: only their classes, and those of their fields, are built.

    Raises
    ------
    ModelFormatError
    """
    classes: dict[str, type] = {}
    _collect_all(like, classes)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return _value(_tree(content)["value"], file, classes)
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise ModelFormatError(f"a kept total does not hold such statistics: {error}") from error


def _tree(content: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        tree: dict[str, Any] = json.loads(file[_TREE].tobytes())
    return tree


def _node(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, np.generic):
        return _node(np.asarray(value), arrays) | {"scalar": True}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    kind = type(value).__name__
    if is_dataclass(value):
        parts = {each.name: _node(getattr(value, each.name), arrays) for each in fields(value)}
        return {"class": kind, "fields": parts}
    if isinstance(value, (tuple, list)):
        name = kind if hasattr(value, "_fields") else ""
        return {"class": name, "of": [_node(each, arrays) for each in value]} | (
            {"list": True} if isinstance(value, list) else {}
        )
    listed, of = getattr(value, "listed", None), getattr(value, "of", None)
    if listed is None or of is None:
        raise TypeError(
            f"its statistics hold a {kind}; they can hold dataclasses, tuples, arrays and numbers"
        )
    return {"class": kind, "listed": _node(listed(), arrays)}


def _value(node: Any, arrays: Mapping[str, np.ndarray], classes: Mapping[str, type]) -> Any:
    if not isinstance(node, dict):
        return node
    if "array" in node:
        array = arrays[str(node["array"])]
        return array[()] if "scalar" in node else array
    if "float" in node:
        return float.fromhex(node["float"])
    kind: Any = classes[node["class"]] if node["class"] else tuple
    if "fields" in node:
        parts = {name: _value(each, arrays, classes) for name, each in node["fields"].items()}
        return kind(**parts)
    if "listed" in node:
        return kind.of(_value(node["listed"], arrays, classes))
    values = [_value(each, arrays, classes) for each in node["of"]]
    if node.get("list"):
        return values
    return tuple(values) if kind is tuple else kind(*values)


def _collect_all(like: Any, classes: dict[str, type]) -> None:
    """Add the classes of statistics; tuples, which joined reductions have, may hold tuples."""
    _collect(type(like), classes)
    for part in like if isinstance(like, tuple) else ():
        _collect_all(part, classes)


def _collect(hint: Any, classes: dict[str, type]) -> None:
    """Add a class, and those of its fields, by name."""
    for part in get_args(hint):
        _collect(part, classes)
    has_parts = is_dataclass(hint) or hasattr(hint, "_fields") or hasattr(hint, "listed")
    if not (isinstance(hint, type) and has_parts) or hint.__name__ in classes:
        return
    classes[hint.__name__] = hint
    for part in get_type_hints(hint).values():
        _collect(part, classes)
