"""Measured parts, saved in a file, so that tables can combine parts of several runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.harness.machine import cpu_name
from tests.benchmarks.harness.race import say
from tests.benchmarks.scaling.model.calibrate import calibrate
from tests.benchmarks.scaling.model.rates import REFERENCE, Rates, load_rates, save_rates

PARTS = ("rates", "workers", "lines")


class Parts:
    """Saved parts in a folder.

    Attributes
    ----------
    kept : dict
        Plain values by name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.kept: dict[str, Any] = (
            json.loads(self._file.read_text()) if self._file.exists() else {}
        )

    @property
    def _file(self) -> Path:
        return self.folder / "parts.json"

    @property
    def _rates_file(self) -> Path:
        return self.folder / "rates.json"

    def put(self, name: str, value: Any) -> None:
        """Save a part; it replaces an older one."""
        self.kept[name] = value
        self._file.write_text(json.dumps(self.kept, indent=1))

    def measure_rates(self) -> None:
        """Measure and save the rates of this machine."""
        found = calibrate(lambda text: say(f"  {text}"))
        save_rates(found.rates, self._rates_file)
        self.put(
            "rates",
            {
                "cpu": cpu_name(),
                "date": f"{datetime.now(UTC):%Y-%m-%d}",
                "rates": asdict(found.rates),
                "errors": found.errors,
            },
        )

    def rates(self) -> Rates:
        """Return the measured rates, or the built-in ones."""
        return load_rates(self._rates_file) if self._rates_file.exists() else REFERENCE
