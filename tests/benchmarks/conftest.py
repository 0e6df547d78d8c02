"""Ways to call ``python -m tests.benchmarks`` in this process, in a folder with a data set."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from tests.benchmarks.__main__ import main
from tests.cli.conftest import here, record, rows  # noqa: F401  (fixtures)


@pytest.fixture
def run() -> Callable[..., Result]:
    """Return a function that calls the command in this process."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    return call
