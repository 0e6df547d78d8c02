"""Datasets opened by recipe, once per process.

A recipe names URL, options and a digest of the metadata, so a dataset that was written anew under
the same URL is never mistaken for the old one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

MOST_OPEN = 64

_opened: OrderedDict[Hashable, Any] = OrderedDict()
_lock = threading.RLock()


def open_once(recipe: Hashable, opener: Callable[[], T]) -> T:
    """Return what `opener` gave when it was first called for this recipe in this process."""
    with _lock:
        if recipe not in _opened:
            _opened[recipe] = opener()
        _opened.move_to_end(recipe)
        found: T = _opened[recipe]
        while len(_opened) > MOST_OPEN:
            _opened.popitem(last=False)
    return found
