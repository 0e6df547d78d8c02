"""Optional libraries: their import, and the command that installs one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from daskcluster.errors import MissingExtraError


def import_extra(module: str, extra: str, need: str) -> Any:
    """Return an optional module.

    Parameters
    ----------
    module, extra : str
        Its name, and that of what installs it.
    need : str
        What errors say, e.g. ``"HDF5 files need h5py"``.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{need}. Remedy: {install_command(extra)}.") from error


def import_pyarrow() -> Any:
    """Return pyarrow.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    need = "Parquet, Arrow, csv and JSON files and Arrow tables need pyarrow"
    return import_extra("pyarrow", "parquet", need)


def install_command(extra: str) -> str:
    """Return the command that installs an extra, of a package index and of a checkout.

    Parameters
    ----------
    extra : str
        Extra of ``pyproject.toml``, e.g. ``"parquet"``.

    Examples
    --------
    >>> install_command("parquet")
    'pip install "daskcluster[parquet]", or in a checkout pip install ".[parquet]"'
    """
    return f'pip install "daskcluster[{extra}]", or in a checkout pip install ".[{extra}]"'
