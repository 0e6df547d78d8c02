"""Result files, one for each comparison, rewritten after every cell."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskcluster.errors import InvalidDataError


@dataclass(frozen=True)
class Results:
    """The results of one folder: ``COMPARISON.json`` and ``targets.json``.

    Examples
    --------
    >>> from pathlib import Path
    >>> kept = Results(Path("results"))
    >>> kept.put("lloyd", "small", {"seconds": 0.123456789})
    >>> kept.read("lloyd")
    {'small': {'seconds': 0.123457}}
    """

    folder: Path

    def read(self, name: str) -> dict[str, Any]:
        """Return the content of a file, empty if it does not exist.

        Raises
        ------
        InvalidDataError
            The file is not a JSON object.
        """
        path = self.folder / f"{name}.json"
        if not path.exists():
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InvalidDataError(
                f"{path} is not JSON ({error}); expected a JSON object; restore the file or remove it."
            ) from error
        if not isinstance(found, dict):
            raise InvalidDataError(f"{path} is not a JSON object; restore the file or remove it.")
        return found

    def put(self, name: str, key: str, value: Mapping[str, Any]) -> None:
        """Add an entry to a file; it replaces an entry with the same key."""
        self.write(name, {**self.read(name), key: value})

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace a file atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.json"
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(_text(_rounded(value)) + "\n", encoding="utf-8")
        os.replace(unfinished, path)


def _text(value: Any, margin: str = "") -> str:
    """Return JSON with one line per member and lists on one line, so that diffs are readable."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = f"{margin} "
    lines = [
        f"{inner}{json.dumps(key, ensure_ascii=False)}: {_text(one, inner)}"
        for key, one in value.items()
    ]
    return "\n".join(["{", ",\n".join(lines), f"{margin}}}"])


def _rounded(value: Any) -> Any:
    """Return plain values rounded to six digits; more digits are noise."""
    if isinstance(value, Mapping):
        return {str(key): _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    if isinstance(value, (bool, str, int)) or value is None:
        return value
    number = value.item() if hasattr(value, "item") else value
    return float(f"{number:.6g}") if isinstance(number, float) else number
