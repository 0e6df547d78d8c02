"""Values that never leave their process: arrays, credentials and open datasets.

Pickling replaces them by a token. Unpickled in the process of the value, the token becomes the same object
again; in any other process, it becomes an empty holder with a description of the value.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_live: weakref.WeakValueDictionary[str, ProcessLocal[Any]] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class ProcessLocal(Generic[T]):
    """Holds a value that pickling replaces by a token.

    Parameters
    ----------
    value : object
    what : str
        Description for `repr` and error messages; never the value itself.

    Examples
    --------
    >>> import pickle
    >>> held = ProcessLocal({"secret": "hunter2"}, "storage options")
    >>> b"hunter2" in pickle.dumps(held)
    False
    >>> pickle.loads(pickle.dumps(held)) is held
    True
    """

    def __init__(self, value: T | None, what: str, token: str | None = None) -> None:
        self.value = value
        self.what = what
        self._token = token or uuid.uuid4().hex
        if value is not None:
            with _lock:
                _live[self._token] = self

    @property
    def is_here(self) -> bool:
        """True in the process that holds the value."""
        return self.value is not None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_revive, (self._token, self.what))

    def __repr__(self) -> str:
        return f"<{self.what}, held by its process>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcessLocal) and self._token == other._token

    def __hash__(self) -> int:
        return hash(self._token)


def _revive(token: str, what: str) -> ProcessLocal[Any]:
    with _lock:
        held = _live.get(token)
    return ProcessLocal(None, what, token) if held is None else held


MOST_OPEN = 64

_opened: OrderedDict[Hashable, Any] = OrderedDict()
_opening = threading.RLock()


def open_once(recipe: Hashable, opener: Callable[[], T]) -> T:
    """Call `opener` once per recipe in this process, and return its result."""
    with _opening:
        if recipe not in _opened:
            _opened[recipe] = opener()
        _opened.move_to_end(recipe)
        found: T = _opened[recipe]
        while len(_opened) > MOST_OPEN:
            _opened.popitem(last=False)
    return found
