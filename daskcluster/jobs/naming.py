"""Job names, restricted to characters that are safe in paths, keys and topics."""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Any

from daskcluster.errors import InvalidParameterError

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
