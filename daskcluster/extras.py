"""Optional libraries: their import, and the command that installs one."""

from __future__ import annotations

import json
import os
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from daskcluster.errors import MissingExtraError

NAME = "daskcluster"


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
    """Return the command that installs an extra.

    A checkout or a wheel is not on a package index, so the command names where it is. That is recorded
    next to an installed package (PEP 610).

    Parameters
    ----------
    extra : str
        Extra of ``pyproject.toml``, e.g. ``"parquet"``.

    Examples
    --------
    >>> install_command("parquet").startswith("pip install ")
    True
    """
    try:
        found = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError, OSError):
        found = {}
    return _command(found if isinstance(found, dict) else {}, extra)


def _command(installed: dict[str, Any], extra: str) -> str:
    plain = f'pip install "{NAME}[{extra}]"'
    url = str(installed.get("url", ""))
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = unquote(parts.path)
        is_editable = bool((installed.get("dir_info") or {}).get("editable"))
        if not os.path.exists(path):
            return plain
        return f'pip install {"-e " if is_editable else ""}"{path}[{extra}]"'
    if not parts.netloc:
        return plain
    # Without a user and a password.
    clean = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    source = installed.get("vcs_info") or {}
    if source:
        clean = f"{source.get('vcs', 'git')}+{clean}@{source.get('commit_id', 'HEAD')}"
    return f'pip install "{NAME}[{extra}] @ {clean}"'
